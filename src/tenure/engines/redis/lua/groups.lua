-- The groups of a queue, which take turns: `Settings` of the contract has the rules. `save_groups` follows any change.
--
-- `groups` is a hash of the groups, what it holds is packed, see PACKED and TIMED. `tags` is a sorted set of those that can be
-- taken from, by tag; "" stands for the tasks without a group, whose other keys are as in a queue without groups. `sizes` is
-- one of those that have unfinished tasks, by how many (negated). `turns` is one of the ready tasks of all groups, and
-- `elders` of those with a priority; all scores are 0, so they are in the order of the members: the group, then the priority
-- as 16 digits, since when, and the id; in `elders` the priority comes last. `ages` has the ids of the ready tasks of all
-- groups, by since when. `lines` has the producers that wait for room in a group: the group, the place as 16 digits, and the
-- producer. `weights` is a hash. Of the queue:
-- `grouped`, how many groups there are; `lined`, how many producers are in `lines`; `virtual`, the virtual time.
local alone = require('alone')
local queues = require('queues')
local takers = require('takers')
local tasks = require('tasks')

local groups = {}

alone.finish()

-- Unfinished, waiting and leased tasks, reserved slots, producers in the line, the id of the pinned task (0: none), which
-- was tried before and comes first, and whether that is delayed. Then what `turns` has of the only ready task, behind the
-- group, or UNKNOWN: the next task of a group with only one needs no search. Most groups have one task at a time, and
-- their packed form takes no packing: see `alone.lua`. Redis keeps values of more than 64 bytes in a hash table, however
-- few there are, instead of a list that it goes through.
local PACKED = '>I4I4I4I4I4I8Bc46'
-- The same with the time from which the next task of the group may start, and the time of this by the rate alone, while the
-- group is held off (else -1). The number that says whether the pinned task is delayed is greater by 2 if the group is closed
-- until that time.
local TIMED = PACKED .. 'dd'
groups.UNKNOWN = string.rep(' ', 46)
local PADDING, LEASED, in_parts = alone.PADDING, alone.LEASED, alone.in_parts
groups.USUAL = alone.USUAL
groups.prefix_of = alone.prefix_of
local MIDDLE = 2 ^ 52 -- the rank of priority 0; beyond twice that a number of Lua does not count by one
local known_groups = {} -- queue -> its settings, and the groups that were read

-- The name of the group of a member, and what follows.
function groups.split_member(member)
    local last = string.find(member, '\0\0', 1, true)
    return (string.gsub(sub(member, 1, last - 1), '%z\1', '\0')), sub(member, last + 2)
end

function groups.rank_of(priority)
    return priority == 0 and groups.USUAL or format('%016d', MIDDLE - math.max(-MIDDLE, math.min(MIDDLE, priority)))
end

function groups.priority_of(rank)
    return MIDDLE - rank
end

-- The first members of a group, at most so many; `from` and `to` are behind its prefix.
function groups.first_members(queue, key, group, most, from, to)
    local prefix = groups.prefix_of(group.name)
    return call('ZRANGEBYLEX', queue.key .. key, from and '[' .. prefix .. from or '[' .. prefix,
        to and '(' .. prefix .. to or '(' .. sub(prefix, 1, -2) .. '\1', 'LIMIT', 0, most)
end

function groups.known_of(queue)
    local known = known_groups[queue]
    if not known then
        local found = alone.settings_of(queue)
        known = {
            of = {}, touched = false, per_group = tonumber(found[1]), size = tonumber(found[2]), hold = found[3] == '1',
            weighted = found[4],
        }
        known_groups[queue] = known
    end
    return known
end

function groups.is_pinned(known, group)
    return group.pinned > 0 and known.per_group == 1 and known.hold
end

local function takeable(known, group)
    if known.per_group == 0 or group.name == '' then
        return group.waiting
    elseif group.pin_delayed and groups.is_pinned(known, group) then
        return 0
    end
    return math.max(0, math.min(known.per_group - group.leased, group.waiting))
