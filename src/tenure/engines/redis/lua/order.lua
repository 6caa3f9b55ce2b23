-- The orders of tasks that do not go the usual way: with priorities, delays, retries or followers.
local numbers = require('numbers')
local queues = require('queues')
local session_items = require('session_items')
local takers = require('takers')
local tasks = require('tasks')
local watchers = require('watchers')

local order = {}

function order.add(queue, field, number)
    queues.set(queue, field, queue[field] + number)
end

function order.first_delayed(queue)
    if queue.delayed > 0 then
        local head = call('ZRANGE', queue.key .. ':delayed', 0, 0, 'WITHSCORES')
        return tonumber(head[2]), head[1]
    end
end

-- When more tasks can be taken, since a task is due or a pace allows it.
function order.first_due(queue)
    local ready_at, pace = order.first_delayed(queue), queues.paced[queue]
    local starts_at = pace and require('paces').pace_due(queue, pace)
    return ready_at and starts_at and math.min(ready_at, starts_at) or ready_at or starts_at
end

-- A new earliest due time: one idle taker must know, to ask in time.
function order.offer_sooner(queue, before)
    if queue.takers > 0 then
        local earliest = order.first_due(queue)
        if earliest and (not before or earliest < before) then
            takers.hint_takers(queue, 1)
        end
    end
end

-- A priority as a score: higher ones come first.
local function rank(task, since)
    return -task.priority, format('%016d', since) .. task.id
end

local function count_plain(queue, count)
    if queue.grouped > 0 then
        require('groups').count_ready(queue, '', count)
    else
        takers.newly_takeable = takers.newly_takeable + count
    end
end

-- Let a task that is not leased be ready or delayed; true if it is delayed.
function order.enqueue(queue, task, since)
    if tonumber(since) > numbers.now then
        tasks.add_soon(queue.key .. ':delayed', since, task.id)
        order.add(queue, 'delayed', 1)
        if task.group ~= '' then
            require('groups').mark_delayed(queue, task, true)
        end
        return true
    elseif task.group ~= '' then
        require('groups').enqueue(queue, task.group, task.priority, format('%016d', since), task.id)
        return false
    end
    count_plain(queue, 1)
    if task.priority == 0 then
        tasks.add_soon(queue.key .. ':ready', since, task.id)
    else
        tasks.add_soon(queue.key .. ':ranked', rank(task, since))
        tasks.add_soon(queue.key .. ':aged', since, task.id)
        order.add(queue, 'ranked', 1)
    end
    return false
end

-- Since when a task is ready, as 16 digits.
function order.since_of(queue, task)
    local name = task.group ~= '' and ':ages' or task.priority == 0 and ':ready' or ':aged'
    return format('%016d', call('ZSCORE', queue.key .. name, task.id))
end

function order.dequeue(queue, task)
    if call('ZREM', queue.key .. ':delayed', task.id) == 1 then
        order.add(queue, 'delayed', -1)
        if task.group ~= '' then
            require('groups').mark_delayed(queue, task, false)
        end
        return
    elseif task.group ~= '' then
        return require('groups').dequeue(queue, task, order.since_of(queue, task))
    end
    count_plain(queue, -1)
    if task.priority == 0 then
        call('ZREM', queue.key .. ':ready', task.id)
    else
        local _, member = rank(task, order.since_of(queue, task))
        call('ZREM', queue.key .. ':ranked', member)
        call('ZREM', queue.key .. ':aged', task.id)
        order.add(queue, 'ranked', -1)
    end
end

-- Move delayed tasks that are due to the ready ones, at most so many.
function order.promote(queue, most)
    while most > 0 and queue.delayed > 0 do
        local time, task_id = order.first_delayed(queue)
        if time > numbers.now then
            break
        end
        call('ZREM', queue.key .. ':delayed', task_id)
        order.add(queue, 'delayed', -1)
        local found = call('HMGET', queue.key .. ':' .. task_id, 'priority', 'group')
        local task = {id = task_id, priority = tonumber(found[1] or 0), group = found[2] or ''}
        if task.group ~= '' then
            require('groups').mark_delayed(queue, task, false)
        end
        order.enqueue(queue, task, time)
        most = most - 1
    end
    tasks.write()
end

-- Hint the sessions that follow a task, and those that wait for its end if it has ended.
function order.notify_task_watchers(queue, task, ended)
    local name = format('%d', tonumber(task.id, 16))
    if ended and task.watched then
        watchers.notify_watchers(task.hash, queue.name, name, 'finished')
    end
    if task.followed then
        watchers.notify_watchers(task.hash, queue.name, name, 'changed', 'follow')
    end
end

function order.notify_drained(queue)
    watchers.notify_watchers(queue.key .. ':queue', queue.name, '', 'drained')
    queue.watched = 0
end

-- A task that is in no order stands in one again; the caller offers what can be taken.
function order.requeue(queue, task, since)
    local before = queue.takers > 0 and order.first_due(queue)
    if task.followed then
        order.notify_task_watchers(queue, task)
    end
    if order.enqueue(queue, task, since) then
        tasks.write()
        order.offer_sooner(queue, before)
    end
end

-- A task has more fields than the usual ones: note it in its lease.
function order.has_more(hash)
    local text = call('HGET', hash, 'lease')
    if text then
        call('HSET', hash, 'lease', (string.gsub(text, '^(%d+ %d+ %d+ %d* %d) %d', '%1 1', 1)))
    end
end

-- Look at a task at that time since it expires or is late, or no more.
function order.look_at(queue, task, time)
    task.expires = time
    if time then
        call('HSET', task.hash, 'expires', time)
        call('ZADD', P .. 'expiring', time, task.id .. queue.name)
    else
        call('HDEL', task.hash, 'expires')
        call('ZREM', P .. 'expiring', task.id .. queue.name)
    end
end

-- Ask the holder of a task to cancel it, which has a record for `ttl` then; false if that was done before.
function order.request_stop(queue, task, ttl)
    if call('ZADD', P .. task.session .. ':stops', 'NX', numbers.id + 1, task.token .. ' ' .. queue.name) == 0 then
        return false
    end
    numbers.id = numbers.id + 1
    call('HSET', task.hash, 'stop', ttl or -1)
    order.has_more(task.hash)
    session_items.hint(session_items.process_of(task.session), queue.name, format('%d', task.token), 'stop')
    return true
end

-- A task whose lease was taken back stands in its order again.
function order.return_task(queue, task, since)
    call('HDEL', task.hash, 'lease', 'keep')
    call('HSET', task.hash, 'attempts', task.attempts, 'deliveries', task.deliveries)
    if task.keep then
        call('HSET', task.hash, 'keep', 1)
    end
    order.requeue(queue, task, since)
end

return order
