-- Pages of the tasks of a queue, of its groups, and of the entries of a task. ARGV is as in `scan.lua`.
local dead_letters = require('dead_letters')
local indexes = require('indexes')
local keys = require('keys')
local numbers = require('numbers')
local order = require('order')
local queues = require('queues')
local session_items = require('session_items')
local steps = require('steps')
local task_lists = require('task_lists')
local tasks = require('tasks')
local waits = require('waits')

local task_pages = {}

-- A task as it is listed. The state of an unfinished one, and since when, are given; nil for a record that has expired.
local function record(queue, task_id, state, since)
    local found = call('HMGET', queue.key .. ':' .. task_id, 'payload', 'priority', 'key', 'attempts', 'deliveries', 'result',
        'state', 'expires', 'ended', 'lease', 'progress', 'failure', 'meta', 'group', 'kin', 'deadline')
    local token, deliveries, attempts = match(found[10] or '', '^(%d+) %d+ %d+ %d* %d %d (%d+) (%d+)')
    local seq, ended = 0, nil
    if not state and (not found[7] or found[8] and tonumber(found[8]) <= numbers.now) then
        return
    elseif not state then
        ended, seq, token = dead_letters.ending_of(found[9])
    end
    local FAMILY = queue.key .. ':' .. task_id .. ':family'
    local tree = found[15] and call('HMGET', FAMILY, 'parent', 'parent_queue', 'unfinished', 'named') or {}
    return {
        seq, tonumber(task_id, 16), state or found[7], found[1] or '', tonumber(found[2] or 0), found[3],
        tonumber(attempts or found[4] or 0), tonumber(deliveries or found[5] or 0), found[6] or '',
        math.max(0, numbers.now - (ended or since)), (token or '') ~= '' and math.max(0, (ended or numbers.now) - token),
        found[11] or '', found[12] or '', found[13] or '', found[14] or '', tonumber(tree[1] or 0), tree[2] or '',
        tonumber(tree[3] or 0), tonumber(tree[4] or 0), found[16] and math.max(0, found[16] - numbers.now) or nil,
    }
end

-- Since when a task that is suspended or ending was ready, or shall be.
local function since_apart(queue, task_id)
    return tonumber(call('HGET', queue.key .. ':' .. task_id .. ':family', 'since'))
end

-- -> the task, if there is one, ask again in; gone
local function one_task(name, task_id)
    local queue = {name = name, key = P .. name}
    local task = tasks.read_task(queue, task_id)
    if not task then
        return {ARGV[3], {record(queue, task_id)}, '', waits.ask_again_in()}
    elseif ARGV[8] ~= '' then
        session_items.subscribe_once(ARGV[8], task.hash, 'follow')
        order.has_more(task.hash)
    end
    local last = not tasks.is_late(task) and tonumber(task.deadline or nil) or nil
    if task.token then
        return {ARGV[3], {record(queue, task_id, 'leased', tonumber(task.since))}, '', waits.ask_again_in(last)}
    elseif (task.kin or '1') ~= '1' then
        return {ARGV[3], {record(queue, task_id, task.kin, since_apart(queue, task_id))}, '', waits.ask_again_in(last)}
    end
    local due_time = tonumber(call('ZSCORE', queue.key .. ':delayed', task_id) or nil)
    local is_delayed = due_time and due_time > numbers.now
    local since = due_time or tonumber(order.since_of(queue, task))
    local one = record(queue, task_id, is_delayed and 'delayed' or 'waiting', since)
    local change = math.min(is_delayed and due_time or math.huge, tonumber(task.expires or math.huge))
    return {ARGV[3], {one}, '', waits.ask_again_in(change)}
end

function indexes.by_name.task(name)
    return one_task(name, task_lists.digits(ARGV[7]))
end

function indexes.by_name.keyed_task(name)
    return one_task(name, task_lists.digits(keys.owner_of({key = P .. name}, ARGV[7]) or 0))
end

