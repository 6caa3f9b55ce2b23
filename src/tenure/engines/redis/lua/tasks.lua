-- Tasks: a bounded priority queue whose tasks are leased, fenced and settled.
--
-- A row "Q:" queue -> {size, paused, tasks, ready, delayed, reserved, producers, ordinal, takers, and how many were put,
-- done, dead, ...}; a row "T:" queue, id -> an unfinished task {priority, key, expires, ready_at, attempts, deliveries,
-- and while leased: session, process, token, thing, limit, keep; stop, a number, and ttl when it shall be cancelled; progress}; a
-- field "Y:" queue, id -> its payload; a field "K:" queue, key -> its id. A row "e:" queue, id -> the record of an ended
-- task {seq, state, priority, key, attempts, deliveries, result, ended_at, expires}. Rows "n:" producers, "k:" takers.
--
-- Members: "u:" queue, id for all unfinished; "a:" queue, priority, ready_at, id and "o:" queue, ready_at, id for those
-- that are ready; "d:" queue, ready_at, id for the delayed; "z:" queue, session, stop, token for those to be cancelled; "n:"
-- queue, ordinal, producer for those who wait; "k:" queue, ordinal, session for idle takers; "y:" queue, letter of the
-- state, seq, id for endings; "J:" time, id, queue for records to be forgotten; "D:" time, "x", id, queue for expiry.

local HIGHEST_PRIORITY = 2 ^ 52
local LETTERS = {done = 'o', dead = 'd', discarded = 'i', cancelled = 'c', expired = 'e'}
local RECORD_LASTS = 3600 * 1000000

local operations = {}
local ended_here = 0

local function queue_of(name)
    return row('Q:' .. name) or {
        size = 0, paused = false, tasks = 0, ready = 0, delayed = 0, reserved = 0, producers = 0, ordinal = 0, takers = 0,
        put = 0, done = 0, dead = 0, cancelled = 0, expired = 0, discarded = 0, purged = 0,
    }
end

local function save_queue(name, queue)
    save('Q:' .. name, queue)
end

-- tasks and their orders

local function with_id(name, id)
    return both(name, digits(id))
end

local function task_of(name, id)
    return row('T:' .. with_id(name, id))
end

local function save_task(name, id, task)
    save('T:' .. with_id(name, id), task)
end

local function payload_of(name, id)
    return call('HGET', ROWS, 'Y:' .. with_id(name, id)) or ''
end

local function by_priority(name, id, task)
    return 'a:' .. both(name, digits(HIGHEST_PRIORITY - task.priority)) .. digits(task.ready_at) .. digits(id)
end

local function by_time(letter, name, id, task)
    return letter .. with_id(name, task.ready_at) .. digits(id)
end

local function expiry_of(name, id, task)
    return due(task.expires, 'x', digits(id) .. name)
end

-- Enter a task that is not leased into the orders.
local function line_up(name, queue, id, task)
    task.delayed = task.ready_at > now or nil
    if task.delayed then
        queue.delayed = queue.delayed + 1
        enter(by_time('d:', name, id, task))
    else
        queue.ready = queue.ready + 1
        enter(by_priority(name, id, task), by_time('o:', name, id, task))
    end
end

local function step_out(name, queue, id, task)
    if task.delayed then
        queue.delayed = queue.delayed - 1
        leave(by_time('d:', name, id, task))
    else
        queue.ready = queue.ready - 1
        leave(by_priority(name, id, task), by_time('o:', name, id, task))
    end
    task.delayed = nil
end

