-- Tasks: a bounded priority queue whose tasks are leased, fenced and settled.
--
-- Rows: "Q:" queue -> {size, paused, tasks, ready, delayed, reserved, producers, ordinal, takers, and how many were
-- put, done, dead, ...}; "T:" queue, id -> a task: {ready_at; priority, attempts and deliveries unless 0; key, expires,
-- payload if it is short, progress; while leased session, process, token, limit, keep; stop, a number, and ttl when it
-- shall be cancelled} or, once it has ended, its record: {seq, state, result, ended_at, expires, priority, ...}; "n:"
-- for producers, "k:" for takers. Fields "Y:" queue, id -> a payload that is long; "K:" queue, key -> an id.
--
-- Members: "u:" queue, id for all unfinished; "a:" queue, priority, ready_at, id for those that are ready, and "o:"
-- queue, ready_at, id for those of them whose priority is not 0 (the others are in that order among themselves); "d:"
-- queue, ready_at, id for the delayed; "z:" queue, session, stop, token for those to be cancelled; "n:" queue, ordinal,
-- producer for those who wait; "k:" queue, ordinal, session for idle takers; "y:" queue, letter of the state, seq, id
-- for endings; "Q:" queue once a task was put into it; "J:" time, letter, seq, seq, queue for a run of records to be
-- forgotten; "D:" time, "x", id, queue for expiry.
--
-- An id has 16 digits here; only answers give it as a number.

local HIGHEST_PRIORITY = 2 ^ 52
local PLAIN = digits(HIGHEST_PRIORITY) -- the place of priority 0
local SHORT = 512 -- bytes of payload that are copied along whenever the row of the task is written
local LETTERS = {done = 'o', dead = 'd', discarded = 'i', cancelled = 'c', expired = 'e'}
local RECORD_LASTS = 3600 * 1000000

local operations = {}
local ended_here = 0

local function queue_of(name)
    return row('Q:' .. name) or {
        size = 0, paused = false, tasks = 0, ready = 0, delayed = 0, reserved = 0, producers = 0, ordinal = 0,
        takers = 0, put = 0, done = 0, dead = 0, cancelled = 0, expired = 0, discarded = 0, purged = 0,
    }
end

local function save_queue(name, queue)
    save('Q:' .. name, queue)
end

-- The name of a queue as it stands before others.
local tags = {}

local function tag(name)
    local known = tags[name]
    if not known then
        known = both(name, '')
        tags[name] = known
    end
    return known
end

-- What many tasks change is written together: `write` follows before any of it is read.
local leaving, entering, setting = {}, {}, {}

