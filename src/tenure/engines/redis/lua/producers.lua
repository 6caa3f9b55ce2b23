-- Producers that wait for room in a group; `groups.lua` says where they stand.
local changes = require('changes')
local order = require('order')
local queues = require('queues')
local session_items = require('session_items')

local producers = {}

-- In which group tasks have to wait for room: "" in none, nil for never. `of` is "=" and the group that they are all of, or
-- "+" if they are of several.
function producers.line_of(queue, of, count)
    local size = require('groups').known_of(queue).size
    if size == 0 then
        return ''
    elseif of ~= '+' and count <= size then
        return sub(of, 2)
    end
end

local function room_in(queue, group)
    return group.lined > 0 and 0 or require('groups').known_of(queue).size - group.unfinished - group.reserved
end

-- Whether there is room for so many tasks by group, of which the size is limited.
function producers.groups_have_room(queue, needs)
    for name, count in pairs(needs) do
        if name ~= '' and count > 0 and room_in(queue, require('groups').read_group(queue, name)) < count then
            return false
        end
    end
    return true
end

local function reserve_in(queue, group, count)
    require('groups').make_group(queue, group)
    group.reserved = group.reserved + count
    require('groups').tidy_group(queue, group)
end

local function line_member(place, producer)
    return require('groups').prefix_of(place.group) .. place.ordinal .. producer
end

-- A producer joins the line of a group if that is full; otherwise slots are reserved in it -> whether it joined
local function join_group(queue, producer, place)
    local group = require('groups').read_group(queue, place.group)
    require('groups').make_group(queue, group)
    place.ordinal = format('%016d', queue.line + 1)
    if room_in(queue, group) >= place.count then
        reserve_in(queue, group, place.count)
        return false
    end
    place.state = '2'
    queues.set(queue, 'line', queue.line + 1)
    group.lined = group.lined + 1
    require('groups').touch(require('groups').known_of(queue), group)
    queues.set(queue, 'lined', queue.lined + 1)
    call('ZADD', queue.key .. ':lines', 0, line_member(place, producer))
    return true
end

local function first_in_group(queue, group)
    local member = require('groups').first_members(queue, ':lines', group, 1)[1]
    local _, rest = require('groups').split_member(member)
    return sub(rest, 1, 16), sub(rest, 17)
end

local function leave_group(queue, producer, place)
    local group = require('groups').read_group(queue, place.group)
    if place.state == '2' then
        group.lined = group.lined - 1
        queues.set(queue, 'lined', queue.lined - 1)
        call('ZREM', queue.key .. ':lines', line_member(place, producer))
        require('groups').tidy_group(queue, group)
    else
        reserve_in(queue, group, -place.count)
    end
end

-- The producers that wait for room in a queue, or have slots reserved.
--
-- `line` is a sorted set of the producers that wait, `producers` a hash of them and of those with reserved slots: how many
-- tasks; 0 in the line, 1 if they are reserved, 2 in the line of a group; the session; and if they wait or have slots
-- reserved in a group, byte 255, their place in its line as 16 digits, and the group. `cursors` is a hash.

function producers.producer_item(name, producer)
    return 'producer ' .. name .. '\255' .. producer
end

local function room(queue)
    return queues.size_of(queue) - queue.tasks - queue.reserved
end

-- -> {count, state, session, group, ordinal}
function producers.read_producer(queue, producer)
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
    order.add(queue, 'line', 1)
    order.add(queue, 'producers', 1)
    call('ZADD', queue.key .. ':line', queue.line, producer)
    write_producer(queue, producer, place)
end

-- A producer begins to wait, in the line of the group that it needs room in, or in the queue's line.
function producers.new_producer(queue, producer, count, group, session)
    local place = {count = count, session = session, group = group, ordinal = ''}
    if group ~= '' and join_group(queue, producer, place) then
        write_producer(queue, producer, place)
    else
        join_queue_line(queue, producer, place)
    end
    return place
end

-- How far a producer is from the head of its line.
function producers.place_of_producer(queue, producer, place)
    local LINE = queue.key .. ':line'
    local own, head
    if place.state == '2' then
        own, head = place.ordinal, first_in_group(queue, require('groups').read_group(queue, place.group))
    else
        own, head = call('ZSCORE', LINE, producer), call('ZRANGE', LINE, 0, 0, 'WITHSCORES')[2]
    end
    return own - head + 1
end

-- Reserve slots for the head of the producers' line, for as long as it fits; the sweep goes on where there are very many.
function producers.admit(queue)
    local admitted = 0
    while queue.producers > 0 do
        if admitted == 256 then
            call('SADD', P .. 'unadmitted', queue.name)
            return changes.due_at(0)
        end
        admitted = admitted + 1
        local producer = call('ZRANGE', queue.key .. ':line', 0, 0)[1]
        local place = producers.read_producer(queue, producer)
        if place.count > room(queue) and queue.tasks + queue.reserved > 0 then
            return
        end
        call('ZREM', queue.key .. ':line', producer)
        place.state = '1'
        write_producer(queue, producer, place)
        order.add(queue, 'producers', -1)
        order.add(queue, 'reserved', place.count)
        session_items.hint(session_items.process_of(place.session), queue.name, producer, 'room')
    end
end

-- A producer with slots or a place gives them up.
function producers.drop_producer(queue, producer, place)
    session_items.detach(place.session, producers.producer_item(queue.name, producer))
    call('HDEL', queue.key .. ':producers', producer)
    if place.group ~= '' then
        leave_group(queue, producer, place)
    end
    if place.state == '1' then
        order.add(queue, 'reserved', -place.count)
    elseif place.state == '0' then
        call('ZREM', queue.key .. ':line', producer)
        order.add(queue, 'producers', -1)
    end
end

-- Let the first in a group's line join the queue's line, as many as fit and at most so many -> how many are left of
-- these; the sweep goes on where there are very many.
function producers.admit_in_group(queue, group, most)
    local size = require('groups').known_of(queue).size
    while group.lined > 0 and most > 0 do
        local _, producer = first_in_group(queue, group)
        local place, taken = producers.read_producer(queue, producer), group.unfinished + group.reserved
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
        changes.due_at(0)
    end
    return most
end

-- The same in all groups, and in the queue.
function producers.admit_everywhere(queue)
    local from, most = '-', 256
    while queue.lined > 0 and most > 0 do
        local member = call('ZRANGEBYLEX', queue.key .. ':lines', from, '+', 'LIMIT', 0, 1)[1]
        if not member then
            break
        end
        local group = require('groups').read_group(queue, (require('groups').split_member(member)))
        most = producers.admit_in_group(queue, group, most)
        from = '[' .. sub(require('groups').prefix_of(group.name), 1, -2) .. '\1'
    end
    producers.admit(queue)
end

-- Something was freed in a group, and so in the queue.
function producers.make_room(queue, name)
    local group = name ~= '' and require('groups').read_group(queue, name)
    if group and group.lined > 0 then
        producers.admit_in_group(queue, group, 256)
    end
    producers.admit(queue)
end

-- A producer leaves -> left, released, unknown
function producers.remove_producer(queue, producer)
    local place = producers.read_producer(queue, producer)
    if not place then
        return 'unknown'
    end
    producers.drop_producer(queue, producer, place)
    producers.make_room(queue, place.group)
    return place.state == '1' and 'released' or 'left'
end

return producers
