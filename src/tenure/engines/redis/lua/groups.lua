-- The groups of a queue, which take turns: `SetGroups` of the contract has the rules. They are made when a task or a
-- producer of a group comes, and `save_groups` follows any change.
--
-- `groups` is a hash of the groups, what it holds is packed, see PACKED. `tags` is a sorted set of those that can be taken
-- from, by tag; "" stands for the tasks without a group, whose other keys are those of a queue without groups. `sizes` is
-- one of those that have unfinished tasks, by how many (negated). `turns` is one of the ready tasks of all groups, and
-- `elders` of those with a priority; all scores are 0, so they are in the order of the members: the group, then the priority
-- as 16 digits, since when, and the id; in `elders` the priority comes last. `ages` has the ids of the ready tasks of all
-- groups, by since when. `lines` has the producers that wait for room in
-- a group: the group, the place as 16 digits, and the producer. `settings` is a hash {per_group, size, hold, weighted: 1 if
-- the hash `weights` has any}. Of the queue: `grouped`, how many groups there are; `lined`, how many producers are in
-- `lines`; `virtual`, the virtual time.

-- unfinished, waiting and leased tasks, reserved slots, producers in the line, the id of the bound task (0: none), which was
-- tried before and comes first, and whether that is delayed
local PACKED = '>I4I4I4I4I4I8B'
local MIDDLE = 2 ^ 52 -- the rank of priority 0; beyond twice that a number of Lua does not count by one
local USUAL = format('%016d', MIDDLE)

-- What the members of a group begin with, so that they are in the order of its bytes.
local function prefix_of(name)
    return string.gsub(name, '%z', '\0\1') .. '\0\0'
end

-- The name of the group of a member, and what follows.
local function split_member(member)
    local last = find(member, '\0\0', 1, true)
    return (string.gsub(sub(member, 1, last - 1), '%z\1', '\0')), sub(member, last + 2)
end

local function rank_of(priority)
    return priority == 0 and USUAL or format('%016d', MIDDLE - math.max(-MIDDLE, math.min(MIDDLE, priority)))
end

local function priority_of(rank)
    return MIDDLE - rank
end

-- The first members of a group, at most so many; `start` and `stop` are behind its prefix.
local function first_members(queue, key, group, most, start, stop)
    local from, to = '[' .. group.prefix .. (start or ''), stop and '(' .. group.prefix .. stop or '(' .. sub(group.prefix, 1, -2) .. '\1'
    return call('ZRANGEBYLEX', queue.key .. key, from, to, 'LIMIT', 0, most)
end

-- What is known of the groups in this script.
local function known_groups(queue)
    if not queue.groups then
        local found = call('HMGET', queue.key .. ':settings', 'per_group', 'size', 'hold', 'weighted')
        queue.groups = {
            of = {}, touched = {}, per_group = tonumber(found[1] or 0), size = tonumber(found[2] or 0), hold = found[3] == '1',
            weighted = found[4],
        }
    end
    return queue.groups
end

local function is_bound(settings, group)
    return group.bound > 0 and settings.per_group == 1 and settings.hold
end

-- How many tasks of a group can be taken now.
local function takeable(settings, group)
    if group.name == '' or settings.per_group == 0 then
        return group.waiting
    elseif group.resting and is_bound(settings, group) then
        return 0
    end
    return math.max(0, math.min(settings.per_group - group.leased, group.waiting))
end

local function unpack_group(name, packed)
    local group = {name = name, unfinished = 0, waiting = 0, leased = 0, reserved = 0, lined = 0, bound = 0, resting = false}
    if packed then
        local resting
        group.unfinished, group.waiting, group.leased, group.reserved, group.lined, group.bound, resting = struct.unpack(PACKED, packed)
        group.resting, group.is_there, group.is_stored, group.size = resting == 1, true, true, group.unfinished
    end
    return group
end

local function add_group(queue, known, name, packed)
    local group = unpack_group(name, packed)
    if name == '' then
        write()
        group.waiting = call('ZCARD', queue.key .. ':ready') + queue.ranked
    else
        group.prefix = prefix_of(name)
    end
    group.takeable = takeable(known, group)
    group.is_tagged = group.takeable > 0 and queue.grouped > 0
    group.has_tag = group.is_tagged -- in `tags`
    known.of[name] = group
    return group
end

local function read_group(queue, name)
    local known = known_groups(queue)
    return known.of[name] or add_group(queue, known, name, name ~= '' and call('HGET', queue.key .. ':groups', name))
end

