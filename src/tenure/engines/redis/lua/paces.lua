-- Paces: when the next task of a group, or of a queue, may start: `rules/_paces.py`. A rate is the microseconds between two
-- starts (0: none) and the burst.
--
-- The field `pace` of a queue is a text: the rate of the queue; the rate of its groups; the time from which the next task of
-- the queue may start; whether a task could start at the last check ("-": the queue has no pace); the time at which the first
-- closed group opens (0: the set has to be read); how many groups are idle; and the time of the next start by the rate alone
-- while the queue is held off ("-": it is not). The times of a group are in its record, see `groups.lua`. `closed` is a
-- sorted set of the groups from which nothing can be taken before a time, by that time. `idle` is one of those of which
-- nothing else is left, by the time from which their next task may start. 0 is a time without an effect.
local numbers = require('numbers')
local queues = require('queues')
local steps = require('steps')
local tasks = require('tasks')

local paces = {}

local NEVER = 2 ^ 53

function paces.possible_starts(every, burst, starts_at)
    local first = math.max(starts_at, numbers.now - (burst - 1) * every)
    if first > numbers.now + 1 then
        return 0
    end
    return every > 0 and 1 + math.floor((numbers.now - first + 1) / every) or math.huge
end

local function start_after(every, burst, starts_at, count)
    return math.max(starts_at, numbers.now - (burst - 1) * every) + count * every
end

function paces.starts_in(starts_at)
    return starts_at > numbers.now + 1 and math.ceil(starts_at - numbers.now) or 0
end

-- The time for which the time of a group has an effect after the next start of a task.
local function slack(pace)
    return (pace.group_burst - 1) * pace.group_every
end

local function pace_of(queue)
    if not queues.paced[queue] then
        queues.paced[queue] = {
            every = 0, burst = 1, group_every = 0, group_burst = 1, starts_at = 0, open = nil, opens_at = NEVER, idle = 0,
            paced_at = nil,
        }
    end
    return queues.paced[queue]
end

-- Forget idle groups whose time has no effect. Without others, all of them expire, since nobody may use the queue again; no
-- later than the queue, if that expires: a new one would put its groups beside them.
local function forget_idle(queue, pace)
    local before = format('%.17g', numbers.now - slack(pace))
    local names = call('ZRANGEBYSCORE', queue.key .. ':idle', '-inf', before, 'LIMIT', 0, steps.most)
    if #names > 0 then
        call('ZREM', queue.key .. ':idle', unpack(names))
        call('HDEL', queue.key .. ':groups', unpack(names))
    end
    pace.idle = call('ZCARD', queue.key .. ':idle')
    if pace.idle > 0 and queue.grouped == 0 and ARGV[1] == '' then
        local until_then = math.ceil(math.max(queue.keep, numbers.now + pace.group_every * pace.group_burst) / 1000)
        call('PEXPIREAT', queue.key .. ':idle', until_then)
        call('PEXPIREAT', queue.key .. ':groups', until_then)
    end
end

function paces.save_pace(queue)
    local pace, text = queues.paced[queue], ''
    if pace.idle > 0 then
        forget_idle(queue, pace)
    end
    if pace.open or pace.every + pace.group_every + pace.idle > 0 or pace.opens_at < NEVER then
        text = format('%.17g %.17g %.17g %.17g %.17g %s %.17g %d %s', pace.every, pace.burst, pace.group_every,
            pace.group_burst, pace.starts_at, pace.open or '-', pace.opens_at, pace.idle,
            pace.paced_at and format('%.17g', pace.paced_at) or '-')
    end
    if text ~= '' or rawget(queue, 'pace') then
        queues.set(queue, 'pace', text)
    end
end

-- The queue is kept until this time, and its idle groups no longer.
local function keep_queue(queue, time)
    queues.set(queue, 'keep', math.max(queue.keep, math.ceil(time)))
end

-- Check again whether a task of the queue may start.
local function open_queue(pace)
    if pace.starts_at + (pace.burst - 1) * pace.every <= numbers.now then
        pace.starts_at, pace.paced_at = 0, nil
    end
    pace.open = nil
    if pace.every > 0 or pace.starts_at > 0 then
        pace.open = math.min(1, paces.possible_starts(pace.every, pace.burst, pace.starts_at))
    end
end

-- A group is closed until a time, or no more (nil).
function paces.close_group(queue, group, time)
    local pace, CLOSED = pace_of(queue), queue.key .. ':closed'
    if group.closed == pace.opens_at then
        pace.opens_at = 0
    end
    if time then
        call('ZADD', CLOSED, format('%.17g', time), group.name)
        pace.opens_at = math.min(pace.opens_at, time)
    else
        call('ZREM', CLOSED, group.name)
    end
    group.closed = time
end

function paces.end_idle(queue, group)
    local pace = pace_of(queue)
    group.is_idle, pace.idle = false, pace.idle - 1
    call('ZREM', queue.key .. ':idle', group.name)
end

-- Set the times of a group; the caller refreshes the group, or touches it.
local function set_times(queue, group, starts_at, paced_at)
    group.starts_at, group.paced_at = starts_at > 0 and starts_at or nil, paced_at
    if group.is_idle and starts_at == 0 then
        paces.end_idle(queue, group)
    elseif group.is_idle then
        call('ZADD', queue.key .. ':idle', format('%.17g', starts_at), group.name)
    end
end