local function leave_soon(member)
    leaving[#leaving + 1] = member
end

local function enter_soon(member)
    entering[#entering + 1] = '0'
    entering[#entering + 1] = member
end

local function set_soon(field, value)
    setting[#setting + 1] = field
    setting[#setting + 1] = value
end

local function write()
    if #leaving > 0 then
        leave(unpack(leaving))
    end
    if #entering > 0 then
        call('ZADD', ORDER, unpack(entering))
    end
    if #setting > 0 then
        call('HSET', ROWS, unpack(setting))
    end
    leaving, entering, setting = {}, {}, {}
end

-- tasks and their orders

local function task_of(name, id)
    local task = row('T:' .. tag(name) .. id)
    return task and not task.seq and task
end

local function record_of(name, id)
    local record = row('T:' .. tag(name) .. id)
    return record and record.seq and record
end

local function save_task(name, id, task)
    save('T:' .. tag(name) .. id, task)
end

local function payload_of(name, id, task)
    return task.payload or call('HGET', ROWS, 'Y:' .. tag(name) .. id) or ''
end

-- The member, or two, of a task that is ready since a time, in digits.
local function places(name, id, priority, since)
    if priority then
        return 'a:' .. tag(name) .. digits(HIGHEST_PRIORITY - priority) .. since .. id, 'o:' .. tag(name) .. since .. id
    end
    return 'a:' .. tag(name) .. PLAIN .. since .. id
end

local function place_of_delayed(name, id, task)
    return 'd:' .. tag(name) .. digits(task.ready_at) .. id
end

local function expiry_of(name, id, task)
    return due(task.expires, 'x', id .. name)
end

-- Count a task that is not leased among the delayed or the ready; gives its members.
local function line_up(name, queue, id, task)
    task.delayed = task.ready_at > now or nil
    if task.delayed then
        queue.delayed = queue.delayed + 1
        return place_of_delayed(name, id, task)
    end
    queue.ready = queue.ready + 1
    return places(name, id, task.priority, digits(task.ready_at))
end

local function step_out(name, queue, id, task)
    if task.delayed then
        queue.delayed = queue.delayed - 1
        leave(place_of_delayed(name, id, task))
    else
        queue.ready = queue.ready - 1
        leave(places(name, id, task.priority, digits(task.ready_at)))
    end
    task.delayed = nil
end

-- The time and the id at the head of the delayed.
local function first_delayed(name)
    local prefix = 'd:' .. tag(name)
    local member = first(prefix)
    if member then
        return tonumber(string.sub(member, #prefix + 1, #prefix + 16)), string.sub(member, #prefix + 17)
    end
end

local function next_due(name, queue)
    return queue.delayed > 0 and first_delayed(name) or nil
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
    enter(line_up(name, queue, id, task))
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

-- An unfinished task that is in no order goes, but for its row; `write` follows.
local function remove_task(name, queue, id, task)
    leave_soon('u:' .. tag(name) .. id)
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
    if last_number('watches task') > 0 then
        fire('task' .. tag(name) .. id, name, format('%d', id), 'finished')
    end
end

-- Records that ended one after the other, all of one kind and with one time to be forgotten: one member for them all.
local run

local function end_run()
    if run then
        enter('J:' .. digits(run.expires) .. run.letter .. digits(run.from) .. digits(run.to) .. run.name)
        run = nil
    end
end

at_the_end[#at_the_end + 1] = end_run

local function forget_later(name, letter, seq, expires)
    if not (run and run.to == seq - 1 and run.expires == expires and run.letter == letter and run.name == name) then
        end_run()
        run = {name = name, letter = letter, expires = expires, from = seq}
    end
    run.to = seq
end

-- A task, neither leased nor in an order, has ended; without `ttl` its record is kept for good. `write` follows.
local function end_task(name, queue, id, task, state, result, ttl)
    local keep = task.keep or state == 'dead'
    remove_task(name, queue, id, task)
    queue[state] = queue[state] + 1
    ended_here = ended_here + 1
    local seq, letter = number('ending'), LETTERS[state]
    if not (keep or task.payload) then
        delete('Y:' .. tag(name) .. id)
    end
    set_soon('T:' .. tag(name) .. id, cmsgpack.pack({
        seq = seq, state = state, priority = task.priority, key = task.key, attempts = task.attempts,
        deliveries = task.deliveries, result = result, ended_at = now, expires = ttl and now + ttl,
        payload = keep and task.payload or nil,
    }))
    enter_soon('y:' .. tag(name) .. letter .. digits(seq) .. id)
    if ttl then
        forget_later(name, letter, seq, now + ttl)
    end
    fire_finished(name, id)
end

local function forget_record(name, id, record)
    delete('T:' .. tag(name) .. id, 'Y:' .. tag(name) .. id)
    leave('y:' .. tag(name) .. LETTERS[record.state] .. digits(record.seq) .. id)
end

-- Forget outdated records, a few more than came.
local function forget_outdated()
    local left = 16 + 2 * ended_here
    for _, member in ipairs(under('J:', left)) do
        if left < 1 or tonumber(string.sub(member, 3, 18)) > now then
            return
        end
        local from, to, queue = string.sub(member, 19, 35), string.sub(member, 36, 51), tag(string.sub(member, 52))
        local prefix = 'y:' .. queue
        local endings = call('ZRANGEBYLEX', ORDER, '[' .. prefix .. from,
            '(' .. prefix .. string.sub(from, 1, 1) .. to .. '\255', 'LIMIT', 0, left)
        local fields = {}
        for _, ending in ipairs(endings) do
            local id = string.sub(ending, -16)
            fields[#fields + 1] = 'T:' .. queue .. id
            fields[#fields + 1] = 'Y:' .. queue .. id
        end
        if #endings > 0 then
            delete(unpack(fields))
            leave(unpack(endings))
        end
        if #endings < left then
            leave(member)
        end
        left = left - #endings - 1
    end
end

-- leases

local function stop_place(name, task)
    return 'z:' .. both(name, task.session) .. task.stop .. digits(task.token)
end

local LEASE = ':' .. TASK

-- The member for what a session has, in the order of tokens.
local function lease_of(name, id, task)
    return 't:' .. task.session .. LEASE .. digits(task.token) .. tag(name) .. id
end

local function unlease(name, task)
    if task.stop then
        leave(stop_place(name, task))
    end
    task.session, task.process, task.token = nil, nil, nil
end

-- The session that held the task has ended.
local function drop_task(_, thing_name)
    local name, id = parts(thing_name)
    local queue, task = queue_of(name), task_of(name, id)
    unlease(name, task)
    local silent = (task.deliveries or 0) - (task.attempts or 0)
    if task.stop then
        end_task(name, queue, id, task, 'cancelled', '', task.ttl)
    elseif silent >= task.limit then
        local reason = string.format('delivered %d times without a verdict', silent)
        end_task(name, queue, id, task, 'dead', reason, nil)
    else
        return_task(name, queue, id, task)
    end
    write()
    save_queue(name, queue)
end

-- The session of an idle taker has ended.
local function drop_taker(session, name)
    local queue = queue_of(name)
    forget_taker(name, queue, session.name)
    save_queue(name, queue)
end

-- The session of a producer has ended, or it leaves -> released, left
local function drop_producer(_, place_name)
    local name, producer = parts(place_name)
    local queue, place = queue_of(name), row('n:' .. place_name)
    delete('n:' .. place_name)
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
local function expire_task(thing_name)
    local id, name = string.sub(thing_name, 1, 16), string.sub(thing_name, 17)
    local task = task_of(name, id)
    if not task.token then
        local queue = queue_of(name)
        step_out(name, queue, id, task)
        end_task(name, queue, id, task, 'expired', '', RECORD_LASTS)
        write()
        save_queue(name, queue)
    end
end
