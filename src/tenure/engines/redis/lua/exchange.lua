-- Settles tasks and takes others, in one step.
--
-- ARGV: session, n, queue, want, wait, then the settlements: each one argument, of id, token, delay or ttl (-1: for good), a
-- letter for the verdict, the length of the failure, the failure, and the result
-- -> exchanged: tasks, refused, stop, paused, ask again in, now, the revision of the settings; gone. A task is eight values,
-- one behind the other, since a table for each would cost more than all the rest: id, token, payload, priority, attempts,
-- deliveries, ready since, and {progress, failure, meta, group, entries, deadline or ""}; or the group, if there is none of the
-- others, which may be ""
local changes = require('changes')
local endings = require('endings')
local numbers = require('numbers')
local queues = require('queues')
local replies = require('replies')
local shard = require('shard')
local steps = require('steps')
local takers = require('takers')
local tasks = require('tasks')

if numbers.is_due then
    return 'more'
end

local VERDICTS = {o = 'done', i = 'discarded', c = 'cancelled', d = 'dead', r = 'retry', p = 'postpone', g = 'give back',
    w = 'wait', f = 'wait for', e = 'wait for end', n = 'note', a = 'alone'}

local session, n, name = ARGV[3], ARGV[4], ARGV[5]
local object = name .. ':exchange'
local ttl, number, known = replies.cached_reply(session, n, object)
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
    replies.cache_reply(session, n, object, ttl, number, known)
    return {'exchanged', fields, known[2], known[3], known[4], known[5], known[6], known[7]}
end

-- Tasks are settled and taken beyond maxmemory too, which empties the queue: see sessions.lua.
call('PERSIST', P .. 'sessions')
local queue = queues.read_queue(name)
local want = tonumber(ARGV[6])
local _, aging, limit, dead_ttl, keep, revision = queues.read_settings(queue)
local limit_and_keep = ' ' .. limit .. ' ' .. (dead_ttl == '-' and '' or dead_ttl) .. ' ' .. keep .. ' '
aging = tonumber(aging)

-- What follows a verdict: `after_verdict` in engine/_rules.py.
local function settle_task(task, verdict, time, result)
    if task.kin or sub(verdict, 1, 4) == 'wait' then
        endings.write_endings()
        return require('families').settle(queue, task, verdict, time, result, ttl)
    elseif verdict ~= 'done' and tasks.is_late(task) then
        return endings.end_task(queue, task, 'expired', '', 3600e6, ttl)
    elseif verdict == 'dead' or verdict == 'retry' and not task.stop then
        task.attempts = task.attempts + 1
    end
    if verdict == 'done' or verdict == 'discarded' or verdict == 'cancelled' or verdict == 'dead' then
        return endings.end_task(queue, task, verdict, result, time >= 0 and time or nil, ttl)
    elseif task.stop then
        return endings.end_task(queue, task, 'cancelled', '', task.stop >= 0 and task.stop or nil, ttl)
    end
    local is_anew = verdict == 'postpone' and result == 'anew'
    task.attempts = is_anew and 0 or task.attempts
    local has_begun = is_anew or verdict == 'retry' or verdict == 'postpone' and result == ''
    task.deliveries = has_begun and task.attempts or task.deliveries - 1
    if verdict ~= 'give back' and task.group ~= '' then
        require('groups').pin(queue, task)
    end
    require('order').return_task(queue, task, verdict == 'give back' and task.since or numbers.now + time)
end

