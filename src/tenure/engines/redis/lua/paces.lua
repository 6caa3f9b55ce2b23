-- Paces: when the next task of a group, or of a queue, may start: `rules/_paces.py`. A rate is the microseconds between two
-- starts (0: none) and the burst.
--
-- The field `pace` of a queue is a text: the rate of the queue; the rate of its groups; the time from which the next task of
-- the queue may start; whether a task could start at the last check ("-": the queue has no pace); the number of groups with
-- a pace; the time at which the first awaited pace is due (0: the set has to be read); a time before which every other pace
-- still has an effect; and the time of the next start by the rate alone while the queue is held off ("-": it is not).
-- `awaited` is a sorted set of groups, by the time from which their next task may start: the groups from which tasks could
-- be taken otherwise. `paces` is the same for all other groups with a pace. `held` is a hash of the groups that are held
-- off: until when, and the time of the next start by the rate alone; it counts while that end is the time of the group's
-- pace. 0 is a time without an effect.
-- Reads: CAP, groups, now, set, write
-- Writes: paced

local NEVER = 2 ^ 53

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

-- The time until a task may start.
local function starts_in(starts_at)
    return starts_at > now + 1 and math.ceil(starts_at - now) or 0
end

-- The time for which the pace of a group has an effect after the next start of a task.
local function slack(pace)
    return (pace.group_burst - 1) * pace.group_every
end

local function pace_of(queue)
    if not paced[queue] then
        call('DEL', queue.key .. ':paces', queue.key .. ':awaited', queue.key .. ':held')
        paced[queue] = {
            every = 0, burst = 1, group_every = 0, group_burst = 1, starts_at = 0, open = nil, paces = 0, first_due = NEVER,
            first_old = NEVER, at = {}, waits = {}, paced_at = nil,
        }
    end
    return paced[queue]
end

-- Write the pace of a queue. `paces` expires, since nobody may use the queue again.
local function save_pace(queue)
    local pace, text = paced[queue], ''
    if pace.open or pace.every + pace.group_every + pace.paces > 0 then
        text = format('%.17g %.17g %.17g %.17g %.17g %s %d %.17g %.17g %s', pace.every, pace.burst, pace.group_every,
            pace.group_burst, pace.starts_at, pace.open or '-', pace.paces, pace.first_due, pace.first_old,
            pace.paced_at and format('%.17g', pace.paced_at) or '-')
    end
    if text ~= '' or queue.pace ~= nil then
        set(queue, 'pace', text)
    end
    if pace.has_new and ARGV[1] == '' then
        local until_then = math.ceil(math.max(queue.keep, now + pace.group_every * pace.group_burst) / 1000) + 1
        call('PEXPIREAT', queue.key .. ':paces', until_then)
        call('PEXPIREAT', queue.key .. ':held', until_then)
    end
    pace.has_new = nil
end

-- The queue is kept until this time, and the paces of its groups no longer.
local function keep_pace(queue, time)
    set(queue, 'keep', math.max(queue.keep, math.ceil(time)))
    paced[queue].has_new = true
end

-- Check again whether a task of the queue may start.
local function open_queue(pace)
    if pace.starts_at + (pace.burst - 1) * pace.every <= now then
        pace.starts_at, pace.paced_at = 0, nil
    end
    pace.open = nil
    if pace.every > 0 or pace.starts_at > 0 then
        pace.open = math.min(1, possible_starts(pace.every, pace.burst, pace.starts_at))
    end
end

-- -> the time from which the next task of a group may start (nil: the group has no pace), and whether the pace is awaited
local function find_pace(queue, pace, name)
    local at = pace.at[name]
    if at == nil and pace.paces > 0 then
        at = call('ZSCORE', queue.key .. ':awaited', name)
        pace.waits[name] = at and true
        at = tonumber(at or call('ZSCORE', queue.key .. ':paces', name))
        pace.at[name] = at or false
    end
    return at or nil, pace.waits[name] or false
end

