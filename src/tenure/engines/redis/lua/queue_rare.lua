-- What is seldom done with a work queue.
--
-- `line` is a sorted set of the producers that wait, `producers` a hash of them and of those with reserved slots: how many
-- tasks, 1 if they are reserved, the session; `cursors` is a hash.

local function add(queue, field, number)
    set(queue, field, queue[field] + number)
end

-- The time and the id at the head of the delayed tasks.
local function first_delayed(queue)
    if queue.delayed > 0 then
        local head = call('ZRANGE', queue.key .. ':delayed', 0, 0, 'WITHSCORES')
        return tonumber(head[2]), head[1]
    end
end

-- A new earliest due time: one idle taker must know, to ask in time.
local function offer_sooner(queue, before)
    if queue.takers > 0 then
        local earliest = first_delayed(queue)
        if earliest and (not before or earliest < before) then
            offer_tasks(queue, 1)
        end
    end
end

-- producers

local function producer_item(name, producer)
    return 'producer ' .. name .. '\255' .. producer
end

local function room(queue)
    return queue.size - queue.tasks - queue.reserved
end

-- -> {count, reserved, session}
local function read_producer(queue, producer)
    local text = queue.producers + queue.reserved > 0 and call('HGET', queue.key .. ':producers', producer)
    if text then
        local count, reserved, session = match(text, '^(%d+) (%d) (.*)$')
        return {count = tonumber(count), reserved = reserved == '1', session = session}
    end
end

-- Reserve slots for the head of the producers' line, for as long as it fits; the sweep goes on where there are very many.
local function admit(queue)
    local admitted = 0
    while queue.producers > 0 do
        if admitted == 256 then
            call('SADD', P .. 'unadmitted', queue.name)
            return due_at(0)
        end
        admitted = admitted + 1
        local producer = call('ZRANGE', queue.key .. ':line', 0, 0)[1]
        local place = read_producer(queue, producer)
        if place.count > room(queue) then
            return
        end
        call('ZREM', queue.key .. ':line', producer)
        call('HSET', queue.key .. ':producers', producer, place.count .. ' 1 ' .. place.session)
        add(queue, 'producers', -1)
        add(queue, 'reserved', place.count)
        hint(process_of(place.session), queue.name, producer, 'room')
    end
end

-- A producer with slots or a place gives them up.
local function drop_producer(queue, producer, place)
    detach(place.session, producer_item(queue.name, producer))
    call('HDEL', queue.key .. ':producers', producer)
    if place.reserved then
        add(queue, 'reserved', -place.count)
    else
        call('ZREM', queue.key .. ':line', producer)
        add(queue, 'producers', -1)
    end
end

-- A producer leaves -> left, released, unknown
local function remove_producer(queue, producer)
    local place = read_producer(queue, producer)
    if not place then
        return 'unknown'
    end
    drop_producer(queue, producer, place)
    admit(queue)
    return place.reserved and 'released' or 'left'
end
