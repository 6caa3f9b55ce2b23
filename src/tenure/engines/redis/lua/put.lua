-- Puts tasks, for several producers; one that finds no room gets a place in the line.
--
-- ARGV: session, n, queue, number of requests, size, then the requests: producer, wait, cursor ("": none), its value, "=" and
-- the value that it must have now ("": any), "=" and the group of all its tasks ("": of none of them, "+": several), number of
-- tasks, and for each its payload and "", or "=" and its group, or "+" and then priority, delay, 1 if it has a key (or
-- what becomes of it if another one has the key, the ttl of the key and the longest wait), the key, expires ("": never), meta, group
-- -> put: one behind the other for each request how many tasks and for each its id, or {id} of the one whose duplicate it is;
-- {value} of the cursor if that is another; "refused"; or {place in the line, ask again in}; gone

local session, n, name = ARGV[3], ARGV[4], ARGV[5]
local object = name .. ':put'
-- include cached_reply
if known then
    -- include cache_reply
    return known
end

local queue, size = read_queue(name)
local next_argument, answer, next_id, delayed = 8, {'put'}, nil, 0
local keys -- made for the first task with a key, as in rare.lua

-- Read the next task, and put it unless it is only looked at and counted for its group; -> 1 if it is new
local function take_in(seen, needs)
    local payload, how = ARGV[next_argument], ARGV[next_argument + 1]
    local priority, delay, keyed, key, expires, meta, group = '0', '0', '0', nil, '', '', ''
    if how == '' then
        next_argument = next_argument + 2
    elseif how ~= '+' then
        group, next_argument = sub(how, 2), next_argument + 2
    else
        priority, delay, keyed = ARGV[next_argument + 2], ARGV[next_argument + 3], ARGV[next_argument + 4]
        key, expires, meta, group = ARGV[next_argument + 5], ARGV[next_argument + 6], ARGV[next_argument + 7], ARGV[next_argument + 8]
        next_argument = next_argument + 9
    end
    local former, first, its_ttl
    if keyed ~= '0' then
        local on_duplicate, key_ttl, longest = match(keyed, '^(%a+) (%-?%d*) (%-?%d*)$')
        if not keys then
            -- include keys
            keys = {give = give, is_new = is_new, keep_key = keep_key, take_out = take_out}
        end
        local is_new, owner = keys.is_new(queue, key, on_duplicate)
        if seen then
            is_new = is_new and not seen[key]
            seen[key] = seen[key] or is_new
            needs[group] = (needs[group] or 0) + (is_new and 1 or 0)
            return is_new and 1 or 0
        elseif is_new then
            first, its_ttl = now, key_ttl or ''
        elseif on_duplicate == 'replace' then
            former = keys.take_out(queue, owner)
            first = former.first
            if key_ttl ~= '' then
                keys.keep_key(queue, key, owner, key_ttl)
            end
        else
            answer[#answer + 1] = on_duplicate == 'keep' and owner or {owner}
            return 0
        end
        if (longest or '') ~= '' then
            delay = format('%d', math.max(0, math.min(delay, first + longest - now)))
        end
    elseif seen then
        needs[group] = (needs[group] or 0) + 1
        return 1
    end
    if not former then
        next_id = (next_id or call('HGET', P .. 'state', 'task') or 0) + 1
    end
    local task_id = former and former.id or format('%012d', next_id)
    answer[#answer + 1] = former and tonumber(task_id) or next_id
    local hash = queue.key .. ':' .. task_id
    if group == '' then
        call('HSET', hash, 'payload', payload)
    else
        call('HSET', hash, 'payload', payload, 'group', group)
        rare('groups').come(queue, group)
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
            keys.give(queue, key, next_id, its_ttl)
        elseif former.group ~= '' then
            rare('groups').go(queue, former)
        end
    end
    if expires ~= '' then
        call('HSET', hash, 'expires', now + expires)
        call('ZADD', P .. 'expiring', now + expires, task_id .. name)
        due_at(now + expires)
    end
    if delay == '0' and group ~= '' then
        rare('groups').enter(queue, group, tonumber(priority), NOW, task_id)
    elseif delay == '0' and priority == '0' and queue.grouped == 0 then
        gained = gained + 1
        add_soon(queue.key .. ':ready', NOW, task_id)
    elseif rare().line_up(queue, {id = task_id, priority = tonumber(priority), group = group}, now + delay) then
        delayed = delayed + 1
    end
    if former then
        rare().announce(queue, former)
        if queue.producers > 0 then
            rare().admit(queue)
        end
        return 0
    end
    return 1
end

-- Put the tasks of a request.
local function accept(count, cursor, value, expected)
    local is_value = expected ~= '' and (call('HGET', queue.key .. ':cursors', cursor) or '')
    if is_value and '=' .. is_value ~= expected then
        answer[#answer + 1] = {is_value}
        -- include pass_over
        return
    end
    local before, former = queue.takers > 0 and queue.delayed > 0 and rare().first_delayed(queue), queue.tasks
    delayed, answer[#answer + 1] = 0, count
    for i = 1, count do
        queue.tasks = queue.tasks + take_in() -- at once: a replacement lets producers in
        if i % CAP == 0 then
            write() -- unpack has a limit
        end
    end
    if queue.tasks ~= former then
        queue.changed.tasks = queue.tasks
        set(queue, 'put', queue.put + queue.tasks - former)
    end
    if cursor ~= '' then
        call('HSET', queue.key .. ':cursors', cursor, value)
    end
    write()
    if queue.takers > 0 then
        offer_tasks(queue, gained)
        if delayed > 0 then
            rare().offer_sooner(queue, before)
        end
    end
    gained = 0
end

-- Whether there is room for those of the next tasks that are new.
local function has_room(count, of)
    local room, limited = queue.size - queue.tasks - queue.reserved, of ~= '' and rare('groups').known_of(queue).size > 0
    if queue.producers == 0 and not limited and room >= count then
        return true
    end
    local start, seen, needs, new = next_argument, {}, {}, 0
    for _ = 1, count do
        new = new + take_in(seen, needs)
    end
    next_argument = start
    return new == 0
        or queue.producers == 0 and room >= new and (not limited or rare().groups_have_room(queue, needs))
end

local function put_request()
    local producer, wait, cursor, value = ARGV[next_argument], ARGV[next_argument + 1] == '1',
        ARGV[next_argument + 2], ARGV[next_argument + 3]
    local expected, of, count = ARGV[next_argument + 4], ARGV[next_argument + 5], tonumber(ARGV[next_argument + 6])
    next_argument = next_argument + 7
    local may_stand = queue.producers + queue.reserved > 0 or queue.grouped > 0 and queue.lined > 0
    local place = may_stand and rare().read_producer(queue, producer)
    if place and place.state == '1' then
        rare().drop_producer(queue, producer, place)
        accept(count, cursor, value, expected)
        return rare().make_room(queue, place.group)
    elseif not place and (count == 0 or has_room(count, of)) then
        if of == '+' then
            -- include read_groups
        end
        return accept(count, cursor, value, expected)
    end
    -- include pass_over
    if not place then
        local group = of ~= '' and rare().line_of(queue, of, count) or of == '' and ''
        if not wait or count > queue.size or not group then
            answer[#answer + 1] = 'refused'
            return
        end
        rare().attach(session, 3e15, rare().producer_item(name, producer))
        place = rare().new_producer(queue, producer, count, group, session)
    end
    answer[#answer + 1] = {rare().place_of_producer(queue, producer, place), expiry - now}
end

queue.size = tonumber(ARGV[7])
if size ~= ARGV[7] then
    queue.changed.size = ARGV[7]
end
if queue.producers > 0 then
    rare().admit(queue)
end
for _ = 1, tonumber(ARGV[6]) do
    put_request()
end
if next_id then
    call('HSET', P .. 'state', 'task', next_id)
end
save_queue(queue)
keep()
known = answer
-- include cache_reply
return answer