local function browse_ended(queue, after, limit, states)
    after = tonumber(after) or 0
    local records, horizon = {}, math.huge
    for _, state in ipairs(states) do
        local count = 0
        local last = task_lists.walk_endings(queue, state, after, function(task_id, seq)
            local one = record(queue, task_id)
            if one then
                records[#records + 1], count = one, count + 1
            elseif state ~= 'dead' then -- the record has expired
                dead_letters.unlist_ending(queue, state, task_id, seq)
                local hash = queue.key .. ':' .. task_id
                if call('HEXISTS', hash, 'state') == 1 then -- else a page could delete a task
                    call('DEL', hash)
                end
            end
            return count > limit
        end)
        horizon = math.min(horizon, last or math.huge)
    end
    -- beyond the horizon some may be missing
    table.sort(records, function(one, other) return one[1] < other[1] end)
    while #records > 0 and records[#records][1] > horizon do
        records[#records] = nil
    end
    for i = #records, limit + 1, -1 do
        records[i], horizon = nil, records[i - 1][1]
    end
    return records, horizon < math.huge and format('%d', horizon) or ''
end

local function browse_waiting(queue, after, limit)
    local priority, since, task_id, group = match(after, '^(%-?%d+) (%d+) (%x+) ?(.*)$')
    local found = task_lists.waiting(queue, priority and {tonumber(priority), tonumber(since), task_id, group}, limit + 1)
    if not found then
        queues.save_queue(queue)
        steps.is_unfinished = true
        return
    end
    local records = {}
    for i = 1, math.min(#found, limit) do
        records[i] = record(queue, found[i][3], 'waiting', found[i][2])
    end
    local last = found[limit]
    return records, #found > limit and format('%d %d ', last[1], last[2]) .. last[3] .. ' ' .. last[4] or ''
end

local function browse_delayed(queue, after, limit)
    local key = queue.key .. ':delayed'
    local score, member = match(after, '^(%d+) (%x+)$')
    local start = score and task_lists.place_of(key, score, member) or call('ZCOUNT', key, '-inf', numbers.now)
    local found, records, last = task_lists.page_from(key, start, limit + 1), {}, 2 * limit
    for i = 1, math.min(#found, last), 2 do
        records[#records + 1] = record(queue, found[i], 'delayed', tonumber(found[i + 1]))
    end
    return records, #found > last and format('%d ', found[last]) .. found[last - 1] or ''
end

-- By token, which `after` is.
local function browse_leased(queue, after, limit)
    local found, records = {}, {}
    for _, session in ipairs(call('SMEMBERS', queue.key .. ':lessees')) do
        local some = call('ZRANGEBYSCORE', P .. session .. ' ' .. queue.name .. ':leases',
            '(' .. (after == '' and 0 or after), '+inf', 'WITHSCORES', 'LIMIT', 0, limit + 1)
        for i = 1, #some, 2 do
            found[#found + 1] = {tonumber(some[i + 1]), some[i]}
        end
    end
    table.sort(found, function(one, other) return one[1] < other[1] end)
    for i = 1, math.min(#found, limit) do
        local since = tonumber(match(call('HGET', queue.key .. ':' .. found[i][2], 'lease'), '^%d+ (%d+)'))
        records[i] = record(queue, found[i][2], 'leased', since)
    end
    return records, #found > limit and format('%d', found[limit][1]) or ''
end

-- Those that are suspended or ending, by id, which `after` is.
local function browse_apart(queue, after, limit, state)
    local found, records = call('ZRANGEBYSCORE', queue.key .. ':' .. state, '(' .. (after == '' and 0 or after), '+inf',
        'LIMIT', 0, limit + 1), {}
    for i = 1, math.min(#found, limit) do
        records[i] = record(queue, found[i], state, since_apart(queue, found[i]))
    end
    return records, #found > limit and format('%d', tonumber(found[limit], 16)) or ''
end

-- For each state how `after` looks, which is "" for the first page, and what reads a page.
local PAGES = {
    waiting = {'^%-?%d+ %d+ %x+ ', browse_waiting},
    delayed = {'^%d* ?%x*$', browse_delayed},
    leased = {'^%d*$', browse_leased},
    suspended = {'^%d*$', browse_apart, 'suspended'},
    ending = {'^%d*$', browse_apart, 'ending'},
    ended = {'^%d*$', browse_ended, {'done', 'dead', 'discarded', 'cancelled', 'expired'}},
}
for _, state in ipairs(PAGES.ended[3]) do
    PAGES[state] = {'^%d*$', browse_ended, {state}}
end

for state, page in pairs(PAGES) do
    indexes.by_name[state] = function(name)
        local after = ARGV[5]
        if after ~= '' and not match(after, page[1]) then
            return redis.error_reply('ERR no page ends at ' .. after)
        end
        local records, last = page[2](queues.read_queue(name), after, tonumber(ARGV[6]), page[3])
        return {state, records, last}
    end
end

-- The name, how many tasks are waiting, delayed and leased, the time until the next one may start, for how long the group is
-- held off, and the weight.
function indexes.by_name.groups(name)
    local sizes, limit, rows = P .. name .. ':sizes', tonumber(ARGV[6]), {}
    local score, last = match(ARGV[5], '^(%-%d+) (.*)$')
    local found = task_lists.page_from(sizes, score and task_lists.place_of(sizes, score, last) or 0, limit + 1)
    local queue = queues.read_queue(name)
    local weighted = require('groups').known_of(queue).weighted
    for i = 1, math.min(#found, 2 * limit), 2 do
        local group = require('groups').unpack_group(found[i], call('HGET', P .. name .. ':groups', found[i]))
        local starts_in = group.starts_at and require('paces').starts_in(group.starts_at) or 0
        local weight = weighted and tonumber(call('HGET', queue.key .. ':weights', group.name) or 1) or 1
        rows[#rows + 1] = {group.name, group.waiting, group.unfinished - group.waiting - group.leased, group.leased,
            starts_in, group.paced_at and starts_in or 0, weight * 1e6}
    end
    return {'groups', rows, #found > 2 * limit and found[2 * limit] .. ' ' .. found[2 * limit - 1] or ''}
end

-- The entries in a part of the names. A page ends with the entry that makes the values on it exceed ENTRY_BYTES.
local function page_of_entries(index, name, part, behind)
    local families = require('families')
    local ENTRY_BYTES, limit, size, rows = 4 * 2 ^ 20, tonumber(ARGV[6]), 0, {}
    local family = families.read_family({key = P .. name}, task_lists.digits(ARGV[7]))
    local from = ARGV[5] == '' and '[' .. part or '(' .. part .. ARGV[5]
    local names = call('ZRANGEBYLEX', family.names, from, '(' .. behind, 'LIMIT', 0, limit + 1)
    for i, its_name in ipairs(names) do
        if i > limit or size > ENTRY_BYTES then
            return {index, rows, sub(names[i - 1], 2)}
        end
        local entry, is_there = families.read_entry(family, sub(its_name, 2))
        if is_there then
            rows[#rows + 1], size = entry, size + #entry[4]
        end
    end
    return {index, rows, ''}
end

function indexes.by_name.entries(name)
    return page_of_entries('entries', name, 'n', 'o')
end

function indexes.by_name.unfinished_children(name)
    return page_of_entries('unfinished_children', name, 'u', 'v')
end

return task_pages
