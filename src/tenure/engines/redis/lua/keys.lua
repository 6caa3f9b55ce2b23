-- The keys of tasks; `tasks.lua` says where they stand.
local numbers = require('numbers')
local queues = require('queues')
local tasks = require('tasks')

local keys = {}

local function hash_of(queue, task_id)
    return queue.key .. ':' .. format('%014x', task_id)
end

-- Until when a task has a key at least, and which; nothing if that is over.
local function kept(queue, key)
    local last, task_id = match(call('GET', queue.key .. '\255' .. key) or '', '^(%d+) (%d+)$')
    if last and tonumber(last) > numbers.now then
        return tonumber(last), tonumber(task_id)
    end
end

-- The task that has a key, and whether it has ended.
function keys.owner_of(queue, key)
    local task_id = call('HGET', queue.key .. ':keys', key)
    if task_id then
        return tonumber(task_id), false
    end
    local _, ended = kept(queue, key)
    return ended, true
end

-- Whether a task with this key is put beside the task that has the key, or no task has it; that task; and, if it has not
-- ended and is to be replaced, whether it is leased, or waits for its children or an entry, or has releases.
function keys.is_new(queue, key, on_duplicate)
    local owner, ended = keys.owner_of(queue, key)
    local replaces = on_duplicate == 'replace' and owner
    local found = replaces and not ended and call('HMGET', hash_of(queue, owner), 'lease', 'kin') or {}
    local kin = not found[1] and found[2]
    local awaited = kin == '1' and call('HMGET', hash_of(queue, owner) .. ':family', 'unfinished', 'held') or {}
    local waits = kin and (kin ~= '1' or (awaited[1] or 0) + (awaited[2] or 0) > 0)
    return not owner or replaces and (ended or found[1] or waits), owner, found[1] and 'leased' or waits and 'waits'
end

-- A task has a key for so long at least.
function keys.keep_key(queue, key, task_id, ttl)
    local last, former, its_id = numbers.now + ttl, kept(queue, key)
    if its_id == task_id then
        last = math.max(last, former)
    end
    local name, text = queue.key .. '\255' .. key, format('%d %d', last, task_id)
    if ARGV[1] == '' then
        call('SET', name, text, 'PXAT', format('%d', math.ceil(last / 1000)))
    else
        call('SET', name, text)
    end
    queues.set(queue, 'keep', math.max(queue.keep, last))
end

-- A new task has a key from now on. Its owner, which is leased or waits, does not go back; one that waits ends.
function keys.give_key(queue, key, task_id, ttl, owner, state)
    if state then
        call('HDEL', hash_of(queue, owner), 'key', 'first')
        call('HSETNX', hash_of(queue, owner), 'stop', '3600000000')
    end
    if state == 'waits' then
        require('families').cancel(queue, tasks.read_task(queue, format('%014x', owner)), 3600e6)
    end
    call('HSET', queue.key .. ':keys', key, task_id)
    if ttl ~= '' then
        keys.keep_key(queue, key, task_id, ttl)
    elseif owner then
        call('DEL', queue.key .. '\255' .. key)
    end
end

-- Remove a task that no taker holds from all orders and fields, since it is to become another one. Its group does not know
-- that one yet.
function keys.take_over(queue, task_id)
    tasks.write()
    local task = tasks.read_task(queue, format('%014x', task_id))
    local was_tried = task.attempts ~= '0' or task.deliveries ~= '0'
    task.first = not was_tried and tonumber(call('HGET', task.hash, 'first') or nil) or numbers.now
    require('order').dequeue(queue, task)
    call('HDEL', task.hash, 'priority', 'expires', 'deadline', 'progress', 'failure', 'meta', 'group', 'keep', 'attempts',
        'deliveries')
    if task.expires then
        call('ZREM', P .. 'expiring', task.id .. queue.name)
    end
    if task.kin then
        require('families').begin_anew(queue, task)
    end
    return task
end

return keys
