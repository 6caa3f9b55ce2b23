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

-- The next task, taken out of the order.
local function pop(name, queue, aging)
    if queue.ready == 0 then
        return nil
    end
    local id
    if aging then
        local time, oldest = earliest('o:', name)
        id = now - time > aging and oldest
    end
    id = id or tonumber(string.sub(first('a:' .. both(name, '')), -16))
    local task = task_of(name, id)
    step_out(name, queue, id, task)
    return id, task
end

local function take(name, session, id, task, limit, keep)
    task.session, task.process, task.token = session.id, session.process, new_token()
    task.deliveries, task.limit, task.keep = task.deliveries + 1, limit, keep or nil
    task.thing = give(session.id, TASK, both(name, digits(id)))
    save_task(name, id, task)
end

local function show_taken(name, id, waited)
    local task = task_of(name, id)
    return {
        id, task.token, payload_of(name, id), task.priority, task.attempts, task.deliveries, waited,
        task.progress or '',
    }
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

-- The answer, remembered without what the rows of the tasks tell.
local function exchanged(name, answer)
    local tasks = {}
    for i, task in ipairs(answer[2]) do
        tasks[i] = show_taken(name, task[1], task[2])
    end
    return {'exchanged', tasks, answer[3], answer[4], answer[5], answer[6]}
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
        return exchanged(name, known)
    end
    local want, limit, keep = tonumber(ARGV[7]), tonumber(ARGV[10]), ARGV[11] == '1'
    local queue = queue_of(name)
    local refused, taken = {}, {}
    for i = 12, #ARGV, 6 do
        local token = tonumber(ARGV[i + 1])
        if not settle(name, queue, session, tonumber(ARGV[i]), token, ARGV[i + 2], ARGV[i + 3],
                tonumber(ARGV[i + 4]), tonumber(ARGV[i + 5])) then
            refused[#refused + 1] = token
        end
    end
    local promoted = promote(name, queue)
    while not queue.paused and #taken < want do
        local id, task = pop(name, queue, tonumber(ARGV[9]))
        if not id then
            break
        end
        take(name, session, id, task, limit, keep)
        taken[#taken + 1] = {id, math.max(0, now - task.ready_at)}
    end
    register(name, queue, session, ARGV[8] == '1' and want - #taken or 0)
    offer_tasks(name, queue, promoted - #taken)
    local again = ask_again_in(next_due(name, queue))
    save_queue(name, queue)
    forget_outdated()
    local answer = {'exchanged', taken, refused, stops(name, session), queue.paused and 1 or 0, again}
    return exchanged(name, remember(session, n, 'exchange ' .. name, answer))
end
