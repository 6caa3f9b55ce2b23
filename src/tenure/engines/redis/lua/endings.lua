-- The ends of tasks. `write_endings` follows, which writes what many of them change.
-- Reads: add_soon, cold, due_at, families, groups, now, remove_soon, set, write

local PART = 4096 -- endings in a part of a list of records
local LEFT, NONE = {'stop', 'keep', 'expires', 'first', 'deadline'}, {}

-- Take back the lease, but for the field of the task, which ends for sure if it `ends`.
local function unlease(queue, task, ends)
    remove_soon(P .. task.session .. ' ' .. queue.name .. ':leases', task.id)
    if task.stop then
        remove_soon(P .. task.session .. ':stops', task.token .. ' ' .. queue.name)
    end
    if task.group == '' then
        return
    elseif ends and groups(true).end_last(queue, task.group) then
        task.group = ''
    else
        groups().count_unleased(queue, task.group)
    end
end

-- A task that has left its order leaves the unfinished tasks of its queue.
local function leave_queue(queue, task)
    if task.key then
        call('HDEL', queue.key .. ':keys', task.key)
    end
    if task.expires then
        call('ZREM', P .. 'expiring', task.id .. queue.name)
    end
    set(queue, 'tasks', queue.tasks - 1)
    if task.group ~= '' then
        groups().count_out(queue, task)
    end
    if queue.producers > 0 then
        cold().admit(queue)
    end
    if queue.watched == 1 and queue.tasks == 0 then
        cold().notify_drained(queue)
    end
end

local ending -- the number of the last ending in the shard, once it was read
local lists = {} -- state -> the part of its list that is written, part -> the list
local parts = {} -- what lists and parts were written, and when their last record expires; false: never
local texts = {} -- times as text

-- A task that has left its order and has no lease has ended; `ttl` nil keeps the record for good. `session_ttl` is the
-- ttl of the session that settled it.
local function end_task(queue, task, state, result, ttl, session_ttl)
    local expires = ttl and now + ttl
    local stays = state == 'dead' or not expires -- until it is removed
    leave_queue(queue, task)
    set(queue, state, queue[state] + 1)
    if session_ttl or not stays then -- what stays keeps its queue by being there
        set(queue, 'keep', math.max(queue.keep, stays and 0 or expires, session_ttl and now + 2 * session_ttl or 0))
    end
    if not expires and state ~= 'dead' then
        set(queue, 'kept', queue.kept + 1)
    elseif expires and state == 'dead' then
        add_soon(P .. 'expiring', expires, task.id .. queue.name)
        due_at(expires)
    end

    ending = (ending or call('HGET', P .. 'state', 'ending') or 0) + 1
    if not lists[state] or ending % PART == 0 then
        local list, number = queue.key .. ':' .. state, format('%08d', ending / PART)
        lists[state] = list .. ':' .. number
        add_soon(list, number, number)
        parts[list], parts[lists[state]] = parts[list] or 0, 0
        lists[lists[state]] = list
    end
    local part = lists[state]
    local list = lists[part]
    if stays then
        parts[list], parts[part] = false, false
    elseif parts[part] and parts[part] < expires then
        parts[list], parts[part] = parts[list] and math.max(parts[list], expires), expires
    end
    local seq = format('%d', ending)
    add_soon(part, seq, task.id)

    local payload = (task.keep or state == 'dead') and 'lease' or 'payload'
    call('HDEL', task.hash, 'lease', payload, unpack(task.more and LEFT or NONE))
    if expires then
        texts[expires] = texts[expires] or format('%016d', expires)
    end
    -- without a ttl the state is written twice, since a call cannot leave an argument out
    call('HSET', task.hash, 'state', state, 'result', result, 'ended', NOW .. ' ' .. seq, 'deliveries', task.deliveries,
        'attempts', task.attempts, expires and 'expires' or 'state', texts[expires or 0] or state)
    if not stays and ARGV[1] == '' then
        call('PEXPIREAT', task.hash, sub(texts[expires], 1, -4))
    end
    if task.watched or task.followed then
        cold().notify_task_watchers(queue, task, true)
    end
    if task.kin then
        families().ended(queue, task, state, result)
    end
end

-- Write what has gathered, and let the lists of records expire with their last ones.
local function write_endings()
    local left = {}
    if ARGV[1] == '' then
        for key in pairs(parts) do
            left[key] = call('PTTL', key)
        end
    end
    write()
    if ending then
        call('HSET', P .. 'state', 'ending', ending)
    end
    for key, before in pairs(left) do
        local time = parts[key]
        if time and (before == -2 or before >= 0 and now / 1000 + before < time / 1000) then
            call('PEXPIREAT', key, math.ceil(time / 1000))
        elseif not time and before >= 0 then
            call('PERSIST', key)
        end
        parts[key] = nil
    end
    lists = {}
end
