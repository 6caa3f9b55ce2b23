-- Groups that have one task, as most groups always have: they come, are taken from and go without `groups`, whose functions
-- are then not made. Once `groups` begins, this has been written, and does no more. All of this is of one queue.
local queues = require('queues')
local steps = require('steps')
local takers = require('takers')
local tasks = require('tasks')

local alone = {}

-- What a group with one task holds: what `turns` has of the task behind the group, and PADDING; LEASED while it is leased.
alone.PADDING = string.rep(' ', 19)
alone.LEASED = ''
alone.USUAL = format('%016d', 2 ^ 52) -- the rank of priority 0
local has_ended, of = false, nil -- whether `groups` has begun; the queue
local known_settings = {} -- queue -> the settings of its groups, as text
local new_names, new_tag = {}, nil -- names of groups that are not there, false once they are; the tag of a new group
local kept, gone = {}, {} -- for `groups`: names and what they hold; names
local tags, sizes, turns, ages = {}, {}, {}, {} -- for the sorted sets: scores and members
local taken_turns, taken_ages = {}, {} -- members that leave `turns` and `ages`

-- What the members of a group begin with, so that they are in the order of its bytes.
function alone.prefix_of(name)
    return (string.find(name, '\0', 1, true) and string.gsub(name, '%z', '\0\1') or name) .. '\0\0'
end

function alone.in_parts(command, key, some)
    for i = 1, #some, 2 * steps.most do
        call(command, key, unpack(some, i, math.min(i + 2 * steps.most - 1, #some)))
    end
end

function alone.settings_of(queue)
    local settings = known_settings[queue]
    if not settings then
        local _, _, _, _, _, _, limit, size, hold, weighted = queues.read_settings(queue)
        settings = {limit, size, hold, weighted ~= '0' and weighted}
        known_settings[queue] = settings
    end
    return settings
end

-- What `groups` has of these; false where there is no group.
function alone.read_packed(queue, names)
    local packed = {}
    for i = 1, #names, steps.most do
        for _, one in ipairs(call('HMGET', queue.key .. ':groups', unpack(names, i, math.min(i + steps.most - 1, #names)))) do
            packed[#packed + 1] = one
        end
    end
    return packed
end

function alone.flush()
    if of then
        local KEY = of.key
        alone.in_parts('HSET', KEY .. ':groups', kept)
        alone.in_parts('HDEL', KEY .. ':groups', gone)
        alone.in_parts('ZADD', KEY .. ':tags', tags)
        alone.in_parts('ZADD', KEY .. ':sizes', sizes)
        alone.in_parts('ZADD', KEY .. ':turns', turns)
        alone.in_parts('ZADD', KEY .. ':ages', ages)
        alone.in_parts('ZREM', KEY .. ':turns', taken_turns)
        alone.in_parts('ZREM', KEY .. ':ages', taken_ages)
        alone.in_parts('ZREM', KEY .. ':sizes', gone)
        kept, gone, tags, sizes, turns, ages, taken_turns, taken_ages = {}, {}, {}, {}, {}, {}, {}, {}
    end
    tasks.write()
end

function alone.finish()
    has_ended = true
    alone.flush()
end

-- Whether each of these groups is new, and its first task can be taken at once: then `put_first` puts it.
function alone.are_new(queue, names)
    of = queue
    if has_ended or queues.paced[queue] or queue.grouped == 0 and queue.tasks > 0 or alone.settings_of(queue)[4] then
        return false
    end
    local packed = alone.read_packed(queue, names)
    for i, name in ipairs(names) do
        if packed[i] or name == '' or new_names[name] ~= nil then
            return false
        end
        new_names[name] = true
    end
    new_tag = format('%.17g', queue.virtual + 1)
    return true
end

-- The first task of a group, with priority 0, is ready now -> false if `groups` has to do it.
function alone.put_first(queue, name, task_id)
    if has_ended or not new_names[name] then
        return false
    end
    local place, last, grouped = alone.USUAL .. NOW .. task_id, #kept, queue.grouped + 1
    new_names[name] = false
    kept[last + 1], kept[last + 2] = name, place .. alone.PADDING
    tags[last + 1], tags[last + 2] = new_tag, name
    sizes[last + 1], sizes[last + 2] = '-1', name
    turns[last + 1], turns[last + 2] = '0', alone.prefix_of(name) .. place
    ages[last + 1], ages[last + 2] = NOW, task_id
    queue.grouped, queue.changed.grouped, takers.newly_takeable = grouped, grouped, takers.newly_takeable + 1
    return true
end

-- Take the next tasks, at most so many, if each of the next groups has one task -> false if `groups` has to do it.
function alone.take_all(queue, most, lease)
    if has_ended or queues.paced[queue] then
        return false
    end
    local names, line = {}, call('ZRANGE', queue.key .. ':tags', 0, most - 1, 'WITHSCORES')
    for i = 1, #line, 2 do
        names[#names + 1] = line[i]
    end
    local packed = alone.read_packed(queue, names)
    for _, one in ipairs(packed) do
        if not one or #one ~= 65 then
            return false
        end
    end
    of = queue
    for i, name in ipairs(names) do
        local one, prefix, last = packed[i], alone.prefix_of(name), #taken_ages
        local since, task_id = sub(one, 17, 32), sub(one, 33, 46)
        kept[2 * last + 1], kept[2 * last + 2] = name, alone.LEASED
        taken_turns[last + 1], taken_ages[last + 1] = prefix .. sub(one, 1, 46), task_id
        if sub(one, 1, 16) ~= alone.USUAL then
            tasks.remove_soon(queue.key .. ':elders', prefix .. since .. task_id .. sub(one, 1, 16))
        end
        lease(task_id, since)
    end
    if #names > 0 then
        call('ZREMRANGEBYRANK', queue.key .. ':tags', 0, #names - 1)
        queues.set(queue, 'virtual', tonumber(line[#line]))
        takers.newly_takeable = takers.newly_takeable - #names
    end
    return true
end

-- The leased task of a group ends: the group goes with it -> false if `groups` has to do it.
function alone.end_last(queue, name)
    if has_ended or call('HGET', queue.key .. ':groups', name) ~= alone.LEASED then
        return false
    end
    of = queue
    gone[#gone + 1] = name
    queues.set(queue, 'grouped', queue.grouped - 1)
    if queue.grouped == 0 then
        queues.set(queue, 'virtual', 0)
        call('DEL', queue.key .. ':tags')
    end
    return true
end

-- Write what has changed of the groups of a queue.
function alone.save(queue)
    if has_ended then
        require('groups').save_groups(queue)
    else
        alone.flush()
    end
end

return alone