local LEASES = P .. session .. ' ' .. name .. ':leases'
local refused, settlements, start_at, behind = {}, ARGV, 8, nil -- tasks with a family, and late ones, come behind
repeat
    for i = start_at, #settlements do
        local settlement = settlements[i]
        local task_id, its_token, time, letter, failure, start = struct.unpack('>I8I8i8c1I4c0', settlement)
        local verdict, task = VERDICTS[letter], tasks.read_task(queue, format('%014x', task_id))
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
        elseif settlements == ARGV and (task.kin or tasks.is_late(task)) then
            behind = behind or {}
            behind[#behind + 1] = settlement
        else
            endings.unlease(queue, task, verdict == 'done' and not task.kin)
            if failure ~= '' then
                call('HSET', task.hash, 'failure', failure)
            end
            settle_task(task, verdict, time, sub(settlement, start))
            if queue.grouped > 0 and (verdict == 'give back' or verdict == 'postpone') then
                require('groups').refund_turn(queue, task.group)
            end
        end
    end
    settlements, start_at = settlements == ARGV and behind, 1
until not settlements
endings.write_endings()

if queue.delayed > 0 then
    require('order').promote(queue, steps.most)
end

-- Lease a task that was ready since a time.
local function lease(task_id, since)
    local hash = queue.key .. ':' .. task_id
    local task, more = fields_of(hash)
    local attempts, deliveries = task.attempts or '0', task.deliveries and format('%d', task.deliveries + 1) or '1'
    numbers.new_token()
    local holder = task.group and session .. '\255' .. task.group or session
    call('HSET', hash, 'lease',
        shard.token .. ' ' .. since .. limit_and_keep .. more .. ' ' .. deliveries .. ' ' .. attempts .. ' ' .. holder)
    tasks.add_soon(LEASES, shard.token, task_id)
    if task.followed then
        require('order').notify_task_watchers(queue, {id = task_id, hash = hash, followed = true})
    end
    show(task_id, shard.token, since, task, attempts, deliveries)
end

-- The taken tasks have started. Where the queue could not be taken from before, or has a pace, more become takeable.
local function finish_pace(was_open)
    local its = queues.paced[queue]
    if its.open then
        require('paces').start_in_queue(its, #taken / 2)
    end
    if its.every + its.group_every > 0 and #taken > 0 then
        local time = numbers.now + math.max(its.every * its.burst, its.group_every * its.group_burst)
        queues.set(queue, 'keep', math.max(queue.keep, math.ceil(time)))
    end
    if was_open == 0 or was_open and #taken > 0 then
        takers.newly_takeable = require('paces').count_waiting(queue)
    end
end

-- Take tasks without a group, at most so many.
local function take_plain(most)
    local last = #taken + 2 * most
    if aging then
        require('ranked_tasks').take_aged(queue, aging, most, lease)
    end
    if queue.ranked > 0 and #taken < last then
        require('ranked_tasks').take(queue, '-inf', '(0', (last - #taken) / 2, lease)
    end
    if #taken < last then
        local plain = call('ZPOPMIN', queue.key .. ':ready', (last - #taken) / 2)
        for i = 1, #plain, 2 do
            lease(plain[i], plain[i + 1])
        end
    end
    if queue.ranked > 0 and #taken < last then
        require('ranked_tasks').take(queue, '(0', '+inf', (last - #taken) / 2, lease)
    end
end

local pace, was_open = queues.paced[queue], nil
if pace then
    was_open = pace.open
    if pace.open or pace.opens_at <= numbers.now + 1 then
        require('paces').pass_time(queue)
    end
    if pace.open then
        want = math.min(want, require('paces').possible_starts(pace.every, pace.burst, pace.starts_at))
    end
end
if queue.paused == 0 and want > 0 then
    if queue.grouped > 0 and not require('alone').take_all(queue, want, lease) then
        local turns = require('turns')
        turns.take_turns(queue, want, aging, lease, take_plain)
    elseif queue.grouped == 0 then
        take_plain(want)
        takers.newly_takeable = takers.newly_takeable - #taken / 2
    end
end
tasks.write()
if pace then
    finish_pace(was_open)
end
if #taken > 0 and call('SADD', queue.key .. ':lessees', session) == 1 then
    numbers.id = numbers.id + 1
    call('ZADD', P .. session .. ':items', 4e15 + numbers.id, 'tasks ' .. name)
elseif #taken == 0 and #ARGV > 7 and call('EXISTS', LEASES) == 0 then
    takers.leave_lessees(queue, session)
end

-- The session is idle until it gets what it wants beyond that, or no longer.
local more = ARGV[7] == '1' and tonumber(ARGV[6]) - #taken / 2 or 0
if more > 0 then
    takers.add_taker(queue, session, more)
elseif queue.takers > 0 and call('ZSCORE', queue.key .. ':takers', session) then
    takers.forget_taker(queue, session)
end
takers.offer_tasks(queue, takers.newly_takeable)

local stop = {}
for _, place in ipairs(call('ZRANGE', P .. session .. ':stops', 0, -1)) do
    local its_token, its_queue = match(place, '^(%d+) (.*)$')
    if its_queue == name then
        stop[#stop + 1] = tonumber(its_token)
    end
end
local soonest = math.min(numbers.expiry, queue.delayed > 0 and require('order').first_delayed(queue) or numbers.expiry)
if pace then
    local is_known = not pace.open and pace.opens_at > 0
    soonest = math.min(soonest, is_known and pace.opens_at or require('paces').pace_due(queue, pace) or soonest)
end
local ask_again_in = math.max(0, soonest - numbers.now)
if package.loaded.families then
    require('families').finish()
end
queues.save_queue(queue)
changes.save_numbers()
replies.cache_reply(session, n, object, ttl, number, {taken, refused, stop, queue.paused, ask_again_in, NOW, revision})
return {'exchanged', fields, refused, stop, queue.paused, ask_again_in, NOW, revision}