-- Keep the pace of a group in place of the former one.
local function keep_group_pace(queue, pace, name, starts_at, awaited)
    local former, was_awaited = find_pace(queue, pace, name)
    if not former then
        pace.paces = pace.paces + 1
    elseif was_awaited and former == pace.first_due then
        pace.first_due = 0
    end
    if former and was_awaited ~= awaited then
        call('ZREM', queue.key .. (was_awaited and ':awaited' or ':paces'), name)
    end
    call('ZADD', queue.key .. (awaited and ':awaited' or ':paces'), format('%.17g', starts_at), name)
    pace.at[name], pace.waits[name] = starts_at, awaited
    if awaited then
        pace.first_due = math.min(pace.first_due, starts_at)
    else
        pace.first_old, pace.has_new = math.min(pace.first_old, starts_at + slack(pace)), true
    end
end

-- The number of ready tasks that count as tasks to be taken; the last argument says whether a task has just started.
local function paced_count(queue, pace, name, count, has_started)
    local former, was_awaited = find_pace(queue, pace, name)
    if former or has_started then
        local starts_at = former or 0
        if has_started then
            starts_at = start_after(pace.group_every, pace.group_burst, starts_at, 1)
        end
        local awaited = count > 0 and possible_starts(pace.group_every, pace.group_burst, starts_at) == 0
        if starts_at ~= former or awaited ~= was_awaited then
            keep_group_pace(queue, pace, name, starts_at, awaited)
        end
        if awaited then
            return 0
        end
    end
    return pace.group_every > 0 and math.min(count, 1) or count
end

-- The same number at the last refresh of the group.
local function counted_before(queue, pace, name, count)
    local _, was_awaited = find_pace(queue, pace, name)
    if was_awaited then
        return 0
    end
    return pace.group_every > 0 and math.min(count, 1) or count
end

-- Forget the paces of these groups, which have no effect.
local function forget_paces(queue, pace, key, names)
    if #names > 0 then
        call('ZREM', queue.key .. key, unpack(names))
        call('HDEL', queue.key .. ':held', unpack(names))
        pace.paces = pace.paces - #names
    end
    for _, name in ipairs(names) do
        pace.at[name], pace.waits[name] = false, false
    end
end

-- This number of tasks of the queue has started.
local function start_in_queue(pace, count)
    if pace.every > 0 and count > 0 then
        pace.starts_at, pace.paced_at = start_after(pace.every, pace.burst, pace.starts_at, count), nil
    end
    open_queue(pace)
end

local function count_waiting(queue)
    write()
    return call('ZCARD', queue.key .. ':ready') + queue.ranked + call('ZCARD', queue.key .. ':turns')
end

-- The first time in one of the two orders, or NEVER.
local function first_start(queue, key)
    return tonumber(call('ZRANGE', queue.key .. key, 0, 0, 'WITHSCORES')[2]) or NEVER
end

-- The next time at which more of the ready tasks can be taken, which wait only for this time.
local function pace_due(queue, pace)
    if pace.open == 0 and count_waiting(queue) > 0 then
        return pace.starts_at
    end
    if pace.first_due == 0 then
        pace.first_due = first_start(queue, ':awaited')
    end
    return pace.first_due < NEVER and pace.first_due or nil
end