-- Read many at once.
local function read_groups(queue, names)
    local known, missing = known_groups(queue), {}
    for _, name in ipairs(names) do
        if name ~= '' and not known.of[name] then
            missing[#missing + 1] = name
        end
    end
    for i = 1, #missing, CAP do
        local last = math.min(i + CAP - 1, #missing)
        for j, packed in ipairs(call('HMGET', queue.key .. ':groups', unpack(missing, i, last))) do
            add_group(queue, known, missing[i + j - 1], packed)
        end
    end
end

-- The part of a turn that a task of the group takes.
local function turn_of(queue, group)
    if not group.turn then
        group.turn = 1 / (queue.groups.weighted and tonumber(call('HGET', queue.key .. ':weights', group.name) or 1) or 1)
    end
    return group.turn
end

-- How many tasks of a group can be taken has changed, perhaps.
local function refresh(queue, group)
    local known = queue.groups
    local count = takeable(known, group)
    gained, group.takeable, known.touched[group] = gained + count - group.takeable, count, true
    if count == 0 then
        group.is_tagged, group.tag = false, nil
    elseif not group.is_tagged and queue.grouped > 0 then
        group.is_tagged, group.tag = true, queue.virtual + turn_of(queue, group)
    end
end

-- A group of which there was nothing.
local function make_group(queue, group)
    if group.is_there then
        return
    end
    group.is_there = true
    local plain = queue.grouped == 0 and read_group(queue, '')
    set(queue, 'grouped', queue.grouped + 1)
    if plain then
        refresh(queue, plain)
    end
end

-- Forget a group of which nothing is left.
local function tidy_group(queue, group)
    local known = queue.groups
    known.touched[group] = true
    if not group.is_there or group.unfinished + group.reserved + group.lined > 0 then
        return
    end
    group.is_there = false
    set(queue, 'grouped', queue.grouped - 1)
    if queue.grouped == 0 then
        set(queue, 'virtual', 0)
        call('DEL', queue.key .. ':tags')
        for _, other in pairs(known.of) do
            other.is_tagged, other.has_tag, other.tag, other.saved = false, false, nil, nil
        end
        known.of[''] = nil
    end
end

-- tasks

-- There is one unfinished task more.
local function come(queue, name)
    local group = read_group(queue, name)
    make_group(queue, group)
    group.unfinished = group.unfinished + 1
    queue.groups.touched[group] = true
end

-- A task that is in no order and not leased is unfinished no more.
local function go(queue, task)
    local group = read_group(queue, task.group)
    group.unfinished = group.unfinished - 1
    if group.bound == tonumber(task.id) then
        group.bound, group.resting = 0, false
    end
    refresh(queue, group)
    tidy_group(queue, group)
    if group.lined > 0 then
        rare().admit_in_group(queue, group, 256)
    end
end

-- So many tasks of a group are ready, more or less than before.
local function count_ready(queue, name, count)
    local group = read_group(queue, name)
    group.waiting = group.waiting + count
    refresh(queue, group)
    return group
end

-- The members of a ready task of a group in `turns` and, if it has a priority, `elders`.
local function members_of(group, priority, since, task_id)
    local rank = rank_of(priority)
    return group.prefix .. rank .. since .. task_id, rank ~= USUAL and group.prefix .. since .. task_id .. rank
end

-- A task of a group is ready.
local function enter(queue, task, since)
    local turn, elder = members_of(count_ready(queue, task.group, 1), task.priority, format('%016d', since), task.id)
    add_soon(queue.key .. ':turns', 0, turn)
    add_soon(queue.key .. ':ages', since, task.id)
    if elder then
        add_soon(queue.key .. ':elders', 0, elder)
    end
end

-- It is ready no more.
local function leave(queue, task)
    local turn, elder = members_of(count_ready(queue, task.group, -1), task.priority, task.since, task.id)
    call('ZREM', queue.key .. ':turns', turn)
    call('ZREM', queue.key .. ':ages', task.id)
    if elder then
        call('ZREM', queue.key .. ':elders', elder)
    end
end

-- A task is delayed now, or no more; then it comes into the order, or goes.
local function rest(queue, task, is_delayed)
    local group = read_group(queue, task.group)
    if group.bound == tonumber(task.id) then
        group.resting = is_delayed
    end
    if is_delayed then
        refresh(queue, group)
    end
end

local function count_unleased(queue, name)
    local group = read_group(queue, name)
    group.leased = group.leased - 1
    refresh(queue, group)
end

-- A task that was tried goes back: it stays ahead of its group where order is kept.
local function bind(queue, task)
    local known = known_groups(queue)
    if known.per_group == 1 and known.hold then
        local group = read_group(queue, task.group)
        group.bound, group.resting = tonumber(task.id), false
        refresh(queue, group)
    end
end

-- The turn of a task that went back untried was none.
local function refund(queue, name)
    local group = read_group(queue, name)
    if group.is_tagged then
        local tag = group.tag or tonumber(call('ZSCORE', queue.key .. ':tags', name))
        group.tag = math.max(queue.virtual, tag - turn_of(queue, group))
        queue.groups.touched[group] = true
    end
end

-- write

local function in_parts(command, key, some)
    for i = 1, #some, 2 * CAP do
        call(command, key, unpack(some, i, math.min(i + 2 * CAP - 1, #some)))
    end
end

local function save_tags(queue)
    local tags, gone = {}, {}
    for group in pairs(queue.groups.touched) do
        if group.is_tagged and group.tag ~= group.saved then
            tags[#tags + 1], tags[#tags + 2] = group.tag, group.name
            group.has_tag, group.saved = true, group.tag
        elseif not group.is_tagged and group.has_tag then
            gone[#gone + 1] = group.name
            group.has_tag, group.saved = false, nil
        end
    end
    in_parts('ZADD', queue.key .. ':tags', tags)
    in_parts('ZREM', queue.key .. ':tags', gone)
end

local function save_groups(queue)
    save_tags(queue)
    local groups, sizes, gone, empty = {}, {}, {}, {}
    for group in pairs(queue.groups.touched) do
        local name = group.name
        local size = group.unfinished > 0 and group.unfinished or nil
        if name ~= '' and group.is_there then
            groups[#groups + 1], groups[#groups + 2] = name, struct.pack(PACKED, group.unfinished, group.waiting, group.leased,
                group.reserved, group.lined, group.bound, group.resting and 1 or 0)
        elseif group.is_stored then
            gone[#gone + 1] = name
        end
        if name ~= '' and size ~= group.size then
            if size then
                sizes[#sizes + 1], sizes[#sizes + 2] = -size, name
            else
                empty[#empty + 1] = name
            end
        end
        group.is_stored, group.size = group.is_there, size
    end
    in_parts('HSET', queue.key .. ':groups', groups)
    in_parts('HDEL', queue.key .. ':groups', gone)
    in_parts('ZADD', queue.key .. ':sizes', sizes)
    in_parts('ZREM', queue.key .. ':sizes', empty)
    queue.groups.touched = {}
end
