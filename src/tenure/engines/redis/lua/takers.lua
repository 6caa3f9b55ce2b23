-- Settling and taking tasks, in one exchange.

-- -> true, or false if the settlement came too late
local function settle(name, queue, session, id, token, verdict, result, delay, ttl)
    local task = task_of(name, id)
    if not task or task.token ~= token or task.session ~= session.id then
        return false
    end
    leave(task.thing)
    unlease(name, task)
    if verdict == 'done' or verdict == 'discarded' or verdict == 'cancelled' then
        end_task(name, queue, id, task, verdict, result, ttl)
    elseif verdict == 'dead' then
        task.attempts = task.attempts + 1
        end_task(name, queue, id, task, 'dead', result, nil)
    elseif task.stop then
        end_task(name, queue, id, task, 'cancelled', '', task.ttl)
    elseif verdict == 'retry' then
        task.attempts, task.ready_at = task.attempts + 1, now + delay
        return_task(name, queue, id, task)
    else
        task.deliveries = task.deliveries - 1
        return_task(name, queue, id, task)
    end
    return true
end

-- Move delayed tasks that are due to the ready ones, at most CAP; says how many.
local function promote(name, queue)
    local moved = 0
    while moved < CAP and queue.delayed > 0 do
        local time, id = earliest('d:', name)
        if time > now then
            break
        end
        local task = task_of(name, id)
        step_out(name, queue, id, task)
        line_up(name, queue, id, task)
        save_task(name, id, task)
        moved = moved + 1
    end
    return moved
end

-- Take up to `want` tasks out of the order: first those that have been ready for too long, then by priority.
local function take(name, queue, session, want, aging, limit, keep)
    local taken = {}
    local function take_one(place)
        local id = tonumber(string.sub(place, -16))
        local task = task_of(name, id)
        step_out(name, queue, id, task)
        task.session, task.process, task.token = session.id, session.process, new_token()
        task.deliveries, task.limit, task.keep = task.deliveries + 1, limit, keep or nil
        task.thing = give(session.id, TASK, both(name, digits(id)), task.token)
        save_task(name, id, task)
        taken[#taken + 1] = {id, math.max(0, now - task.ready_at), task}
    end
    if aging then
        walk('o:' .. both(name, ''), '', function(place)
            if #taken == want or now - tonumber(string.sub(place, 1, 16)) <= aging then
                return true
            end
            take_one(place)
        end)
    end
    if #taken < want and queue.ready > 0 then
        for _, place in ipairs(under('a:' .. both(name, ''), want - #taken)) do
            take_one(place)
        end
    end
    return taken
end

-- The session is idle until it gets `want` tasks more, or no longer.
local function register(name, queue, session, want)
    local member = 'k:' .. both(name, session.name)
    local taker = row(member)
    if want > 0 then
        if not taker then
            queue.takers = queue.takers + 1
            taker = {ordinal = number('id'), process = session.process, thing = give(session.id, TAKER, name)}
            enter('k:' .. both(name, digits(taker.ordinal)) .. session.name)
        end
        taker.want = want
        save(member, taker)
    elseif taker then
        leave(taker.thing)
        forget_taker(name, queue, session.name)
    end
end

local function stops(name, session)
    local tokens = {}
    walk('z:' .. both(name, session.id), '', function(place)
        tokens[#tokens + 1] = tonumber(string.sub(place, 17))
    end)
    return tokens
end

-- The answer; it is remembered without what the rows of the tasks tell: their ids and for how long they waited suffice.
local function exchanged(name, taken, answer)
    local tasks = {}
    for i, one in ipairs(taken) do
        local task = one[3] or task_of(name, one[1])
        tasks[i] = {
            one[1], task.token, payload_of(name, one[1]), task.priority, task.attempts, task.deliveries, one[2],
            task.progress or '',
        }
    end
    return {'exchanged', tasks, answer.refused, answer.stop, answer.paused, answer.again}
end

-- ARGV: session, n, queue, want, wait, aging ("": none), limit of deliveries, keep, then of each settlement id, token,
-- verdict, result, delay, ttl ("": for good) -> exchanged: tasks, refused, stop, paused, ask again in; gone
operations.exchange = function()
    local session, n, name = session_of(ARGV[4]), tonumber(ARGV[5]), ARGV[6]
    if not session then
        return 'gone'
    end
    local known = repeated(session, n, 'exchange ' .. name)
    if known then
        return exchanged(name, known.taken, known)
    end
    local queue = queue_of(name)
    local want, refused, taken = tonumber(ARGV[7]), {}, {}
    for i = 12, #ARGV, 6 do
        local token = tonumber(ARGV[i + 1])
        if not settle(name, queue, session, tonumber(ARGV[i]), token, ARGV[i + 2], ARGV[i + 3],
                tonumber(ARGV[i + 4]), tonumber(ARGV[i + 5])) then
            refused[#refused + 1] = token
        end
    end
    local promoted = promote(name, queue)
    if want > 0 and not queue.paused then
        taken = take(name, queue, session, want, tonumber(ARGV[9]), tonumber(ARGV[10]), ARGV[11] == '1')
    end
    register(name, queue, session, ARGV[8] == '1' and want - #taken or 0)
    offer_tasks(name, queue, promoted - #taken)
    local answer = {
        refused = refused, stop = stops(name, session), paused = queue.paused and 1 or 0,
        again = ask_again_in(next_due(name, queue)), taken = {},
    }
    save_queue(name, queue)
    forget_outdated()
    for i, one in ipairs(taken) do
        answer.taken[i] = {one[1], one[2]}
    end
    return exchanged(name, taken, remember(session, n, 'exchange ' .. name, answer))
end