-- The time from which the next task of a group may start, if that has not come.
function paces.time_of(queue, group)
    local pace = pace_of(queue)
    if paces.possible_starts(pace.group_every, pace.group_burst, group.starts_at) == 0 then
        return group.starts_at
    elseif group.starts_at + slack(pace) <= numbers.now then
        set_times(queue, group, 0)
    end
end

-- A group of which nothing else is left is idle while its time has an effect.
function paces.keep_idle(queue, group)
    local pace = pace_of(queue)
    group.is_idle = group.starts_at + slack(pace) > numbers.now
    if group.is_idle then
        pace.idle = pace.idle + 1
        set_times(queue, group, group.starts_at, group.paced_at)
    end
end

-- A task of a group, which has a rate, has started.
function paces.start_in_group(queue, group)
    local pace = queues.paced[queue]
    set_times(queue, group, start_after(pace.group_every, pace.group_burst, group.starts_at or 0, 1))
end

-- This number of tasks of the queue has started.
function paces.start_in_queue(pace, count)
    if pace.every > 0 and count > 0 then
        pace.starts_at, pace.paced_at = start_after(pace.every, pace.burst, pace.starts_at, count), nil
    end
    open_queue(pace)
end

function paces.count_waiting(queue)
    tasks.write()
    return call('ZCARD', queue.key .. ':ready') + queue.ranked + call('ZCARD', queue.key .. ':turns')
end

-- The time at which the first closed group opens, or NEVER.
local function first_opening(queue)
    return tonumber(call('ZRANGE', queue.key .. ':closed', 0, 0, 'WITHSCORES')[2]) or NEVER
end

-- The next time at which more of the ready tasks can be taken, which wait only for this time.
function paces.pace_due(queue, pace)
    if pace.open == 0 and paces.count_waiting(queue) > 0 then
        return pace.starts_at
    end
    if pace.opens_at == 0 then
        pace.opens_at = first_opening(queue)
    end
    return pace.opens_at < NEVER and pace.opens_at or nil
end

-- Open the queue and the groups whose time has come.
function paces.pass_time(queue)
    local groups = require('groups')
    local pace = queues.paced[queue]
    if pace.opens_at <= numbers.now + 1 then
        local names = call('ZRANGEBYSCORE', queue.key .. ':closed', '-inf', numbers.now + 1, 'LIMIT', 0, steps.most)
        groups.read_groups(queue, names)
        for _, name in ipairs(names) do
            groups.refresh(queue, groups.read_group(queue, name))
        end
        pace.opens_at = first_opening(queue)
    end
    open_queue(pace)
end

-- The two times of a pace that is held off until a time, or no longer, if that is not to come.
local function held_off(starts_at, paced_at, ends_at)
    local alone = starts_at > numbers.now + 1 and paced_at or starts_at
    if ends_at <= numbers.now then
        return alone, nil
    elseif ends_at > starts_at then
        return ends_at, alone
    end
    return starts_at, paced_at
end

-- No task of a group, or of the queue for "", starts until this time; if that is not to come, it is held off no longer.
function paces.hold_off(queue, name, ends_at)
    local groups = require('groups')
    if ends_at <= numbers.now and not (queues.paced[queue] or name ~= '' and groups.read_group(queue, name).starts_at) then
        return
    end
    local pace = pace_of(queue)
    if name == '' then
        pace.starts_at, pace.paced_at = held_off(pace.starts_at, pace.paced_at, ends_at)
        open_queue(pace)
        return ends_at > numbers.now and keep_queue(queue, pace.starts_at + (pace.burst - 1) * pace.every)
    end
    local group = groups.read_group(queue, name)
    set_times(queue, group, held_off(group.starts_at or 0, group.paced_at, ends_at))
    if group.is_there then
        groups.refresh(queue, group)
    elseif not group.is_idle and group.starts_at then
        paces.keep_idle(queue, group)
    end
    groups.touch(groups.known_of(queue), group)
    if ends_at > numbers.now then
        keep_queue(queue, group.starts_at + slack(pace))
    end
end

-- The time of the next start at another rate: the tasks that have started count for as many as before.
local function at_rate(every, burst, starts_at, new_every, new_burst)
    if every == 0 or new_every == 0 then
        return 0
    end
    return numbers.now + math.min((starts_at - numbers.now) / every + burst - new_burst, 1) * new_every
end

-- The two times of a pace whose rate is another one now.
local function repaced(every, burst, starts_at, paced_at, new_every, new_burst)
    if not paced_at or starts_at <= numbers.now + 1 then
        return at_rate(every, burst, starts_at, new_every, new_burst), nil
    end
    local alone = at_rate(every, burst, paced_at, new_every, new_burst)
    if alone < starts_at then
        return starts_at, alone
    end
    return alone, nil
end

-- The rates of the queue and of its groups; these groups have tasks or are idle.
function paces.set_rates(queue, every, burst, group_every, group_burst, of)
    if not queues.paced[queue] and every + group_every == 0 then
        return
    end
    local pace = pace_of(queue)
    local former_every, former_burst = pace.group_every, pace.group_burst
    if every ~= pace.every or burst ~= pace.burst then
        pace.starts_at, pace.paced_at = repaced(pace.every, pace.burst, pace.starts_at, pace.paced_at, every, burst)
    end
    pace.every, pace.burst, pace.group_every, pace.group_burst = every, burst, group_every, group_burst
    if group_every ~= former_every or group_burst ~= former_burst then
        for _, group in ipairs(of) do
            if group.starts_at then
                set_times(queue, group, repaced(former_every, former_burst, group.starts_at, group.paced_at, group_every,
                    group_burst))
            end
        end
    end
    open_queue(pace)
end

return paces
