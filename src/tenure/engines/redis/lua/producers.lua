-- The producers that wait for room in a queue, or have slots reserved.
--
-- `line` is a sorted set of the producers that wait, `producers` a hash of them and of those with reserved slots: how many
-- tasks; 0 in the line, 1 if they are reserved, 2 in the line of a group; the session; and if they wait or have slots
-- reserved in a group, byte 255, their place in its line as 16 digits, and the group. `cursors` is a hash.
-- Reads: add, detach, due_at, first_in_group, groups, hint, join_group, leave_group, process_of, reserve_in,
--     size_of

local function producer_item(name, producer)
    return 'producer ' .. name .. '\255' .. producer
end

local function room(queue)
    return size_of(queue) - queue.tasks - queue.reserved
end

-- -> {count, state, session, group, ordinal}
local function read_producer(queue, producer)
    local text = queue.producers + queue.reserved + queue.grouped > 0 and call('HGET', queue.key .. ':producers', producer)
    if text then
        local count, state, session, more = match(text, '^(%d+) (%d) ([^\255]*)\255?(.*)$')
        return {count = tonumber(count), state = state, session = session, ordinal = sub(more, 1, 16), group = sub(more, 17)}
    end
end

local function write_producer(queue, producer, place)
    local more = place.group == '' and '' or '\255' .. place.ordinal .. place.group
    call('HSET', queue.key .. ':producers', producer, place.count .. ' ' .. place.state .. ' ' .. place.session .. more)
end

-- A producer, new or from the line of a group, is the last in the line of the queue.
local function join_queue_line(queue, producer, place)
    place.state = '0'
    add(queue, 'line', 1)
    add(queue, 'producers', 1)
    call('ZADD', queue.key .. ':line', queue.line, producer)
    write_producer(queue, producer, place)
end

-- A producer begins to wait, in the line of the group that it needs room in, or in the queue's line.
local function new_producer(queue, producer, count, group, session)
    local place = {count = count, session = session, group = group, ordinal = ''}
    if group ~= '' and join_group(queue, producer, place) then
        write_producer(queue, producer, place)
    else
        join_queue_line(queue, producer, place)
    end
    return place
end

-- How far a producer is from the head of its line.
local function place_of_producer(queue, producer, place)
    local LINE = queue.key .. ':line'
    local own, head
    if place.state == '2' then
        own, head = place.ordinal, first_in_group(queue, groups().read_group(queue, place.group))
    else
        own, head = call('ZSCORE', LINE, producer), call('ZRANGE', LINE, 0, 0, 'WITHSCORES')[2]
    end
    return own - head + 1
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
        if place.count > room(queue) and queue.tasks + queue.reserved > 0 then
            return
        end
        call('ZREM', queue.key .. ':line', producer)
        place.state = '1'
        write_producer(queue, producer, place)
        add(queue, 'producers', -1)
        add(queue, 'reserved', place.count)
        hint(process_of(place.session), queue.name, producer, 'room')
    end
end

-- A producer with slots or a place gives them up.
local function drop_producer(queue, producer, place)
    detach(place.session, producer_item(queue.name, producer))
    call('HDEL', queue.key .. ':producers', producer)
    if place.group ~= '' then
        leave_group(queue, producer, place)
    end
    if place.state == '1' then
        add(queue, 'reserved', -place.count)
    elseif place.state == '0' then
        call('ZREM', queue.key .. ':line', producer)
        add(queue, 'producers', -1)
    end
end

-- Let the first in a group's line join the queue's line, as many as fit and at most so many -> how many are left of
-- these; the sweep goes on where there are very many.
local function admit_in_group(queue, group, most)
    local size = groups().known_of(queue).size
    while group.lined > 0 and most > 0 do
        local _, producer = first_in_group(queue, group)
        local place, taken = read_producer(queue, producer), group.unfinished + group.reserved
        if size > 0 and taken > 0 and place.count > size - taken then
            break
        end
        reserve_in(queue, group, place.count)
        leave_group(queue, producer, place)
        join_queue_line(queue, producer, place)
        most = most - 1
    end
    if most == 0 then
        call('SADD', P .. 'unadmitted', queue.name)
        due_at(0)
    end
    return most
end

-- The same in all groups, and in the queue.
local function admit_everywhere(queue)
    local from, most = '-', 256
    while queue.lined > 0 and most > 0 do
        local member = call('ZRANGEBYLEX', queue.key .. ':lines', from, '+', 'LIMIT', 0, 1)[1]
        if not member then
            break
        end
        local group = groups().read_group(queue, (groups().split_member(member)))
        most = admit_in_group(queue, group, most)
        from = '[' .. sub(groups().prefix_of(group.name), 1, -2) .. '\1'
    end
    admit(queue)
end

-- Something was freed in a group, and so in the queue.
local function make_room(queue, name)
    local group = name ~= '' and groups().read_group(queue, name)
    if group and group.lined > 0 then
        admit_in_group(queue, group, 256)
    end
    admit(queue)
end

-- A producer leaves -> left, released, unknown
local function remove_producer(queue, producer)
    local place = read_producer(queue, producer)
    if not place then
        return 'unknown'
    end
    drop_producer(queue, producer, place)
    make_room(queue, place.group)
    return place.state == '1' and 'released' or 'left'
end
