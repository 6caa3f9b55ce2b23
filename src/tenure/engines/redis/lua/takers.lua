-- Settling and taking tasks, in one exchange.

-- A settlement is one argument: id, token, delay or ttl (-1: for good), a letter for the verdict, then the result.
local VERDICTS = {
    o = 'done', r = 'retry', d = 'dead', i = 'discarded', g = 'give back', p = 'postpone', c = 'cancelled',
}
local HEAD = '>I8I8i8c1'

-- -> true, or false if the settlement came too late; `write` follows
local function settle(name, queue, session, id, task, token, time, verdict, result)
    if not task or task.token ~= token or task.session ~= session.id then
        return false
    end
    leave_soon(lease_of(name, id, task))
    unlease(name, task)
    if verdict == 'done' or verdict == 'discarded' or verdict == 'cancelled' then
        end_task(name, queue, id, task, verdict, result, time >= 0 and time or nil)
    elseif verdict == 'dead' then
        task.attempts = (task.attempts or 0) + 1
        end_task(name, queue, id, task, 'dead', result, nil)
    elseif task.stop then
        end_task(name, queue, id, task, 'cancelled', '', task.ttl)
    elseif verdict == 'retry' then
        task.attempts, task.ready_at = (task.attempts or 0) + 1, now + time
        return_task(name, queue, id, task)
    else
        task.deliveries = task.deliveries - 1
        if verdict == 'postpone' then
            task.ready_at = now + time
        end
        return_task(name, queue, id, task)
    end
    return true
end

-- Settle what the arguments from there on say; gives the tokens of those that came too late.
local function settle_all(name, queue, session, from)
    local refused, heads, rows = {}, {}, {}
    for i = from, #ARGV do
        local id, token, time, letter, start = struct.unpack(HEAD, ARGV[i])
        id = digits(id)
        heads[i] = {id, token, time, VERDICTS[letter], start}
        rows[#rows + 1] = 'T:' .. tag(name) .. id
    end
    if #rows > 0 then
        rows = call('HMGET', ROWS, unpack(rows))
    end
    local settled = {}
    for i = from, #ARGV do
        local id, token, time, verdict, start = unpack(heads[i])
        local task
        if settled[id] then
            write()
            task = task_of(name, id)
        else
            local packed = rows[i - from + 1]
            task = packed and cmsgpack.unpack(packed)
            task = task and not task.seq and task
        end
        settled[id] = true
        if not settle(name, queue, session, id, task, token, time, verdict, string.sub(ARGV[i], start)) then
            refused[#refused + 1] = token
        end
    end
    write()
    return refused
end

-- Move delayed tasks that are due to the ready ones, at most CAP; says how many.
local function promote(name, queue)
    local moved = 0
    while moved < CAP and queue.delayed > 0 do
        local time, id = first_delayed(name)
        if time > now then
            break
        end
        local task = task_of(name, id)
        step_out(name, queue, id, task)
        enter(line_up(name, queue, id, task))
        save_task(name, id, task)
        moved = moved + 1
    end
    return moved
end

-- The members of plain tasks and of others that have been ready for longer than `aging`, the oldest first.
local function aged(name, want, aging)
    local found = {}
    local plain, others = under('a:' .. tag(name) .. PLAIN, want), under('o:' .. tag(name), want)
    local i, j = 1, 1
    while #found < want do
        local one, other = plain[i], others[j]
        if one and (not other or string.sub(one, -32) < string.sub(other, -32)) then
            i = i + 1
        elseif other then
            one, j = other, j + 1
        end
        if not one or now - tonumber(string.sub(one, -32, -17)) <= aging then
            break
        end
        found[#found + 1] = one
    end
    return found
end

-- Lease the tasks with these members, that end in when they became ready and their ids.
local function lease(name, queue, session, members, limit, keep, taken)
    if #members == 0 then
        return
    end
    local rows = {}
    for i, member in ipairs(members) do
        rows[i] = 'T:' .. tag(name) .. string.sub(member, -16)
    end
    for i, packed in ipairs(call('HMGET', ROWS, unpack(rows))) do
        local task, id = cmsgpack.unpack(packed), string.sub(members[i], -16)
        local place, another = places(name, id, task.priority, string.sub(members[i], -32, -17))
        leave_soon(place)
        if another then
            leave_soon(another)
        end
        task.session, task.process, task.token = session.id, session.process, new_token()
        task.deliveries, task.limit, task.keep = (task.deliveries or 0) + 1, limit, keep or nil
        enter_soon(lease_of(name, id, task))
        set_soon(rows[i], cmsgpack.pack(task))
        taken[#taken + 1] = {id, ago(task.ready_at), task}
    end
    queue.ready = queue.ready - #members
    write()
end

-- Take up to `want` tasks out of the order: first those that have been ready for too long, then by priority.
local function take(name, queue, session, want, aging, limit, keep)
    local taken = {}
    if aging then
        lease(name, queue, session, aged(name, want, aging), limit, keep, taken)
    end
    if #taken < want and queue.ready > 0 then
        lease(name, queue, session, under('a:' .. tag(name), want - #taken), limit, keep, taken)
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
-- The tasks are eight fields each, one behind the other: a table for each would cost the server more than all the rest.
local function exchanged(name, taken, answer)
    local fields, last = {}, 0
    for _, one in ipairs(taken) do
        local id = one[1]
        local task = one[3] or task_of(name, id)
        fields[last + 1], fields[last + 2] = tonumber(id), task.token
        fields[last + 3], fields[last + 4] = payload_of(name, id, task), task.priority or 0
        fields[last + 5], fields[last + 6] = task.attempts or 0, task.deliveries
        fields[last + 7], fields[last + 8] = one[2], task.progress or ''
        last = last + 8
    end
    return {'exchanged', fields, answer.refused, answer.stop, answer.paused, answer.again}
end

-- ARGV: session, n, queue, want, wait, aging ("": none), limit of deliveries, keep, then the settlements
-- -> exchanged: tasks, refused, stop, paused, ask again in; gone
operations.exchange = function()
    local session, n, name = session_of(ARGV[4]), tonumber(ARGV[5]), ARGV[6]
    if not session then
        return 'gone'
    end
    local known = repeated(session, n, 'exchange ' .. name)
    if known then
        return exchanged(name, known.taken, known)
    end
    local queue, taken = queue_of(name), {}
    local want = tonumber(ARGV[7])
    local refused = settle_all(name, queue, session, 12)
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
