-- Puts tasks, for several producers; a producer that finds no room gets a place in the line.
--
-- ARGV: session, n, queue, number of requests, then the requests: producer, wait, cursor ("": none), its value, "="
-- and the value that it must have now ("": any), "=" and the group of all its tasks ("": of none of them, "+": several),
-- number of tasks, and for each its payload and "", or "=" and its group, or "+" and then priority, delay, 1 if it has a
-- key (or what becomes of it if another one has the key, the ttl of the key and the longest wait), the key, when it is
-- looked at ("": never) and the deadline, meta, group
-- -> put: the revision of the settings, then one behind the other for each request how many tasks and for each its id, or {id}
-- of the one whose duplicate it is; {value} of the cursor if that is another; "refused"; or {place in the line, ask again in};
-- gone
local changes = require('changes')
local numbers = require('numbers')
local queues = require('queues')
local replies = require('replies')
local shard = require('shard')
local steps = require('steps')
local takers = require('takers')
local tasks = require('tasks')

if numbers.is_due then
    return 'more'
end

local session, n, name = ARGV[3], ARGV[4], ARGV[5]
local object = name .. ':put'
local ttl, number, known = replies.cached_reply(session, n, object)
if not ttl then
    return 'gone'
elseif known then
    replies.cache_reply(session, n, object, ttl, number, known)
    return known
end

local queue = queues.read_queue(name)
local size, _, _, _, _, revision = queues.read_settings(queue)
local next_argument, answer, next_id, delayed = 7, {'put', revision}, nil, 0
size = tonumber(size)
local put_first, flush -- put the tasks of new groups, if all groups of the request are new; nil otherwise

local function read_new_task()
    local at, more = next_argument, ARGV[next_argument + 1]
    if more ~= '+' then
        next_argument = at + 2
        return ARGV[at], sub(more, 2), '0', '0', '0', '', '', ''
    end
    next_argument = at + 9
    return ARGV[at], ARGV[at + 8], ARGV[at + 2], ARGV[at + 3], ARGV[at + 4], ARGV[at + 5], ARGV[at + 6], ARGV[at + 7]
end

local function skip_tasks(count)
    for _ = 1, count do
        read_new_task()
    end
end