-- The time and the id at the head of the delayed ("d:") or of the ready by age ("o:").
local function earliest(letter, name)
    local prefix = letter .. both(name, '')
    local member = first(prefix)
    if member then
        return tonumber(string.sub(member, #prefix + 1, #prefix + 16)), tonumber(string.sub(member, #prefix + 17))
    end
end

local function next_due(name, queue)
    return queue.delayed > 0 and earliest('d:', name) or nil
end

local function state_of(task)
    return task.token and 'leased' or task.ready_at > now and 'delayed' or 'waiting'
end

-- idle takers

local function forget_taker(name, queue, session)
    local member = 'k:' .. both(name, session)
    local taker = row(member)
    delete(member)
    leave('k:' .. both(name, digits(taker.ordinal)) .. session)
    queue.takers = queue.takers - 1
    return taker
end

-- Hint idle takers that `count` tasks became ready, as many takers as are needed.
local function offer_tasks(name, queue, count)
    local prefix = 'k:' .. both(name, '')
    while count > 0 and queue.takers > 0 and not queue.paused do
        local taker = forget_taker(name, queue, string.sub(first(prefix), #prefix + 17))
        leave(taker.thing)
        hint(taker.process, name, '', 'ready')
        count = count - taker.want
    end
end

-- A new earliest due time: one idle taker must know, to ask in time.
local function offer_sooner(name, queue, before)
    local earliest_now = next_due(name, queue)
    if earliest_now and (not before or earliest_now < before) then
        offer_tasks(name, queue, 1)
    end
end

local function return_task(name, queue, id, task)
    local before = next_due(name, queue)
    line_up(name, queue, id, task)
    save_task(name, id, task)
    if task.delayed then
        offer_sooner(name, queue, before)
    else
        offer_tasks(name, queue, 1)
    end
end

-- producers

local function room(queue)
    return queue.size - queue.tasks - queue.reserved
end

-- Reserve slots for the head of the producers' line, for as long as it fits.
local function admit(name, queue)
    local prefix = 'n:' .. both(name, '')
    while queue.producers > 0 do
        local member = first(prefix)
        local producer = string.sub(member, #prefix + 17)
        local place = row('n:' .. both(name, producer))
        if place.count > room(queue) then
            return
        end
        leave(member)
        place.reserved = true
        save('n:' .. both(name, producer), place)
        queue.producers, queue.reserved = queue.producers - 1, queue.reserved + place.count
        hint(place.process, name, producer, 'room')
    end
end

-- endings

-- An unfinished task that is in no order goes; its payload stays with `keep`.
local function remove_task(name, queue, id, task, keep)
    local suffix = with_id(name, id)
    leave('u:' .. suffix)
    if keep then
        delete('T:' .. suffix)
    else
        delete('T:' .. suffix, 'Y:' .. suffix)
    end
    if task.key then
        delete('K:' .. both(name, task.key))
    end
    if task.expires then
        leave(expiry_of(name, id, task))
    end
    queue.tasks = queue.tasks - 1
    admit(name, queue)
    if queue.tasks == 0 then
        fire('drain' .. name, name, '', 'drained')
    end
end

local function fire_finished(name, id)
    fire('task' .. with_id(name, id), name, string.format('%.0f', id), 'finished')
end

-- A task, neither leased nor in an order, has ended; without `ttl` its record is kept for good.
local function end_task(name, queue, id, task, state, result, ttl)
    local keep = task.keep or state == 'dead'
    remove_task(name, queue, id, task, keep)
    queue[state] = queue[state] + 1
    ended_here = ended_here + 1
    local record = {
        seq = number('ending'), state = state, priority = task.priority, key = task.key, attempts = task.attempts,
        deliveries = task.deliveries, result = result, ended_at = now, expires = ttl and now + ttl,
    }
    save('e:' .. with_id(name, id), record)
    enter('y:' .. both(name, LETTERS[state]) .. digits(record.seq) .. digits(id),
        ttl and 'J:' .. digits(record.expires) .. digits(id) .. name)
    fire_finished(name, id)
end

local function forget_record(name, id, record)
    delete('e:' .. with_id(name, id), 'Y:' .. with_id(name, id))
    leave('y:' .. both(name, LETTERS[record.state]) .. digits(record.seq) .. digits(id))
    if record.expires then
        leave('J:' .. digits(record.expires) .. digits(id) .. name)
    end
end

-- Forget outdated records, a few more than came.
local function forget_outdated()
    for _, member in ipairs(under('J:', 16 + 2 * ended_here)) do
        if tonumber(string.sub(member, 3, 18)) > now then
            return
        end
        local name, id = string.sub(member, 35), tonumber(string.sub(member, 19, 34))
        forget_record(name, id, row('e:' .. with_id(name, id)))
    end
end

-- leases

local function stop_place(name, task)
    return 'z:' .. both(name, task.session) .. task.stop .. digits(task.token)
end

local function unlease(name, task)
    if task.stop then
        leave(stop_place(name, task))
    end
    task.session, task.process, task.token, task.thing = nil, nil, nil, nil
end

-- The session that held the task has ended.
local function drop_task(_, thing)
    local name, id = parts(thing)
    id = tonumber(id)
    local queue, task = queue_of(name), task_of(name, id)
    unlease(name, task)
    local silent = task.deliveries - task.attempts
    if task.stop then
        end_task(name, queue, id, task, 'cancelled', '', task.ttl)
    elseif silent >= task.limit then
        local reason = string.format('delivered %d times without a verdict', silent)
        end_task(name, queue, id, task, 'dead', reason, nil)
    else
        return_task(name, queue, id, task)
    end
    save_queue(name, queue)
end

-- The session of an idle taker has ended.
local function drop_taker(session, name)
    local queue = queue_of(name)
    forget_taker(name, queue, session.name)
    save_queue(name, queue)
end

-- The session of a producer has ended, or it leaves -> released, left
local function drop_producer(_, thing)
    local name, producer = parts(thing)
    local queue, place = queue_of(name), row('n:' .. thing)
    delete('n:' .. thing)
    if place.reserved then
        queue.reserved = queue.reserved - place.count
    else
        leave('n:' .. both(name, digits(place.ordinal)) .. producer)
        queue.producers = queue.producers - 1
    end
    admit(name, queue)
    save_queue(name, queue)
    return place.reserved and 'released' or 'left'
end

-- The time of a task has come, unless it is leased.
local function expire_task(thing)
    local id, name = tonumber(string.sub(thing, 1, 16)), string.sub(thing, 17)
    local task = task_of(name, id)
    if not task.token then
        local queue = queue_of(name)
        step_out(name, queue, id, task)
        end_task(name, queue, id, task, 'expired', '', RECORD_LASTS)
        save_queue(name, queue)
    end
end
