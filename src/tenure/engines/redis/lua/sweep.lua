-- Clears up: hints watches and serves lines that were left, ends sessions, expires tasks and dead letters, and frees
-- resources that have rested, each in the order of their times.
--
-- ARGV: a session to be ended after that, whatever its time, or nothing -> ok, gone (no such session), more
local changes = require('changes')
local claims = require('claims')
local dead_letters = require('dead_letters')
local due = require('due')
local endings = require('endings')
local hold_line = require('hold_line')
local numbers = require('numbers')
local queues = require('queues')
local session_items = require('session_items')
local steps = require('steps')
local takers = require('takers')
local tasks = require('tasks')
local watchers = require('watchers')

local function step()
    if steps.left > 0 then
        steps.left = steps.left - 1
        return true
    end
    steps.is_unfinished = true
    return false
end

local droppers = {}

function droppers.hold(of, holder)
    hold_line.remove_hold(sub(of, #P + 1, -#':holders' - 1), holder)
end

function droppers.claim(pool, holder)
    claims.remove_claim(pool, holder, true)
end

function droppers.producer(name, producer)
    local queue = queues.read_queue(name)
    require('producers').remove_producer(queue, producer)
    queues.save_queue(queue)
end

local function names(item)
    return match(item, '^%a+ (.*)\255(.*)$')
end

-- What cannot be read is set aside in `unreadable`, so that it stops nothing; the index `health` counts it.
local function set_aside(set_key, member)
    call('ZREM', set_key, member)
    call('SADD', P .. 'unreadable', set_key .. ' ' .. member)
end

-- Write what has changed in the queues of the families of tasks.
local function save_families()
    takers.newly_takeable = 0
    if package.loaded.families then
        require('families').close()
    end
end

local function drop_task(session, name)
    local queue = queues.read_queue(name)
    local task_id = call('ZRANGE', P .. session .. ' ' .. name .. ':leases', 0, 0)[1]
    if not task_id then
        return takers.leave_lessees(queue, session)
    end
    local task = tasks.read_task(queue, task_id)
    if not task then
        return set_aside(P .. session .. ' ' .. name .. ':leases', task_id)
    end
    endings.unlease(queue, task)
    local limit, dead_ttl = match(task.limit, '^(%d+) (%d*)$')
    local silent = (task.deliveries or 0) - (task.attempts or 0)
    local state, result, ttl = nil, '', nil
    if tasks.is_late(task) then
        state, ttl = 'expired', 3600e6
    elseif task.stop then
        state, ttl = 'cancelled', task.stop >= 0 and task.stop or nil
    elseif silent >= tonumber(limit) then
        local where = limit == '0' and ' while the task ran alone in it' or ''
        result = format('delivered %s without a verdict: process ', silent == 1 and 'once' or silent .. ' times')
            .. call('HGET', P .. session .. ':session', 'process') .. ' died or lost its session' .. where
        state, ttl = 'dead', tonumber(dead_ttl)
    end
    if task.kin then
        tasks.write()
        require('families').settle_so(queue, task, {state = state, result = result, ttl = ttl, since = task.since})
    elseif state then
        endings.end_task(queue, task, state, result, ttl)
    else
        require('order').return_task(queue, task, task.since)
    end
    if queue.grouped > 0 then
        require('groups').refund_turn(queue, task.group)
    end
    endings.write_endings()
    takers.offer_tasks(queue, takers.newly_takeable)
    if call('EXISTS', P .. session .. ' ' .. name .. ':leases') == 0 then
        takers.leave_lessees(queue, session)
    end
    queues.save_queue(queue)
    save_families()
end

local function drop_item(session, item)
    local family = match(item, '^%a+')
    if family == 'tasks' then
        drop_task(session, sub(item, 7))
    elseif family == 'taker' then
        local queue = queues.read_queue(sub(item, 7))
        takers.forget_taker(queue, session)
        queues.save_queue(queue)
    elseif family == 'watch' or family == 'follow' then
        session_items.unsubscribe(session, sub(item, #family + 2), family)
    else
        droppers[family](names(item))
    end
end

-- The token of the first task of a queue that the session has.
local function first_token(session, item)
    return tonumber(call('ZRANGE', P .. session .. ' ' .. sub(item, 7) .. ':leases', 0, 0, 'WITHSCORES')[2])
end

-- The first thing that a session has: of its queues, the one whose first task it took before those of all others.
local function first_item(session, tokens)
    local ITEMS = P .. session .. ':items'
    local item = call('ZRANGE', ITEMS, 0, 0)[1]
    if item and match(item, '^tasks ') then
        for _, other in ipairs(next(tokens) and {} or call('ZRANGEBYSCORE', ITEMS, 4e15, '(5e15')) do
            tokens[other] = first_token(session, other)
        end
        for other, first in pairs(tokens) do
            item = first < (tokens[item] or 0) and other or item
        end
    end
    return item
end

-- Give up what a session has, and forget it; false if the steps did not suffice.
local function end_session(session)
    local tokens = {}
    local item = first_item(session, tokens)
    while item do
        if not step() then
            return false
        end
        local dropped = pcall(drop_item, session, item)
        local is_task = match(item, '^tasks ')
        tokens[item] = dropped and is_task and first_token(session, item) or nil
        if not (dropped and is_task) and call('ZSCORE', P .. session .. ':items', item) then
            set_aside(P .. session .. ':items', item)
        end
        item = first_item(session, tokens)
    end
    call('DEL', P .. session .. ':session')
    call('ZREM', P .. 'sessions', session)
    call('SREM', P .. 'resting', session)
    return true
end

local function serve_unserved()
    for _, key in ipairs(call('SMEMBERS', P .. 'unserved')) do
        call('SREM', P .. 'unserved', key)
        hold_line.serve_key(key)
    end
    local name = not steps.is_unfinished and call('SMEMBERS', P .. 'unadmitted')[1]
    if name then
        local queue = queues.read_queue(name)
        call('SREM', P .. 'unadmitted', name)
        require('producers').admit_everywhere(queue)
        queues.save_queue(queue)
        steps.is_unfinished = call('EXISTS', P .. 'unadmitted') == 1
    end
    return not steps.is_unfinished
end

-- Hint more of the sessions that watch an object with many watches.
local function notify_unnotified()
    local text = call('SMEMBERS', P .. 'unnotified')[1]
    if text then
        call('SREM', P .. 'unnotified', text)
        watchers.notify_watchers(unpack(cjson.decode(text)))
    end
    return call('EXISTS', P .. 'unnotified') == 0
end

local function offer_unoffered()
    local text = call('SMEMBERS', P .. 'unoffered')[1]
    if text then
        call('SREM', P .. 'unoffered', text)
        claims.compare_on(unpack(cjson.decode(text)))
    end
    return call('EXISTS', P .. 'unoffered') == 0
end

-- Visit the members of a sorted set whose time has come, in order; false if `visit` says so, or the steps did not suffice.
local function each_due(set_name, visit)
    local key = P .. set_name
    local member = call('ZRANGEBYSCORE', key, '-inf', numbers.now, 'LIMIT', 0, 1)[1]
    while member do
        if visit(member) == false then
            return false
        end
        member = call('ZRANGEBYSCORE', key, '-inf', numbers.now, 'LIMIT', 0, 1)[1]
        if member and not step() then
            return false
        end
    end
    return true
end

local function expire_task(member)
    local queue, task_id = queues.read_queue(sub(member, 15)), sub(member, 1, 14)
    local task = tasks.read_task(queue, task_id)
    local found = not task and call('HMGET', queue.key .. ':' .. task_id, 'state', 'ended')
    if found and found[1] ~= 'dead' then
        set_aside(P .. 'expiring', member)
    elseif found then
        local _, seq = dead_letters.ending_of(found[2])
        dead_letters.purge_dead_letter(queue, task_id, seq)
    elseif not tasks.is_late(task) and (task.token or (task.kin or '1') ~= '1') then
        require('order').look_at(queue, task, tonumber(task.deadline or nil)) -- it began before its time came
    else
        if task.token or task.kin then
            require('order').look_at(queue, task, nil)
        end
        if task.kin then
            require('families').cancel(queue, task, 3600e6, 'expired')
        elseif task.token then
            require('order').request_stop(queue, task, 3600e6)
        else
            require('order').dequeue(queue, task)
            endings.end_task(queue, task, 'expired', '', 3600e6)
        end
        endings.write_endings()
        takers.offer_tasks(queue, takers.newly_takeable)
    end
    queues.save_queue(queue)
    save_families()
end

-- Visit children that are to be cancelled, if it is time for that.
local function sweep_families()
    local time = call('EXISTS', P .. 'sweeping') == 1 and tonumber(call('HGET', P .. 'state', 'sweep_at') or 0)
    if time and time <= numbers.now then
        require('families').sweep()
    end
    save_families()
    return true
end

local function time_out(member)
    require('families').time_out(member)
    save_families()
end

local function end_rest_of(member)
    local pool, resource = match(member, '^(.*)\255(.*)$')
    if not pool or not claims.end_rest(pool, resource) then
        set_aside(P .. 'cooling', member)
    end
end

local done = notify_unnotified() and offer_unoffered() and serve_unserved() and each_due('sessions', end_session)
    and each_due('expiring', expire_task) and sweep_families()
    and each_due('timeouts', time_out) and each_due('cooling', end_rest_of)
local answer = done and 'ok' or 'more'
local session = ARGV[3]
if session and answer == 'ok' then
    if call('EXISTS', P .. session .. ':session') == 0 then
        answer = 'gone'
    else
        call('ZADD', P .. 'sessions', 0, session)
        answer = end_session(session) and 'ok' or 'more'
        sweep_families()
    end
end
changes.save_numbers()
due.set_due()
return steps.is_unfinished and 'more' or answer
