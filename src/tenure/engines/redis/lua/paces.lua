-- Paces: when the next task of a group, or of a queue, may start: `rules/_paces.py`. A rate is the microseconds between two
-- starts (0: none) and the burst.
--
-- The field `pace` of a queue is a text: the rate of the queue, the rate of its groups, when the next task of the queue may
-- start, whether one could when that was last looked at ("-": it has no pace), and how many groups have a pace. `paces` is
-- a sorted set of these groups by the time from which their next task may start, `awaited` one of those that could be taken
-- from otherwise.
-- Reads: CAP, now, set
-- Writes: paced

local function possible_starts(every, burst, starts_at)
    local first = math.max(starts_at, now - (burst - 1) * every)
    if first > now + 1 then
        return 0
    end
    return every > 0 and 1 + math.floor((now - first + 1) / every) or math.huge
end

local function start_after(every, burst, starts_at, count)
    return math.max(starts_at, now - (burst - 1) * every) + count * every
end

-- The seconds for which the pace of a group says something after the next start of a task.
local function slack(pace)
    return (pace.group_burst - 1) * pace.group_every
end

-- The pace of a queue has changed.
local function save_pace(queue, pace)
    set(queue, 'pace', format('%.17g %.17g %.17g %.17g %.17g %s %d', pace.every, pace.burst, pace.group_every,
        pace.group_burst, pace.starts_at, pace.open or '-', pace.paces))
end

local function pace_of(queue)
    if not paced[queue] then
        paced[queue] = {every = 0, burst = 1, group_every = 0, group_burst = 1, starts_at = 0, open = nil, paces = 0}
    end
    return paced[queue]
end

-- The queue is remembered until then: its groups keep their paces no longer.
local function keep_pace(queue, time)
    set(queue, 'keep', math.max(queue.keep, math.ceil(time)))
    if ARGV[1] == '' then
        call('PEXPIREAT', queue.key .. ':paces', math.ceil(queue.keep / 1000) + 1)
    end
end

-- Look anew at whether a task of the queue may start.
local function open_queue(queue, pace)
    if pace.starts_at + (pace.burst - 1) * pace.every <= now then
        pace.starts_at = 0
    end
    pace.open = nil
    if pace.every > 0 or pace.starts_at > 0 then
        pace.open = math.min(1, possible_starts(pace.every, pace.burst, pace.starts_at))
    end
    save_pace(queue, pace)
end

-- How many tasks that are ready count as such that can be taken.
local function paced_count(queue, pace, name, count)
    if pace.paces > 0 then
        local starts_at = tonumber(call('ZSCORE', queue.key .. ':paces', name))
        local awaited = starts_at and count > 0
            and possible_starts(pace.group_every, pace.group_burst, starts_at) == 0
        if awaited then
            call('ZADD', queue.key .. ':awaited', starts_at, name)
            return 0
        elseif starts_at then
            call('ZREM', queue.key .. ':awaited', name)
        end
    end
    return pace.group_every > 0 and math.min(count, 1) or count
end

-- The same as it was when the group was last refreshed.
local function counted_before(queue, pace, name, count)
    if count > 0 and pace.paces > 0 and call('ZSCORE', queue.key .. ':awaited', name) then
        return 0
    end
    return pace.group_every > 0 and math.min(count, 1) or count
end

local function set_pace(queue, pace, name, starts_at)
    pace.paces = pace.paces + call('ZADD', queue.key .. ':paces', format('%.17g', starts_at), name)
    if call('ZSCORE', queue.key .. ':awaited', name) then
        call('ZADD', queue.key .. ':awaited', format('%.17g', starts_at), name)
    end
    save_pace(queue, pace)
end

-- A task of a group has started, and groups have a rate.
local function start_in_group(queue, pace, name)
    local starts_at = tonumber(call('ZSCORE', queue.key .. ':paces', name) or 0)
    set_pace(queue, pace, name, start_after(pace.group_every, pace.group_burst, starts_at, 1))
end

-- So many tasks of the queue have started.
local function start_in_queue(queue, pace, count)
    if pace.every > 0 and count > 0 then
        pace.starts_at = start_after(pace.every, pace.burst, pace.starts_at, count)
    end
    open_queue(queue, pace)
end

local function count_waiting(queue)
    return call('ZCARD', queue.key .. ':ready') + queue.ranked + call('ZCARD', queue.key .. ':turns')
end

-- The next time at which more of the ready tasks can be taken, which only wait for it.
local function pace_due(queue, pace)
    if pace.open == 0 and count_waiting(queue) > 0 then
        return pace.starts_at
    end
    return pace.paces > 0 and tonumber(call('ZRANGE', queue.key .. ':awaited', 0, 0, 'WITHSCORES')[2]) or nil
end

-- Forget the first paces of groups that say nothing.
local function forget_paces(queue, pace)
    local PACES = queue.key .. ':paces'
    for _, name in ipairs(call('ZRANGEBYSCORE', PACES, '-inf', format('%.17g', now - slack(pace)), 'LIMIT', 0, CAP)) do
        if not call('ZSCORE', queue.key .. ':awaited', name) then
            call('ZREM', PACES, name)
        end
    end
    pace.paces = call('ZCARD', PACES)
    save_pace(queue, pace)
end
