-- What is seldom done with tasks, or only when they do not go the usual way.

-- A priority as a score: higher ones come first.
local function rank(task, since)
    return -task.priority, format('%016d', since) .. task.id
end

-- Let a task that is not leased be ready or delayed; true if it is delayed.
local function line_up(queue, task, since)
    if tonumber(since) > now then
        add_soon(queue.key .. ':delayed', since, task.id)
        add(queue, 'delayed', 1)
        return true
    elseif task.priority == 0 then
        add_soon(queue.key .. ':ready', since, task.id)
    else
        add_soon(queue.key .. ':ranked', rank(task, since))
        add_soon(queue.key .. ':aged', since, task.id)
        add(queue, 'ranked', 1)
        call('HSET', queue.key .. ':' .. task.id, 'ready', since)
    end
    return false
end

-- Take a task that is not leased out of where it stands.
local function step_out(queue, task)
    if call('ZREM', queue.key .. ':delayed', task.id) == 1 then
        add(queue, 'delayed', -1)
    elseif task.priority == 0 then
        call('ZREM', queue.key .. ':ready', task.id)
    else
        local _, member = rank(task, task.since)
        call('ZREM', queue.key .. ':ranked', member)
        call('ZREM', queue.key .. ':aged', task.id)
        add(queue, 'ranked', -1)
    end
end

-- Move delayed tasks that are due to the ready ones, at most so many; -> how many
local function promote(queue, most)
    local moved = 0
    while moved < most and queue.delayed > 0 do
        local time, task_id = first_delayed(queue)
        if time > now then
            break
        end
        call('ZREM', queue.key .. ':delayed', task_id)
        add(queue, 'delayed', -1)
        local priority = tonumber(call('HGET', queue.key .. ':' .. task_id, 'priority') or 0)
        line_up(queue, {id = task_id, priority = priority}, time)
        moved = moved + 1
    end
    write()
    return moved
end

-- A task whose lease was taken back stands in its order again.
local function return_task(queue, task, since)
    local before = queue.takers > 0 and first_delayed(queue)
    call('HDEL', task.hash, 'lease', 'keep')
    call('HSET', task.hash, 'attempts', task.attempts, 'deliveries', task.deliveries)
    if task.keep then
        call('HSET', task.hash, 'keep', 1)
    end
    if line_up(queue, task, since) then
        write()
        offer_sooner(queue, before)
    else
        offer_tasks(queue, 1)
    end
end