-- Open the queue and the groups whose time has come, and forget paces without an effect.
local function pass_time(queue)
    local pace, G = paced[queue], groups()
    if pace.first_due <= now + 1 then
        local before, names, old = now - slack(pace), {}, {}
        local some = call('ZRANGEBYSCORE', queue.key .. ':awaited', '-inf', now + 1, 'WITHSCORES', 'LIMIT', 0, CAP)
        for i = 1, #some, 2 do
            local name, at = some[i], tonumber(some[i + 1])
            names[#names + 1], pace.at[name], pace.waits[name] = name, at, true
            if at <= before then
                old[#old + 1] = name
            end
        end
        G.read_groups(queue, names)
        forget_paces(queue, pace, ':awaited', old)
        for _, name in ipairs(names) do
            local group = G.read_group(queue, name)
            if group.is_there then
                G.refresh(queue, group)
            elseif pace.at[name] then
                keep_group_pace(queue, pace, name, pace.at[name], false)
            end
        end
        pace.first_due = first_start(queue, ':awaited')
    end
    if pace.first_old <= now then
        local before = format('%.17g', now - slack(pace))
        forget_paces(queue, pace, ':paces',
            call('ZRANGEBYSCORE', queue.key .. ':paces', '-inf', before, 'LIMIT', 0, CAP))
        pace.first_old = first_start(queue, ':paces') + slack(pace)
    end
    open_queue(pace)
end

-- The time of the next start by the rate alone, of a group that is held off; else nil.
local function held_of(queue, name, starts_at)
    local held = starts_at > now + 1 and call('HGET', queue.key .. ':held', name)
    local ends_at, paced_at = match(held or '', '^(%S+) (%S+)$')
    return tonumber(ends_at) == starts_at and tonumber(paced_at) or nil
end

-- The two times of a pace that is held off until a time, or no longer, if that is not to come.
local function held_off(starts_at, paced_at, ends_at)
    local alone = starts_at > now + 1 and paced_at or starts_at
    if ends_at <= now then
        return alone, nil
    elseif ends_at > starts_at then
        return ends_at, alone
    end
    return starts_at, paced_at
end

-- Keep the two times of a group in place of the former ones, or forget its pace, if that never has an effect.
local function keep_times(queue, pace, name, starts_at, paced_at, awaited)
    if starts_at == 0 then
        local former, was_awaited = find_pace(queue, pace, name)
        if former then
            pace.first_due = was_awaited and former == pace.first_due and 0 or pace.first_due
            forget_paces(queue, pace, was_awaited and ':awaited' or ':paces', {name})
        end
        return
    end
    keep_group_pace(queue, pace, name, starts_at, awaited)
    if paced_at then
        call('HSET', queue.key .. ':held', name, format('%.17g %.17g', starts_at, paced_at))
        pace.has_new = true
    end
end

-- No task of a group, or of the queue for "", starts until this time; if that is not to come, it is held off no longer.
local function hold_off(queue, name, ends_at)
    if ends_at <= now and not paced[queue] then
        return
    end
    local pace, G = pace_of(queue), groups()
    G.known_of(queue).pace = pace
    if name == '' then
        pace.starts_at, pace.paced_at = held_off(pace.starts_at, pace.paced_at, ends_at)
        open_queue(pace)
        return ends_at > now and keep_pace(queue, pace.starts_at + (pace.burst - 1) * pace.every)
    end
    local group, former, awaited = G.read_group(queue, name), find_pace(queue, pace, name)
    local starts_at, paced_at = held_off(former or 0, former and held_of(queue, name, former), ends_at)
    keep_times(queue, pace, name, starts_at, paced_at, awaited)
    if group.is_there then
        G.refresh(queue, group)
    end
    if ends_at > now then
        keep_pace(queue, starts_at + slack(pace))
    end
end

-- The time of the next start at another rate: the tasks that have started count for as many as before.
local function at_rate(every, burst, starts_at, new_every, new_burst)
    if every == 0 or new_every == 0 then
        return 0
    end
    return now + math.min((starts_at - now) / every + burst - new_burst, 1) * new_every
end

-- The two times of a pace whose rate is another one now.
local function repaced(every, burst, starts_at, paced_at, new_every, new_burst)
    if not paced_at or starts_at <= now + 1 then
        return at_rate(every, burst, starts_at, new_every, new_burst), nil
    end
    local alone = at_rate(every, burst, paced_at, new_every, new_burst)
    if alone < starts_at then
        return starts_at, alone
    end
    return alone, nil
end

-- The rates of the queue and of its groups.
local function set_rates(queue, every, burst, group_every, group_burst)
    if not paced[queue] and every + group_every == 0 then
        return
    end
    local pace = pace_of(queue)
    local former_every, former_burst = pace.group_every, pace.group_burst
    if every ~= pace.every or burst ~= pace.burst then
        pace.starts_at, pace.paced_at = repaced(pace.every, pace.burst, pace.starts_at, pace.paced_at, every, burst)
    end
    pace.every, pace.burst, pace.group_every, pace.group_burst = every, burst, group_every, group_burst
    if pace.paces > 0 and (group_every ~= former_every or group_burst ~= former_burst) then
        for key, awaited in pairs({[':awaited'] = true, [':paces'] = false}) do
            local some = call('ZRANGE', queue.key .. key, 0, -1, 'WITHSCORES')
            for i = 1, #some, 2 do
                local name, at = some[i], tonumber(some[i + 1])
                pace.at[name], pace.waits[name] = at, awaited
                local starts_at, paced_at = repaced(former_every, former_burst, at, held_of(queue, name, at), group_every,
                    group_burst)
                keep_times(queue, pace, name, starts_at, paced_at, awaited)
            end
        end
    end
    pace.first_old = 0
    open_queue(pace)
end
