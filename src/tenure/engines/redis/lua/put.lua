-- Puts tasks, for several producers; one that finds no room gets a place in the line.
--
-- ARGV: session, n, queue, number of requests, size, then the requests: producer, wait, cursor ("": none), its value, number
-- of tasks, and for each its payload and "", or "+" and then priority, delay, 1 if it has a key, the key, expires ("": never),
-- meta
-- -> put: one behind the other for each request how many tasks and for each its id, or {id} of the one whose duplicate it is;
-- "refused"; or {place in the line, ask again in}; gone

local session, n, name = ARGV[3], ARGV[4], ARGV[5]
local object = name .. ':put'
-- include answer_known
if known then
    -- include answer_keep
    return known
end

local queue = read_queue(name)
local next_argument, answer, next_id, ready, delayed = 8, {'put'}, nil, 0, 0

local function twin_of(key)
    return tonumber(call('HGET', queue.key .. ':keys', key) or nil)
end

-- Read the next task, and put it unless it is only looked at; -> 1 if it is new
local function take_in(seen)
    local payload, plain = ARGV[next_argument], ARGV[next_argument + 1] == ''
    local priority, delay, keyed, key, expires, meta = '0', '0', false, nil, '', ''
    if plain then
        next_argument = next_argument + 2
    else
        priority, delay, keyed = ARGV[next_argument + 2], ARGV[next_argument + 3], ARGV[next_argument + 4] == '1'
        key, expires, meta = ARGV[next_argument + 5], ARGV[next_argument + 6], ARGV[next_argument + 7]
        next_argument = next_argument + 8
    end
    local twin = keyed and twin_of(key)
    if seen then
        local is_new = not twin and not (keyed and seen[key])
        seen[key or ''] = keyed
        return is_new and 1 or 0
    elseif twin then
        answer[#answer + 1] = {twin}
        return 0
    end
    next_id = (next_id or call('HGET', P .. 'state', 'task') or 0) + 1
    answer[#answer + 1] = next_id
    local task_id = format('%012d', next_id)
    local hash = queue.key .. ':' .. task_id
    call('HSET', hash, 'payload', payload)
    if meta ~= '' then
        call('HSET', hash, 'meta', meta)
    end
    if priority ~= '0' then
        call('HSET', hash, 'priority', priority)
    end
    if keyed then
        call('HSET', hash, 'key', key)
        call('HSET', queue.key .. ':keys', key, next_id)
    end
    if expires ~= '' then
        call('HSET', hash, 'expires', now + expires)
        call('ZADD', P .. 'expiring', now + expires, task_id .. name)
        due_at(now + expires)
    end
    if priority == '0' and delay == '0' then
        add_soon(queue.key .. ':ready', NOW, task_id)
        ready = ready + 1
    elseif rare().line_up(queue, {id = task_id, priority = tonumber(priority)}, now + delay) then
        delayed = delayed + 1
    else
        ready = ready + 1
    end
    return 1
end

-- Put the tasks of a request.
local function accept(count, cursor, value)
    local before, new = queue.takers > 0 and queue.delayed > 0 and rare().first_delayed(queue), 0
    ready, delayed, answer[#answer + 1] = 0, 0, count
    for i = 1, count do
        new = new + take_in()
        if i % CAP == 0 then
            write() -- unpack has a limit
        end
    end
    set(queue, 'tasks', queue.tasks + new)
    set(queue, 'put', queue.put + new)
    if cursor ~= '' then
        call('HSET', queue.key .. ':cursors', cursor, value)
    end
    write()
    if queue.takers > 0 then
        offer_tasks(queue, ready)
        if delayed > 0 then
            rare().offer_sooner(queue, before)
        end
    end
end

-- How many of the next tasks are new.
local function count_new(count)
    local start, seen, new = next_argument, {}, 0
    for _ = 1, count do
        new = new + take_in(seen)
    end
    next_argument = start
    return new
end

local function pass_over(count)
    for _ = 1, count do
        next_argument = next_argument + (ARGV[next_argument + 1] == '' and 2 or 8)
    end
end

local function put_request()
    local producer, wait, cursor, value = ARGV[next_argument], ARGV[next_argument + 1] == '1',
        ARGV[next_argument + 2], ARGV[next_argument + 3]
    local count = tonumber(ARGV[next_argument + 4])
    next_argument = next_argument + 5
    local place = queue.producers + queue.reserved > 0 and rare().read_producer(queue, producer)
    if place and place.reserved then
        rare().drop_producer(queue, producer, place)
        accept(count, cursor, value)
        return rare().admit(queue)
    elseif not place then
        local room = queue.size - queue.tasks - queue.reserved
        if count == 0 or queue.producers == 0 and (room >= count or room >= count_new(count)) then
            return accept(count, cursor, value)
        end
        pass_over(count)
        if not wait or count > queue.size then
            answer[#answer + 1] = 'refused'
            return
        end
        set(queue, 'line', queue.line + 1)
        set(queue, 'producers', queue.producers + 1)
        rare().attach(session, 3e15, rare().producer_item(name, producer))
        call('ZADD', queue.key .. ':line', queue.line, producer)
        call('HSET', queue.key .. ':producers', producer, count .. ' 0 ' .. session)
    else
        pass_over(count)
    end
    local own = tonumber(call('ZSCORE', queue.key .. ':line', producer))
    local head = tonumber(call('ZRANGE', queue.key .. ':line', 0, 0, 'WITHSCORES')[2])
    answer[#answer + 1] = {own - head + 1, expiry - now}
end

set(queue, 'size', tonumber(ARGV[7]))
if queue.producers > 0 then
    rare().admit(queue)
end
for _ = 1, tonumber(ARGV[6]) do
    put_request()
end
if next_id then
    call('HSET', P .. 'state', 'task', next_id)
end
save_queue(queue)
keep()
known = answer
-- include answer_keep
return answer