-- What becomes of a new task whose key another task may have -> the task that it replaces, or false, when it counts as put,
-- its delay, the ttl of the key, and as `is_new`; nil if it is not put
local function claim_key(key, keyed, delay)
    local on_duplicate, key_ttl, longest = match(keyed, '^(%a+) (%-?%d*) (%-?%d*)$')
    local is_new, owner, state = require('keys').is_new(queue, key, on_duplicate)
    local former, first = false, numbers.now
    if not is_new and on_duplicate ~= 'replace' then
        answer[#answer + 1] = on_duplicate == 'keep' and owner or {owner}
        return
    elseif not is_new then
        former = require('keys').take_over(queue, owner)
        first = former.first
        if key_ttl ~= '' then
            require('keys').keep_key(queue, key, owner, key_ttl)
        end
    end
    if (longest or '') ~= '' then
        delay = format('%d', math.max(0, math.min(delay, first + longest - numbers.now)))
    end
    return former, first, delay, key_ttl or '', owner, state
end

-- Put a task -> 1 if it is new
local function put_task(payload, group, priority, delay, keyed, key, expires, meta)
    local former, first, key_ttl, owner, state = false, nil, nil, nil, nil
    if keyed ~= '0' then
        former, first, delay, key_ttl, owner, state = claim_key(key, keyed, delay)
        if former == nil then
            return 0
        end
    end
    if not former then
        next_id = next_id and next_id + 1 or math.max(shard.token + 1, numbers.now)
    end
    local task_id = former and former.id or format('%014x', next_id)
    answer[#answer + 1] = former and tonumber(task_id, 16) or next_id
    local hash, is_first = queue.key .. ':' .. task_id, false
    if group == '' then
        call('HSET', hash, 'payload', payload)
    else
        call('HSET', hash, 'payload', payload, 'group', group)
        is_first = put_first and not former and delay == '0' and priority == '0' and put_first(queue, group, task_id)
        if not is_first then
            require('groups').count_in(queue, group)
        end
    end
    if meta ~= '' then
        call('HSET', hash, 'meta', meta)
    end
    if priority ~= '0' then
        call('HSET', hash, 'priority', priority)
    end
    if keyed ~= '0' then
        call('HSET', hash, 'key', key, 'first', format('%d', first))
        if not former then
            require('keys').give_key(queue, key, next_id, key_ttl, owner, state)
        elseif former.group ~= '' then
            require('groups').count_out(queue, former)
        end
    end
    if expires ~= '' then
        local looked_at, deadline = match(expires, '^(%S+) ?(%S*)$')
        call('HSET', hash, 'expires', numbers.now + looked_at)
        call('ZADD', P .. 'expiring', numbers.now + looked_at, task_id .. name)
        changes.due_at(numbers.now + looked_at)
        if deadline ~= '' then
            call('HSET', hash, 'deadline', numbers.now + deadline)
        end
    end
    if is_first then
        return 1
    elseif delay == '0' and group ~= '' then
        require('groups').enqueue(queue, group, tonumber(priority), NOW, task_id)
    elseif delay == '0' and priority == '0' and queue.grouped == 0 then
        takers.newly_takeable = takers.newly_takeable + 1
        tasks.add_soon(queue.key .. ':ready', NOW, task_id)
    elseif require('order').enqueue(queue, {id = task_id, priority = tonumber(priority), group = group}, numbers.now + delay) then
        delayed = delayed + 1
    end
    if former then
        require('order').notify_task_watchers(queue, former)
        if queue.producers > 0 then
            require('producers').admit(queue)
        end
        return 0
    end
    return 1
end

local function accept_request(count, cursor, value, expected)
    local is_value = expected ~= '' and (call('HGET', queue.key .. ':cursors', cursor) or '')
    if is_value and '=' .. is_value ~= expected then
        answer[#answer + 1] = {is_value}
        skip_tasks(count)
        return
    end
    local before, new = queue.takers > 0 and (queue.delayed > 0 or queues.paced[queue]) and require('order').first_due(queue), 0
    delayed, answer[#answer + 1] = 0, count
    for i = 1, count do
        local more = put_task(read_new_task())
        queue.tasks, new = queue.tasks + more, new + more -- at once: a replacement lets producers in
        if i % steps.most == 0 then
            (put_first and flush or tasks.write)() -- unpack has a limit
        end
    end
    if new > 0 then
        queue.changed.tasks = queue.tasks
        queues.set(queue, 'put', queue.put + new)
    end
    if cursor ~= '' then
        if value ~= '' then
            call('HSET', queue.key .. ':cursors', cursor, value)
        else
            call('HDEL', queue.key .. ':cursors', cursor)
        end
    end
    tasks.write()
    if queue.takers > 0 then
        takers.offer_tasks(queue, takers.newly_takeable)
        if delayed > 0 or queues.paced[queue] then
            require('order').offer_sooner(queue, before)
        end
    end
    takers.newly_takeable = 0
end

-- How many of the next tasks are new, and how many of each group; the tasks stay the next ones.
local function count_new(count)
    local start, seen, needs, new = next_argument, {}, {}, 0
    for _ = 1, count do
        local _, group, _, _, keyed, key = read_new_task()
        local is_new = 1
        if keyed ~= '0' then
            is_new = not seen[key] and require('keys').is_new(queue, key, match(keyed, '^%a+')) and 1 or 0
            seen[key] = seen[key] or is_new == 1
        end
        new, needs[group] = new + is_new, (needs[group] or 0) + is_new
    end
    next_argument = start
    return new, needs
end

-- Whether there is room for the new ones among the next tasks.
local function has_room(count, of)
    local room = size - queue.tasks - queue.reserved
    local limited = of ~= '' and require('alone').settings_of(queue)[2] ~= '0'
    if queue.producers == 0 and not limited and room >= count then
        return true
    end
    local new, needs = count_new(count)
    return new == 0
        or queue.producers == 0 and room >= new and (not limited or require('producers').groups_have_room(queue, needs))
end

-- Read the groups of the next tasks at once; the tasks stay the next ones.
local function read_groups_of(count)
    local start, names = next_argument, {}
    for i = 1, count do
        local _, group = read_new_task()
        names[i] = group
    end
    next_argument = start
    local alone = require('alone')
    put_first, flush = alone.are_new(queue, names) and alone.put_first, alone.flush
    if not put_first then
        require('groups').read_groups(queue, names)
    end
end

local function put_request()
    local producer, wait, cursor, value = ARGV[next_argument], ARGV[next_argument + 1] == '1',
        ARGV[next_argument + 2], ARGV[next_argument + 3]
    local expected, of, count = ARGV[next_argument + 4], ARGV[next_argument + 5], tonumber(ARGV[next_argument + 6])
    next_argument = next_argument + 7
    local may_stand = queue.producers + queue.reserved > 0 or queue.grouped > 0 and queue.lined > 0
    local place = may_stand and require('producers').read_producer(queue, producer)
    if place and place.state == '1' then
        require('producers').drop_producer(queue, producer, place)
        accept_request(count, cursor, value, expected)
        return require('producers').make_room(queue, place.group)
    elseif not place and (count == 0 or has_room(count, of)) then
        put_first = nil
        if of == '+' or of ~= '' and count == 1 then
            read_groups_of(count)
        end
        return accept_request(count, cursor, value, expected)
    end
    skip_tasks(count)
    if not place then
        local group = of ~= '' and require('producers').line_of(queue, of, count) or of == '' and ''
        if not wait or count > size or not group then
            answer[#answer + 1] = 'refused'
            return
        end
        require('session_items').attach(session, 3e15, require('producers').producer_item(name, producer))
        place = require('producers').new_producer(queue, producer, count, group, session)
    end
    answer[#answer + 1] = {require('producers').place_of_producer(queue, producer, place), numbers.expiry - numbers.now}
end

if queue.producers > 0 then
    require('producers').admit(queue)
end
for _ = 1, tonumber(ARGV[6]) do
    put_request()
end
if next_id then
    shard.token = format('%016d', next_id)
end
if package.loaded.families then
    require('families').finish()
end
queues.save_queue(queue)
changes.save_numbers()
replies.cache_reply(session, n, object, ttl, number, answer)
return answer