end

-- A group as it is stored. Its tag is false if it has none, true while it is not known; `saved` is the tag in `tags`.
-- `next` is the group that was touched before it. `starts_at`, `paced_at` and `closed`, a time, are there where they count.
function groups.unpack_group(name, packed)
    local unfinished, waiting, leased, reserved, lined, pinned, bits, only = 0, 0, 0, 0, 0, 0, 0, groups.UNKNOWN
    local starts_at, paced_at
    if packed == LEASED then
        unfinished, leased = 1, 1
    elseif packed and #packed == 65 then
        unfinished, waiting, only = 1, 1, sub(packed, 1, 46)
    elseif packed and #packed == 75 then
        unfinished, waiting, leased, reserved, lined, pinned, bits, only = struct.unpack(PACKED, packed)
    elseif packed then
        unfinished, waiting, leased, reserved, lined, pinned, bits, only, starts_at, paced_at = struct.unpack(TIMED, packed)
    end
    -- 16 fields: a table of more takes twice the space
    local group = {
        name = name, packed = packed, is_there = packed and unfinished + reserved + lined > 0, size = unfinished, only = only,
        next = nil,
        unfinished = unfinished, waiting = waiting, leased = leased, reserved = reserved, lined = lined, pinned = pinned,
        pin_delayed = bits % 2 == 1, takeable = 0, tag = false, saved = false,
    }
    if starts_at then
        group.starts_at, group.paced_at = starts_at, paced_at >= 0 and paced_at or nil
        group.closed, group.is_idle = bits >= 2 and starts_at or nil, not group.is_there
    end
    return group
end

local function pack_group(group)
    local bits = group.pin_delayed and 1 or 0
    if group.starts_at then
        return struct.pack(TIMED, group.unfinished, group.waiting, group.leased, group.reserved, group.lined, group.pinned,
            bits + (group.closed and 2 or 0), group.only, group.starts_at, group.paced_at or -1)
    elseif group.unfinished == 1 and group.reserved + group.lined + group.pinned == 0 then
        if group.leased == 1 then
            return LEASED
        elseif group.only ~= groups.UNKNOWN then
            return group.only .. PADDING
        end
    end
    return struct.pack(PACKED, group.unfinished, group.waiting, group.leased, group.reserved, group.lined, group.pinned, bits,
        group.only)
end

-- A group with a rate counts for one task that can be taken.
local function allowed(queue, group, count)
    return queues.paced[queue] and queues.paced[queue].group_every > 0 and group.name ~= '' and math.min(count, 1) or count
end

local function add_group(queue, known, name, packed)
    local group = groups.unpack_group(name, packed)
    if name == '' then
        tasks.write()
        group.waiting = call('ZCARD', queue.key .. ':ready') + queue.ranked
    end
    group.takeable = group.closed and 0 or allowed(queue, group, takeable(known, group))
    group.tag = group.takeable > 0 and queue.grouped > 0
    group.saved = group.tag
    known.of[name] = group
    return group
end

function groups.read_group(queue, name)
    local known = known_groups[queue] or groups.known_of(queue)
    return known.of[name] or add_group(queue, known, name, name ~= '' and call('HGET', queue.key .. ':groups', name))
end

