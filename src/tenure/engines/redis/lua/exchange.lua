-- Settles tasks and takes others, in one step.
--
-- ARGV: session, n, queue, want, wait, then the settlements: each one argument, of id, token, delay or ttl (-1: for good), a
-- letter for the verdict, the length of the failure, the failure, and the result
-- -> exchanged: tasks, refused, stop, paused, ask again in, now, the revision of the settings; gone. A task is eight values,
-- one behind the other, since a table for each would cost more than all the rest: id, token, payload, priority, attempts,
-- deliveries, ready since, and {progress, failure, meta, group, entries, deadline or ""}; or the group, if there is none of the
-- others, which may be ""
-- Reads: CAP, add_soon, add_taker, cache_reply, cached_reply, cold, end_task, expiry, families, forget_taker,
--     groups, is_late, leave_lessees, made_families, new_token, now, offer_tasks, paced, paces, read_queue,
--     read_settings, read_task, save_numbers, save_queue, set, token, unlease, write, write_endings
-- Writes: id, newly_takeable

local VERDICTS = {o = 'done', i = 'discarded', c = 'cancelled', d = 'dead', r = 'retry', p = 'postpone', g = 'give back',
    w = 'wait', f = 'wait for', e = 'wait for end', n = 'note', a = 'alone'}

local session, n, name = ARGV[3], ARGV[4], ARGV[5]
local object = name .. ':exchange'
local ttl, number, known = cached_reply(session, n, object)
if not ttl then
    return 'gone'
end
local fields, taken = {}, {}

