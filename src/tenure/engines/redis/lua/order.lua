-- What is seldom done with tasks, or only when they do not go the usual way.

-- A priority as a score: higher ones come first.
local function rank(task, since)
    return -task.priority, format('%016d', since) .. task.id
end

-- So many tasks without a group are ready, more or less than before.
local function count_plain(queue, count)
    if queue.grouped > 0 then
        rare('groups').count_ready(queue, '', count)
    else
        gained = gained + count
    end
end

-- Let a task that is not leased be ready or delayed; true if it is delayed.
local function line_up(queue, task, since)
    if tonumber(since) > now then
        add_soon(queue.key .. ':delayed', since, task.id)
        add(queue, 'delayed', 1)
        if task.group ~= '' then
            rare('groups').rest(queue, task, true)
        end
        return true
    elseif task.group ~= '' then
        rare('groups').enter(queue, task.group, task.priority, format('%016d', since), task.id)
        return false
    end
    count_plain(queue, 1)
    if task.priority == 0 then
        add_soon(queue.key .. ':ready', since, task.id)
    else
        add_soon(queue.key .. ':ranked', rank(task, since))
        add_soon(queue.key .. ':aged', since, task.id)
        add(queue, 'ranked', 1)
    end
    return false
end

-- Since when a task is ready, as 16 digits.
local function since_of(queue, task)
    local order = task.group ~= '' and ':ages' or task.priority == 0 and ':ready' or ':aged'
    return format('%016d', call('ZSCORE', queue.key .. order, task.id))
end

-- Take a task that is not leased out of where it stands.
local function step_out(queue, task)
    if call('ZREM', queue.key .. ':delayed', task.id) == 1 then
        add(queue, 'delayed', -1)
        if task.group ~= '' then
            rare('groups').rest(queue, task, false)
        end
        return
    elseif task.group ~= '' then
        return rare('groups').leave(queue, task, since_of(queue, task))
    end
    count_plain(queue, -1)
    if task.priority == 0 then
        call('ZREM', queue.key .. ':ready', task.id)
    else
        local _, member = rank(task, since_of(queue, task))
        call('ZREM', queue.key .. ':ranked', member)
        call('ZREM', queue.key .. ':aged', task.id)
        add(queue, 'ranked', -1)
    end
end

-- Move delayed tasks that are due to the ready ones, at most so many.
local function promote(queue, most)
    while most > 0 and queue.delayed > 0 do
        local time, task_id = first_delayed(queue)
        if time > now then
            break
        end
        call('ZREM', queue.key .. ':delayed', task_id)
        add(queue, 'delayed', -1)
        local found = call('HMGET', queue.key .. ':' .. task_id, 'priority', 'group')
        local task = {id = task_id, priority = tonumber(found[1] or 0), group = found[2] or ''}
        if task.group ~= '' then
            rare('groups').rest(queue, task, false)
        end
        line_up(queue, task, time)
        most = most - 1
    end
    write()
end

-- Hint the sessions that follow a task, and those that wait for its end if it has ended.
local function announce(queue, task, ended)
    local name = format('%d', task.id)
    fire_if(ended and task.watched, task.hash, queue.name, name, 'finished')
    fire_if(task.followed, task.hash, queue.name, name, 'changed', 'follow')
end

-- A task that is in no order stands in one again; the caller offers what can be taken.
local function stand_again(queue, task, since)
    local before = queue.takers > 0 and first_delayed(queue)
    if task.followed then
        announce(queue, task)
    end
    if line_up(queue, task, since) then
        write()
        offer_sooner(queue, before)
    end
end

-- A task whose lease was taken back stands in its order again.
local function return_task(queue, task, since)
    call('HDEL', task.hash, 'lease', 'keep')
    call('HSET', task.hash, 'attempts', task.attempts, 'deliveries', task.deliveries)
    if task.keep then
        call('HSET', task.hash, 'keep', 1)
    end
    stand_again(queue, task, since)
end

-- records

-- The time at which a task ended, and the number of its ending, as its record has them.
local function ending_of(text)
    local time, seq = match(text, '^(%d+) (%d+)$')
    return tonumber(time), tonumber(seq)
end

local function unlist_ending(queue, state, task_id, seq)
    local list, number = queue.key .. ':' .. state, format('%08d', math.floor(seq / PART))
    call('ZREM', list .. ':' .. number, task_id)
    if call('EXISTS', list .. ':' .. number) == 0 then
        call('ZREM', list, number)
    end
end

-- A dead letter is no longer one: it goes, or becomes a task again.
local function leave_the_dead(queue, task_id, seq)
    call('ZREM', P .. 'expiring', task_id .. queue.name)
    unlist_ending(queue, 'dead', task_id, seq)
    add(queue, 'dead', -1)
end

local function purge_dead(queue, task_id, seq)
    leave_the_dead(queue, task_id, seq)
    call('DEL', queue.key .. ':' .. task_id)
    add(queue, 'purged', 1)
end