function groups.read_groups(queue, names)
    local known, missing = groups.known_of(queue), {}
    for _, name in ipairs(names) do
        if known.of[name] == nil and name ~= '' then
            missing[#missing + 1], known.of[name] = name, false
        end
    end
    for i, packed in ipairs(alone.read_packed(queue, missing)) do
        add_group(queue, known, missing[i], packed)
    end
end

-- The part of a turn that a task of the group takes.
function groups.turn_of(queue, group)
    if known_groups[queue].weighted and not group.turn then
        group.turn = 1 / (tonumber(call('HGET', queue.key .. ':weights', group.name) or 1) or 1)
    end
    return group.turn or 1
end

function groups.touch(known, group)
    if group.next == nil then
        group.next, known.touched = known.touched, group
    end
end

-- How many tasks of a group can be taken has changed, perhaps, or until when the group is closed.
function groups.refresh(queue, group)
    local known = known_groups[queue]
    local count = known.per_group == 0 and group.waiting or takeable(known, group)
    local closed = count > 0 and group.starts_at and require('paces').time_of(queue, group) or nil
    if closed ~= group.closed then
        require('paces').close_group(queue, group, closed)
    end
    count = closed and 0 or allowed(queue, group, count)
    takers.newly_takeable, group.takeable = takers.newly_takeable + count - group.takeable, count
    groups.touch(known, group)
    if count == 0 then
        group.tag = false
    elseif not group.tag and queue.grouped > 0 then
        group.tag = queue.virtual + groups.turn_of(queue, group)
    end
end

function groups.make_group(queue, group)
    if group.is_there then
        return
    end
    group.is_there = true
    if queue.grouped == 0 and queues.paced[queue] and queues.paced[queue].idle > 0 then
        call('PERSIST', queue.key .. ':idle')
        call('PERSIST', queue.key .. ':groups')
    end
    if group.is_idle then
        require('paces').end_idle(queue, group)
    end
    local plain = queue.grouped == 0 and groups.read_group(queue, '')
    queues.set(queue, 'grouped', queue.grouped + 1)
    if plain then
        groups.refresh(queue, plain)
    end
end

-- Forget a group of which nothing is left.
function groups.tidy_group(queue, group)
    local known = known_groups[queue]
    groups.touch(known, group)
    if not group.is_there or group.unfinished + group.reserved + group.lined > 0 then
        return
    end
    group.is_there = false
    if group.starts_at then
        require('paces').keep_idle(queue, group)
    end
    queues.set(queue, 'grouped', queue.grouped - 1)
    if queue.grouped == 0 then
        queues.set(queue, 'virtual', 0)
        call('DEL', queue.key .. ':tags')
        for _, other in pairs(known.of) do
            other.tag, other.saved = false, false
        end
        known.of[''] = nil
    end
end

-- tasks

-- There is one unfinished task more.
function groups.count_in(queue, name)
    local group = groups.read_group(queue, name)
    if not group.is_there then
        groups.make_group(queue, group)
    end
    group.unfinished = group.unfinished + 1
    groups.touch(known_groups[queue], group)
end

-- A task that is in no order and not leased is unfinished no more.
function groups.count_out(queue, task)
    local group = groups.read_group(queue, task.group)
    group.unfinished = group.unfinished - 1
    if group.pinned > 0 and group.pinned == tonumber(task.id, 16) then
        group.pinned, group.pin_delayed = 0, false
    end
    if group.waiting > 0 then
        groups.refresh(queue, group)
    end
    groups.tidy_group(queue, group)
    if group.lined > 0 then
        require('producers').admit_in_group(queue, group, 256)
    end
end

function groups.count_ready(queue, name, count)
    local group = groups.read_group(queue, name)
    group.waiting = group.waiting + count
    groups.refresh(queue, group)
    return group
end

-- A task of a group is ready since a time, which has 16 digits.
function groups.enqueue(queue, name, priority, since, task_id)
    local group, prefix, rank = groups.count_ready(queue, name, 1), groups.prefix_of(name), groups.rank_of(priority)
    local place = rank .. since .. task_id
    group.only = group.waiting == 1 and place or groups.UNKNOWN
    tasks.add_soon(queue.key .. ':turns', '0', prefix .. place)
    tasks.add_soon(queue.key .. ':ages', since, task_id)
    if rank ~= groups.USUAL then
        tasks.add_soon(queue.key .. ':elders', '0', prefix .. since .. task_id .. rank)
    end
end

-- A ready task goes out of the order; `place` is what `turns` has of it behind the group.
function groups.remove_from_order(queue, group, place)
    local prefix, rank, since_and_id = groups.prefix_of(group.name), sub(place, 1, 16), sub(place, 17)
    group.only = groups.UNKNOWN
    tasks.remove_soon(queue.key .. ':turns', prefix .. place)
    tasks.remove_soon(queue.key .. ':ages', sub(place, 33))
    if rank ~= groups.USUAL then
        tasks.remove_soon(queue.key .. ':elders', prefix .. since_and_id .. rank)
    end
end

function groups.dequeue(queue, task, since)
    groups.remove_from_order(queue, groups.count_ready(queue, task.group, -1), groups.rank_of(task.priority) .. since .. task.id)
    tasks.write()
end

-- A task is delayed now, or no more; then it comes into the order, or goes.
function groups.mark_delayed(queue, task, is_delayed)
    local group = groups.read_group(queue, task.group)
    if group.pinned == tonumber(task.id, 16) then
        group.pin_delayed = is_delayed
    end
    if is_delayed then
        groups.refresh(queue, group)
    end
end

-- A task is leased no more; then it comes into the order, or goes.
function groups.count_unleased(queue, name)
    local group = groups.read_group(queue, name)
    group.leased = group.leased - 1
end

-- A task that was tried goes back: it stays ahead of its group where order is kept, unless it is a child: the name of its
-- group begins with a zero byte.
function groups.pin(queue, task)
    local known = groups.known_of(queue)
    if known.per_group == 1 and known.hold and string.byte(task.group) ~= 0 then
        local group = groups.read_group(queue, task.group)
        group.pinned, group.pin_delayed = tonumber(task.id, 16), false
    end
end

-- The turn of a task that went back untried was none.
function groups.refund_turn(queue, name)
    local group = groups.read_group(queue, name)
    if group.tag then
        local tag = group.tag == true and tonumber(call('ZSCORE', queue.key .. ':tags', name)) or group.tag
        group.tag = math.max(queue.virtual, tag - groups.turn_of(queue, group))
        groups.touch(known_groups[queue], group)
    end
end

-- write

function groups.save_tags(queue)
    local tags, gone, last, group = {}, {}, 0, known_groups[queue].touched
    local tag, text
    while group do
        if group.tag ~= group.saved then
            if group.tag then
                if group.tag ~= tag then
                    tag, text = group.tag, format('%.17g', group.tag)
                end
                tags[last + 1], tags[last + 2], last = text, group.name, last + 2
            else
                gone[#gone + 1] = group.name
            end
            group.saved = group.tag
        end
        group = group.next
    end
    in_parts('ZADD', queue.key .. ':tags', tags)
    in_parts('ZREM', queue.key .. ':tags', gone)
end

function groups.save_groups(queue)
    local known = known_groups[queue]
    if not known then
        return
    end
    groups.save_tags(queue)
    local kept, sizes, gone, empty, last, group = {}, {}, {}, {}, 0, known.touched
    while group do
        local name, unfinished, packed = group.name, group.unfinished, group.packed
        if name ~= '' and (group.is_there or group.is_idle) then
            packed = pack_group(group)
            kept[last + 1], kept[last + 2], last = name, packed, last + 2
        elseif packed then
            gone[#gone + 1], packed = name, false
        end
        if unfinished ~= group.size then
            if unfinished > 0 then
                sizes[#sizes + 1], sizes[#sizes + 2] = unfinished == 1 and '-1' or -unfinished, name
            else
                empty[#empty + 1] = name
            end
        end
        group.packed, group.size = packed, unfinished
        group, group.next = group.next, nil
    end
    in_parts('HSET', queue.key .. ':groups', kept)
    in_parts('HDEL', queue.key .. ':groups', gone)
    in_parts('ZADD', queue.key .. ':sizes', sizes)
    in_parts('ZREM', queue.key .. ':sizes', empty)
    known.touched = false
end

return groups
