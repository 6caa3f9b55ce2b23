-- Take from the groups in turn. The `want` lowest tags suffice: so many groups stand behind the last that is taken.
local numbers = require('numbers')
local queues = require('queues')
local takers = require('takers')
local tasks = require('tasks')

local turns = {}

-- Of equal tags the first by the bytes of the names, as Redis has it: `<` follows the locale of the server.
local function is_before(one, other)
    if one.tag ~= other.tag then
        return one.tag < other.tag
    end
    for i = 1, math.min(#one.name, #other.name) do
        local its_byte, other_byte = string.byte(one.name, i), string.byte(other.name, i)
        if its_byte ~= other_byte then
            return its_byte < other_byte
        end
    end
    return #one.name < #other.name
end

function turns.take_turns(queue, want, aging, lease, take_plain)
    local groups = require('groups')
    local left, pace = want, queues.paced[queue]
    tasks.write()
    local settings = groups.known_of(queue)
    groups.save_tags(queue)
    local line, at, names, heads = {}, 1, {}, {} -- `heads`: the first members of a group in `turns`
    local tags = call('ZRANGE', queue.key .. ':tags', 0, want - 1, 'WITHSCORES')
    for i = 1, #tags, 2 do
        names[#names + 1] = tags[i]
    end
    groups.read_groups(queue, names)
    for i, group_name in ipairs(names) do
        line[i] = groups.read_group(queue, group_name)
        line[i].tag = tonumber(tags[2 * i])
        line[i].saved = line[i].tag
    end

    -- The place in the order of the task of a group that is ready for longest, if that is long enough.
    local function place_of_elder(group)
        tasks.write()
        local usual = groups.first_members(queue, ':turns', group, 1, groups.USUAL, groups.USUAL .. ':')[1]
        local other = groups.first_members(queue, ':elders', group, 1)[1]
        local its, others = usual and sub(usual, -30), other and sub(other, -46, -17)
        local first = its and others and (its < others and its or others) or its or others
        if numbers.now - sub(first, 1, 16) > aging then
            return (first ~= its and sub(other, -16) or groups.USUAL) .. first
        end
    end

    local function next_place(group)
        if group.only ~= groups.UNKNOWN then
            return group.only
        elseif groups.is_pinned(settings, group) then
            local task_id = format('%014x', group.pinned)
            local priority = tonumber(call('HGET', queue.key .. ':' .. task_id, 'priority') or 0)
            return groups.rank_of(priority) .. format('%016d', call('ZSCORE', queue.key .. ':ages', task_id)) .. task_id
        end
        local elder = aging and place_of_elder(group)
        if elder then
            return elder
        end
        local some = heads[group]
        if not some or #some == some.taken then
            if some then
                tasks.write()
            end
            some = groups.first_members(queue, ':turns', group, aging and 1 or math.min(group.takeable, left, some and 32 or 1))
            heads[group], some.taken = some, 0
        end
        some.taken = some.taken + 1
        return sub(some[some.taken], -46)
    end

    -- A group stands in the line again, unless that is behind all from which a task will be taken.
    local function insert(group)
        local last = line[at + left - 1]
        if last and not is_before(group, last) then
            return
        end
        local from, to = at, #line + 1
        while from < to do
            local middle = math.floor((from + to) / 2)
            if is_before(line[middle], group) then
                from = middle + 1
            else
                to = middle
            end
        end
        table.insert(line, from, group)
    end

    while left > 0 and line[at] do
        local group = line[at]
        at = at + 1
        queues.set(queue, 'virtual', group.tag)
        group.tag, group.leased = group.tag + groups.turn_of(queue, group), group.leased + 1
        if group.name == '' then
            take_plain(1)
        else
            local place = next_place(group)
            groups.remove_from_order(queue, group, place)
            lease(sub(place, 33), sub(place, 17, 32))
        end
        left = left - 1
        local is_rated = group.name ~= '' and pace and pace.group_every > 0
        if is_rated then
            require('paces').start_in_group(queue, group)
        end
        groups.count_ready(queue, group.name, -1)
        if is_rated and group.takeable > 0 then
            takers.newly_takeable = takers.newly_takeable + 1
        end
        if group.tag then
            insert(group)
        end
    end
end

return turns
