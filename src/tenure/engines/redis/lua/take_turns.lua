-- Take from the groups in turn. The `want` lowest tags suffice: so many groups stand behind the last that is taken.

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

local G, left = rare('groups'), want
write()
local settings = G.known_of(queue)
G.save_tags(queue)
local line, at, names, heads = {}, 1, {}, {} -- `heads`: the first members of a group in `turns`
local tags = call('ZRANGE', queue.key .. ':tags', 0, want - 1, 'WITHSCORES')
for i = 1, #tags, 2 do
    names[#names + 1] = tags[i]
end
G.read_groups(queue, names)
for i, name in ipairs(names) do
    line[i] = G.read_group(queue, name)
    line[i].tag = tonumber(tags[2 * i])
    line[i].saved = line[i].tag
end

local function take_out(group, priority, since, task_id)
    local turn, elder = G.members_of(group, priority, since, task_id)
    remove_soon(queue.key .. ':turns', turn)
    remove_soon(queue.key .. ':ages', task_id)
    if elder then
        remove_soon(queue.key .. ':elders', elder)
    end
    return task_id, since
end

-- The task of a group that is ready for longest, if that is long enough.
local function take_elder(group)
    write()
    local usual = G.first_members(queue, ':turns', group, 1, G.usual, G.usual .. ':')[1]
    local other = G.first_members(queue, ':elders', group, 1)[1]
    local its, others = usual and sub(usual, -28), other and sub(other, -44, -17)
    local first = its and others and (its < others and its or others) or its or others
    if now - sub(first, 1, 16) > aging then
        local priority = first ~= its and G.priority_of(sub(other, -16)) or 0
        return take_out(group, priority, sub(first, 1, 16), sub(first, 17))
    end
end

-- -> the id of the next task, and since when it is ready
local function take_first(group)
    if G.is_bound(settings, group) then
        local task_id = format('%012d', group.bound)
        local found = call('HMGET', queue.key .. ':' .. task_id, 'priority', 'ready')
        return take_out(group, tonumber(found[1] or 0), found[2], task_id)
    end
    local task_id, since
    if aging then
        task_id, since = take_elder(group)
    end
    if task_id then
        return task_id, since
    end
    local some = heads[group]
    if not some or #some == some.taken then
        if some then
            write()
        end
        some = G.first_members(queue, ':turns', group, aging and 1 or math.min(group.takeable, left, 32))
        heads[group], some.taken = some, 0
    end
    some.taken = some.taken + 1
    local member = some[some.taken]
    task_id, since = sub(member, -12), sub(member, -28, -13)
    if sub(member, -44, -29) ~= G.usual then
        return take_out(group, G.priority_of(sub(member, -44, -29)), since, task_id)
    end
    remove_soon(queue.key .. ':turns', member)
    remove_soon(queue.key .. ':ages', task_id)
    return task_id, since
end

-- A group stands in the line again.
local function insert(group)
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
    set(queue, 'virtual', group.tag)
    group.tag, group.leased = group.tag + G.turn_of(queue, group), group.leased + 1
    if group.name == '' then
        take_plain(1)
    else
        local task_id, since = take_first(group)
        lease(task_id, since)
    end
    left = left - 1
    G.count_ready(queue, group.name, -1)
    if group.tag then
        insert(group)
    end
end
