-- Producers that wait for room in a group; `groups.lua` says where they stand.
-- Reads: groups, set

-- In which group tasks have to wait for room: "" in none, nil for never. `of` is "=" and the group that they are all of, or
-- "+" if they are of several.
local function line_of(queue, of, count)
    local size = groups().known_of(queue).size
    if size == 0 then
        return ''
    elseif of ~= '+' and count <= size then
        return sub(of, 2)
    end
end

local function room_in(queue, group)
    return group.lined > 0 and 0 or groups().known_of(queue).size - group.unfinished - group.reserved
end

-- Whether there is room for so many tasks by group, of which the size is limited.
local function groups_have_room(queue, needs)
    for name, count in pairs(needs) do
        if name ~= '' and count > 0 and room_in(queue, groups().read_group(queue, name)) < count then
            return false
        end
    end
    return true
end

local function reserve_in(queue, group, count)
    groups().make_group(queue, group)
    group.reserved = group.reserved + count
    groups().tidy_group(queue, group)
end

local function line_member(place, producer)
    return groups().prefix_of(place.group) .. place.ordinal .. producer
end

-- A producer joins the line of a group if that is full; otherwise slots are reserved in it -> whether it joined
local function join_group(queue, producer, place)
    local group = groups().read_group(queue, place.group)
    groups().make_group(queue, group)
    place.ordinal = format('%016d', queue.line + 1)
    if room_in(queue, group) >= place.count then
        reserve_in(queue, group, place.count)
        return false
    end
    place.state = '2'
    set(queue, 'line', queue.line + 1)
    group.lined = group.lined + 1
    groups().touch(groups().known_of(queue), group)
    set(queue, 'lined', queue.lined + 1)
    call('ZADD', queue.key .. ':lines', 0, line_member(place, producer))
    return true
end

-- The first in the line of a group: its place, and its name.
local function first_in_group(queue, group)
    local member = groups().first_members(queue, ':lines', group, 1)[1]
    local _, rest = groups().split_member(member)
    return sub(rest, 1, 16), sub(rest, 17)
end

local function leave_group(queue, producer, place)
    local group = groups().read_group(queue, place.group)
    if place.state == '2' then
        group.lined = group.lined - 1
        set(queue, 'lined', queue.lined - 1)
        call('ZREM', queue.key .. ':lines', line_member(place, producer))
        groups().tidy_group(queue, group)
    else
        reserve_in(queue, group, -place.count)
    end
end