local function show(task_id, its_token, since, task, attempts, deliveries)
    local last = #fields
    fields[last + 1], fields[last + 2] = task_id, its_token
    fields[last + 3], fields[last + 4] = task.payload or '', task.priority or '0'
    local has_more, group = task.progress or task.failure or task.meta or task.kin or task.deadline, task.group or ''
    local entries = task.kin and call('HGET', P .. name .. ':' .. task_id .. ':family', 'total') or 0
    fields[last + 5], fields[last + 6], fields[last + 7], fields[last + 8] = attempts, deliveries, since,
        has_more and {task.progress or '', task.failure or '', task.meta or '', group, entries, task.deadline or ''} or group
    taken[#taken + 1], taken[#taken + 2] = task_id, since
end

-- The fields of a task, and whether there are more than the payload, the meta and the group, which need no care when it
-- ends.
local function fields_of(hash)
    local found = call('HGETALL', hash)
    local task = {}
    for i = 1, #found, 2 do
        task[found[i]] = found[i + 1]
    end
    local usual = task.meta and 4 or 2
    return task, #found > (task.group and usual + 2 or usual) and '1' or '0'
end

if known then
    -- it was remembered without what the tasks hold
    for i = 1, #known[1], 2 do
        local task = fields_of(P .. name .. ':' .. known[1][i])
        local its_token, deliveries, attempts = match(task.lease or '', '^(%d+) %d+ %d+ %d* %d %d (%d+) (%d+)')
        show(known[1][i], its_token or '0', known[1][i + 1], task, attempts or '0', deliveries or '0')
    end
    cache_reply(session, n, object, ttl, number, known)
    return {'exchanged', fields, known[2], known[3], known[4], known[5], known[6], known[7]}
end

-- Tasks are settled and taken beyond maxmemory too, which empties the queue: see sessions.lua.
call('PERSIST', P .. 'sessions')
local queue = read_queue(name)
local want = tonumber(ARGV[6])
local _, aging, limit, dead_ttl, keep, revision = read_settings(queue)
local limit_and_keep = ' ' .. limit .. ' ' .. (dead_ttl == '-' and '' or dead_ttl) .. ' ' .. keep .. ' '
aging = tonumber(aging)

-- What follows a verdict: `after_verdict` in engine/_rules.py.
local function settle_task(task, verdict, time, result)
    if task.kin or sub(verdict, 1, 4) == 'wait' then
        write_endings()
        return families().settle(queue, task, verdict, time, result, ttl)
    elseif verdict ~= 'done' and is_late(task) then
        return end_task(queue, task, 'expired', '', 3600e6, ttl)
    elseif verdict == 'dead' or verdict == 'retry' and not task.stop then
        task.attempts = task.attempts + 1
    end
    if verdict == 'done' or verdict == 'discarded' or verdict == 'cancelled' or verdict == 'dead' then
        return end_task(queue, task, verdict, result, time >= 0 and time or nil, ttl)
    elseif task.stop then
        return end_task(queue, task, 'cancelled', '', task.stop >= 0 and task.stop or nil, ttl)
    end
    local is_anew = verdict == 'postpone' and result == 'anew'
    task.attempts = is_anew and 0 or task.attempts
    local has_begun = is_anew or verdict == 'retry' or verdict == 'postpone' and result == ''
    task.deliveries = has_begun and task.attempts or task.deliveries - 1
    if verdict ~= 'give back' and task.group ~= '' then
        groups().pin(queue, task)
    end
    cold().return_task(queue, task, verdict == 'give back' and task.since or now + time)
end

local LEASES = P .. session .. ' ' .. name .. ':leases'
local refused, settlements, start_at, behind = {}, ARGV, 8, nil -- tasks with a family, and late ones, come behind
repeat
    for i = start_at, #settlements do
        local settlement = settlements[i]
        local task_id, its_token, time, letter, failure, start = struct.unpack('>I8I8i8c1I4c0', settlement)
        local verdict, task = VERDICTS[letter], read_task(queue, format('%014x', task_id))
        if not task or task.session ~= session or tonumber(task.token) ~= its_token then
            refused[#refused + 1] = its_token
        elseif verdict == 'note' or verdict == 'alone' then
            if failure ~= '' then
                call('HSET', task.hash, 'failure', failure)
            end
            if verdict == 'alone' then
                local its_lease = string.gsub(call('HGET', task.hash, 'lease'), '^(%d+ %d+) %d+', '%1 0')
                call('HSET', task.hash, 'lease', its_lease)
            end
        elseif settlements == ARGV and (task.kin or is_late(task)) then
            behind = behind or {}
            behind[#behind + 1] = settlement
        else
            unlease(queue, task, verdict == 'done' and not task.kin)
            if failure ~= '' then
                call('HSET', task.hash, 'failure', failure)
            end
            settle_task(task, verdict, time, sub(settlement, start))
            if queue.grouped > 0 and (verdict == 'give back' or verdict == 'postpone') then
                groups().refund_turn(queue, task.group)
            end
        end
    end
    settlements, start_at = settlements == ARGV and behind, 1
until not settlements
write_endings()

if queue.delayed > 0 then
    cold().promote(queue, CAP)
end

-- Lease a task that was ready since a time.
local function lease(task_id, since)
    local hash = queue.key .. ':' .. task_id
    local task, more = fields_of(hash)
    local attempts, deliveries = task.attempts or '0', task.deliveries and format('%d', task.deliveries + 1) or '1'
    new_token()
    local holder = task.group and session .. '\255' .. task.group or session
    call('HSET', hash, 'lease',
        token .. ' ' .. since .. limit_and_keep .. more .. ' ' .. deliveries .. ' ' .. attempts .. ' ' .. holder)
    add_soon(LEASES, token, task_id)
    if task.followed then
        cold().notify_task_watchers(queue, {id = task_id, hash = hash, followed = true})
    end
    show(task_id, token, since, task, attempts, deliveries)
end

-- The taken tasks have started. Where the queue could not be taken from before, or has a pace, more become takeable.
local function finish_pace(was_open)
    local its = paced[queue]
    if its.open then
        paces().start_in_queue(its, #taken / 2)
    end
    if its.every + its.group_every > 0 and #taken > 0 then
        local time = now + math.max(its.every * its.burst, its.group_every * its.group_burst)
        set(queue, 'keep', math.max(queue.keep, math.ceil(time)))
    end
    if was_open == 0 or was_open and #taken > 0 then
        newly_takeable = paces().count_waiting(queue)
    end
end

-- Take tasks without a group, at most so many.
local function take_plain(most)
    local last = #taken + 2 * most
    -- include take_ranked
    if #taken < last then
        local plain = call('ZPOPMIN', queue.key .. ':ready', (last - #taken) / 2)
        for i = 1, #plain, 2 do
            lease(plain[i], plain[i + 1])
        end
    end
    if take_ranked and #taken < last then
        take_ranked('(0', '+inf')
    end
end

local pace, was_open = paced[queue], nil
if pace then
    was_open = pace.open
    if pace.open or pace.opens_at <= now + 1 then
        paces().pass_time(queue)
    end
    if pace.open then
        want = math.min(want, paces().possible_starts(pace.every, pace.burst, pace.starts_at))
    end
end
if queue.paused == 0 and want > 0 then
    if queue.grouped > 0 and not groups(true).take_all(queue, want, lease) then
        -- include take_turns
    elseif queue.grouped == 0 then
        take_plain(want)
        newly_takeable = newly_takeable - #taken / 2
    end
end
write()
if pace then
    finish_pace(was_open)
end
if #taken > 0 and call('SADD', queue.key .. ':lessees', session) == 1 then
    id = id + 1
    call('ZADD', P .. session .. ':items', 4e15 + id, 'tasks ' .. name)
elseif #taken == 0 and #ARGV > 7 and call('EXISTS', LEASES) == 0 then
    leave_lessees(queue, session)
end

-- The session is idle until it gets what it wants beyond that, or no longer.
local more = ARGV[7] == '1' and tonumber(ARGV[6]) - #taken / 2 or 0
if more > 0 then
    add_taker(queue, session, more)
elseif queue.takers > 0 and call('ZSCORE', queue.key .. ':takers', session) then
    forget_taker(queue, session)
end
offer_tasks(queue, newly_takeable)

local stop = {}
for _, place in ipairs(call('ZRANGE', P .. session .. ':stops', 0, -1)) do
    local its_token, its_queue = match(place, '^(%d+) (.*)$')
    if its_queue == name then
        stop[#stop + 1] = tonumber(its_token)
    end
end
local soonest = math.min(expiry, queue.delayed > 0 and cold().first_delayed(queue) or expiry)
if pace then
    local is_known = not pace.open and pace.opens_at > 0
    soonest = math.min(soonest, is_known and pace.opens_at or paces().pace_due(queue, pace) or soonest)
end
local ask_again_in = math.max(0, soonest - now)
if made_families then
    families().finish()
end
save_queue(queue)
save_numbers()
cache_reply(session, n, object, ttl, number, {taken, refused, stop, queue.paused, ask_again_in, NOW, revision})
return {'exchanged', fields, refused, stop, queue.paused, ask_again_in, NOW, revision}
