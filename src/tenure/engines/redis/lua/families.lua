-- Families: the entries of tasks, their children, and the verdicts that wait for these. The laws are in
-- engine/_families.py, and rules/_families.py is the same in Python.
--
-- A task that is a child or has entries has the field `kin`: "1"; or "suspended", "ending" or "held", and its id is in the
-- sorted set `suspended`, `ending` or `held` of the queue then, by id. `<queue>:<id>:family` is a hash: see `read_family`; and
-- for each entry ":" and its name, what `write_entry` packs. Of `total` entries `unfinished` are children that have not ended;
-- `ends` children have. A task may wait until `rest` children are unfinished. Entries of tries before `born` are not there, nor
-- are entries of children that failed in a try before `tries`, or of a `life` other than 0 and the present one.
-- `<queue>:<id>:names` is a sorted set, all scores are 0: "n" and the name of each entry, "u" and the name of each unfinished
-- child, "f", the try as 8 digits and the name of each child that has failed, and of releases that are held what releases.lua
-- says. Of the shard: `sweeping`, a sorted set of the families that are being swept, the queue, a zero byte and the id, all
-- scores are 0; `timeouts`, one of the families that wait.
--
-- The caller has written what it gathered.
local changes = require('changes')
local due = require('due')
local endings = require('endings')
local numbers = require('numbers')
local queues = require('queues')
local takers = require('takers')
local tasks = require('tasks')

local families = {}

-- `timed`: 1 if the task waits until a time; `since`: since when it is ready, kept while it is in no order; `ending`, `result`
-- and `ttl`: a verdict that is kept; `swept`, `swept_to`: which names, and how far; `parent_queue`, `parent`, `depth`: its place.
local FIELDS = {
    'parent', 'depth', 'total', 'unfinished', 'tries', 'born', 'ends', 'rest', 'life', 'parent_queue', 'name', 'awaited',
    'prefix', 'timed', 'ending', 'result', 'ttl', 'since', 'swept', 'swept_to',
}
local COUNTS = 9 -- the first of them are numbers
local EXPIRED_TTL = 3600e6
local SWEEP_PAUSE = 10000 -- this and the next as in engine/_families.py
families.SWEEP_STEPS = 8
local open, by_queue, current = {}, {}, nil -- queues by name, `newly_takeable` of each, and the queue that it is of now

-- queues

function families.use(queue)
    open[queue.name], current = queue, current or queue
end

function families.queue_of(name)
    open[name] = open[name] or queues.read_queue(name)
    return open[name]
end

-- Count in `newly_takeable` the tasks of a queue -> the queue before
function families.switch(queue)
    local former = current
    if queue ~= former then
        by_queue[former], takers.newly_takeable, current = takers.newly_takeable, by_queue[queue] or 0, queue
    end
    return former
end

-- Do something to a queue, and offer the tasks that can be taken then.
function families.offering(queue, act, ...)
    local former = families.switch(queue)
    local before = takers.newly_takeable
    act(queue, ...)
    endings.write_endings()
    takers.offer_tasks(queue, takers.newly_takeable - before)
    families.switch(former)
end

-- rows

function families.digits(number)
    return format('%014x', number)
end

function families.read_family(queue, task_id)
    local hash = queue.key .. ':' .. task_id
    local family = {key = hash .. ':family', names = hash .. ':names', queue = queue, id = task_id, held = 0, release = 0}
    local found = call('HMGET', family.key, unpack(FIELDS))
    for i, field in ipairs(FIELDS) do
        family[field] = i <= COUNTS and tonumber(found[i] or 0) or found[i] or ''
    end
    if family.life > 0 then
        local fields = {'held', 'named', 'ran', 'dropped', 'beside', 'release', 'told'} -- numbers
        for i, number in ipairs(call('HMGET', family.key, unpack(fields))) do
            family[fields[i]] = tonumber(number or 0)
        end
    end
    return family
end

-- What a sorted set of the shard calls a family, and the other way round.
local function member_of(family)
    return family.queue.name .. '\0' .. family.id
end

local function family_in(member)
    return families.read_family(families.queue_of(sub(member, 1, -16)), sub(member, -14))
end

function families.update(family, fields)
    local list = {}
    for field, value in pairs(fields) do
        family[field], list[#list + 1], list[#list + 2] = value, field, value
    end
    call('HSET', family.key, unpack(list))
end

-- A task does not expire before its deadline from now on.
local function drop_expiry(queue, task)
    local deadline = tonumber(task.deadline or nil)
    if task.expires and tonumber(task.expires) ~= deadline then
        require('order').look_at(queue, task, deadline)
    end
end

-- The family of a task, which has one from now on.
function families.family_of(queue, task)
    if not task.kin then
        task.kin, task.more = '1', true
        call('HSET', task.hash, 'kin', 1)
        require('order').has_more(task.hash)
        drop_expiry(queue, task)
    end
    return families.read_family(queue, task.id)
end

local function is_failed(entry)
    return entry[2] == 'child' and entry[3] ~= 'unfinished' and entry[3] ~= 'done'
end

-- An entry of a family as it is shown: {name, kind, state, value, queue and id of a child, 1 if it was swept, the number
-- of its end}, and its try; and whether it is there. Nothing if it never was.
function families.read_entry(family, name)
    local packed = call('HGET', family.key, ':' .. name)
    if packed then
        local kind, state, value, queue, child, swept, ended, try, life, together, its_token = cmsgpack.unpack(packed)
        local entry = {name, kind, state, value, queue, child, swept, ended, try = try, life = life, together = together,
            token = its_token}
        local is_of_now = try >= family.born and (life == 0 or life == family.life)
        return entry, is_of_now and (not is_failed(entry) or try == family.tries)
    end
end

function families.write_entry(family, entry)
    local _, kind, state, value, queue, child, swept, ended = unpack(entry)
    call('HSET', family.key, ':' .. entry[1], cmsgpack.pack(kind, state, value, queue, child, swept, ended, entry.try,
        entry.life, entry.together, entry.token))
end

local function failed_name(entry)
    return 'f' .. format('%08d', entry.try) .. entry[1]
end

-- Keep a new entry, in the place of one of an earlier try.
function families.add_entry(family, former, entry)
    if former and is_failed(former) then
        call('ZREM', family.names, failed_name(former))
    end
    entry.try, entry.life = family.tries, 0
    if family.named == 1 and (entry[2] ~= 'signal' or entry[3] ~= 'done') then
        entry.life = family.life
    end
    families.write_entry(family, entry)
    call('ZADD', family.names, 0, 'n' .. entry[1])
    if entry[3] == 'unfinished' then
        call('ZADD', family.names, 0, 'u' .. entry[1])
    end
end

-- The first name behind another one in a part of the names; nothing if it does not begin with a prefix.
function families.next_name(family, part, after, prefix)
    local from = after == '' and '[' .. part or '(' .. part .. after
    local to = '(' .. sub(part, 1, -2) .. string.char(string.byte(part, -1) + 1)
    local found = call('ZRANGEBYLEX', family.names, from, to, 'LIMIT', 0, 1)[1]
    local name = found and sub(found, #part + 1)
    return name and sub(name, 1, #prefix) == prefix and name
end

-- sweeps

-- Visit the unfinished children whose names begin so, behind this operation.
function families.sweep_from(family, prefix)
    families.update(family, {swept = prefix, swept_to = prefix})
    call('ZADD', P .. 'sweeping', 0, member_of(family))
    call('HDEL', P .. 'state', 'sweep_at')
    numbers.expiry = math.min(numbers.expiry or math.huge, numbers.now + SWEEP_PAUSE)
end

-- A child of a suspended task has failed: cancel the others, once.
local function sweep_failed(family)
    local prefix = family.prefix
    families.update(family, {prefix = ''})
    families.sweep_from(family, prefix)
end

-- places

-- The first time at which asking again could help is another one. A sweep that begins in this operation goes on in a while.
local function look_up_expiry()
    local time = due.set_expiry()
    numbers.expiry = time > 0 and time or numbers.now + SWEEP_PAUSE
end

-- A task waits until a time.
local function set_timeout(family, time)
    call('ZADD', P .. 'timeouts', time, member_of(family))
    families.update(family, {timed = 1})
    changes.due_at(time)
    look_up_expiry()
end

-- It does so no longer.
local function untime(family)
    if family.timed ~= '' then
        call('ZREM', P .. 'timeouts', member_of(family))
        families.update(family, {timed = ''})
        look_up_expiry()
    end
end

-- A task that is in no order and not leased is suspended or ending. The group of a root keeps its order meanwhile.
local function set_apart(queue, task, place)
    if task.group ~= '' then
        require('groups').pin(queue, task)
        require('groups').mark_delayed(queue, task, true)
    end
    drop_expiry(queue, task)
    call('ZADD', queue.key .. ':' .. place, tonumber(task.id, 16), task.id)
    call('HDEL', task.hash, 'lease', 'keep')
    call('HSET', task.hash, 'kin', place, 'attempts', task.attempts, 'deliveries', task.deliveries)
    if task.keep then
        call('HSET', task.hash, 'keep', 1)
    end
    if task.followed then
        require('order').notify_task_watchers(queue, task)
    end
end

-- It is so no longer.
function families.leave_place(queue, task)
    call('ZREM', queue.key .. ':' .. task.kin, task.id)
    call('HSET', task.hash, 'kin', 1)
    task.kin = '1'
end

-- A new task comes to its queue, which is late at a time.
function families.enter(queue, task, deadline, since)
    if task.group ~= '' then
        require('groups').count_in(queue, task.group)
    end
    if deadline < math.huge then
        call('HSET', task.hash, 'deadline', deadline)
        require('order').look_at(queue, task, deadline)
        changes.due_at(deadline)
    end
    queues.set(queue, 'put', queue.put + 1)
    queues.set(queue, 'tasks', queue.tasks + 1)
    require('order').enqueue(queue, task, since)
end

local function requeue(queue, task, since)
    families.leave_place(queue, task)
    if task.group ~= '' then
        require('groups').mark_delayed(queue, task, false)
    end
    require('order').requeue(queue, task, since)
end

-- A suspended task goes on.
local function wake(family)
    families.update(family, {awaited = '', prefix = ''})
    untime(family)
    call('ZREM', P .. 'sweeping', member_of(family))
    families.offering(family.queue, requeue, tasks.read_task(family.queue, family.id), math.min(family.since, numbers.now))
end

-- The entries of the children that have failed are gone.
local function end_try(family)
    families.update(family, {tries = family.tries + 1})
end

-- No child of a task that is ending is unfinished. What a script without releases needs is not made for them.
local function go_on(family)
    local releases = require('releases')
    releases.go_on(family)
end

-- Keep the end of a task in no order, or of its try, until its children and releases have ended; false if it has none. What
-- follows is {state, result, ttl}, or {since, and whether a try has ended}.
local function keep(queue, task, follows)
    local family = families.read_family(queue, task.id)
    if follows.retry and family.unfinished == 0 then
        end_try(family)
    end
    if family.unfinished == 0 and not (follows.state and family.held > 0) or not follows.state and not follows.retry then
        return false
    end
    families.update(family, {
        awaited = '', prefix = '', ending = follows.state or 'retry', result = follows.result or '', ttl = follows.ttl or '',
        since = follows.since or task.since, beside = family.life > 0 and 0 or nil,
        dropped = follows.state == 'done' and tonumber(task.token) or nil,
    })
    untime(family)
    set_apart(queue, task, 'ending')
    local follow = family.unfinished > 0 and families.sweep_from or go_on
    follow(family, '')
    return true
end

-- A task that is in no order and not leased has ended; "purged", it leaves no record. A release that is not done leaves a dead
-- letter: `as_letter` in engine/_rules.py.
local function finish_task(queue, task, state, result, ttl, session_ttl)
    if state ~= 'done' and state ~= 'dead' and call('HGET', task.hash .. ':family', 'release') then
        local reasons = {cancelled = 'cancelled by an operator', expired = 'its deadline has passed'}
        state, result, ttl = 'dead', reasons[state] or result, nil
    end
    if state ~= 'purged' then
        return endings.end_task(queue, task, state, result, ttl, session_ttl)
    end
    queues.set(queue, 'purged', queue.purged + 1)
    endings.leave_queue(queue, task)
    call('DEL', task.hash)
    require('order').notify_task_watchers(queue, task, true)
    families.ended(queue, task, state, '')
end

-- What follows for a task that was leased.
function families.settle_so(queue, task, follows, session_ttl)
    families.use(queue)
    if keep(queue, task, follows) then
        return
    elseif follows.state then
        finish_task(queue, task, follows.state, follows.result, follows.ttl, session_ttl)
    else
        require('order').return_task(queue, task, follows.since)
    end
    endings.write_endings()
end

-- A task that is not leased ends.
function families.end_untaken(queue, task, state, ttl)
    families.use(queue)
    if task.kin == '1' then
        task.since = call('ZSCORE', queue.key .. ':delayed', task.id) or require('order').since_of(queue, task)
        require('order').dequeue(queue, task)
    else
        task.since = families.read_family(queue, task.id).since
        families.leave_place(queue, task)
    end
    if not keep(queue, task, {state = state, ttl = ttl}) then
        finish_task(queue, task, state, '', ttl)
    end
    endings.write_endings()
end

-- A task that is ending has neither an unfinished child nor a release left.
function families.apply(family, task)
    local queue, state = family.queue, family.ending
    call('ZREM', P .. 'sweeping', member_of(family))
    families.update(family, {ending = ''})
    if state == 'retry' then
        end_try(family)
        return families.offering(queue, requeue, task, family.since)
    end
    families.leave_place(queue, task)
    local former = families.switch(queue)
    finish_task(queue, task, state, family.result, tonumber(family.ttl))
    endings.write_endings()
    families.switch(former)
end

-- A child has ended.
local function tell(child, state, result)
    local queue = families.queue_of(child.parent_queue)
    local family = families.read_family(queue, families.digits(child.parent))
    local entry = families.read_entry(family, child.name)
    local ends = family.ends + 1 - child.release
    entry[3], entry[4], entry[8], entry.try = state, result, child.release == 1 and 0 or ends, family.tries
    families.write_entry(family, entry)
    call('ZREM', family.names, 'u' .. child.name)
    local failed = is_failed(entry)
    if failed then
        call('ZADD', family.names, 0, failed_name(entry))
    end
    families.update(family, {unfinished = family.unfinished - 1, ends = ends})
    local task = tasks.read_task(queue, family.id)
    if task.kin == 'ending' and family.held > 0 and (family.unfinished == 0 or family.beside == 1) then
        go_on(family)
    elseif task.kin == 'ending' and family.unfinished == 0 then
        families.apply(family, task)
    elseif task.kin == 'suspended' and family.awaited == '' then
        if family.unfinished <= family.rest then
            wake(family)
        elseif failed and family.prefix ~= '' and sub(child.name, 1, #family.prefix) == family.prefix then
            sweep_failed(family)
        end
    end
end

-- A task with a family has ended: its parent is told, and what it had is forgotten, unless it is a dead letter.
function families.ended(queue, task, state, result)
    families.use(queue)
    endings.write_endings()
    local family = families.read_family(queue, task.id)
    local tells = family.parent > 0 and family.told ~= 1
    untime(family)
    if state ~= 'dead' then
        call('ZREM', P .. 'sweeping', member_of(family))
        call('DEL', family.key, family.names)
        call('HDEL', task.hash, 'kin')
    elseif family.release == 1 then
        families.update(family, {told = 1, awaited = '', prefix = ''}) -- it may have been suspended
    end
    if tells then
        tell(family, state, result)
    end
end

-- Have a task end as cancelled or in another state, or its holder cancel it; the caller offers what can be taken.
function families.cancel(queue, task, ttl, state)
    families.use(queue)
    if task.token then
        if require('order').request_stop(queue, task, ttl) then
            local family = families.read_family(queue, task.id)
            if family.unfinished > 0 then
                families.sweep_from(family, '')
            end
        end
    elseif task.kin ~= 'ending' then
        families.end_untaken(queue, task, state or 'cancelled', ttl)
    else
        local family = families.read_family(queue, task.id)
        if family.ending == 'retry' then
            families.update(family, {ending = state or 'cancelled', ttl = ttl or ''})
        end
    end
end

-- Visit some of the children that are to be cancelled, and leave the others for a later operation.
function families.sweep()
    local member, left = call('ZRANGE', P .. 'sweeping', 0, 0)[1], families.SWEEP_STEPS
    while member and left > 0 do
        left = left - 1
        local family = family_in(member)
        local name = families.next_name(family, 'u', family.swept_to, family.swept)
        if name then
            families.update(family, {swept_to = name})
            local entry = families.read_entry(family, name)
            entry[7] = 1
            families.write_entry(family, entry)
            local queue = families.queue_of(entry[5])
            families.use(queue)
            families.offering(queue, families.cancel, tasks.read_task(queue, families.digits(entry[6])), EXPIRED_TTL)
        else
            call('ZREM', P .. 'sweeping', member)
            if family.held > 0 and family.unfinished == 0 and family.ending ~= '' then
                families.use(family.queue)
                go_on(family)
                left = 0
            end
        end
        member = call('ZRANGE', P .. 'sweeping', 0, 0)[1]
    end
    if member then
        call('HSET', P .. 'state', 'sweep_at', format('%016d', numbers.now + SWEEP_PAUSE))
        changes.due_at(numbers.now + SWEEP_PAUSE)
    else
        call('HDEL', P .. 'state', 'sweep_at')
    end
    numbers.expiry = due.set_expiry()
end

-- Write what has changed in all queues.
function families.close()
    for _, queue in pairs(open) do
        queues.save_queue(queue)
    end
    open, by_queue, current = {}, {}, nil
end

function families.finish()
    if call('EXISTS', P .. 'sweeping') == 1 and call('HEXISTS', P .. 'state', 'sweep_at') == 0 then
        families.sweep()
    end
    families.close()
end

-- settling

-- Suspend a task that is in no order; false if nothing is missing that it waits for.
local function wait(queue, task, awaited, prefix, rest, timeout)
    if awaited == '' and not task.kin then
        return false
    end
    local family = families.family_of(queue, task)
    local _, is_there = families.read_entry(family, awaited)
    if awaited ~= '' and is_there or awaited == '' and family.unfinished <= rest then
        return false
    end
    families.update(family, {awaited = awaited, prefix = prefix, rest = rest, since = task.since})
    set_apart(queue, task, 'suspended')
    if timeout ~= 0 then
        set_timeout(family, numbers.now + timeout)
        takers.hint_takers(queue, 1) -- an idle taker must know, to ask in time
    end
    if prefix ~= '' and families.next_name(family, 'f' .. format('%08d', family.tries), prefix, prefix) then
        sweep_failed(family)
    end
    return true
end

-- What follows a verdict on a task with a family, or a verdict that waits: `after_verdict` in engine/_rules.py.
function families.settle(queue, task, verdict, time, result, session_ttl)
    families.use(queue)
    local unfinished = task.kin and families.read_family(queue, task.id).unfinished or 0
    local follows
    if tasks.is_late(task) and (verdict ~= 'done' or unfinished > 0) then
        follows = {state = 'expired', result = '', ttl = EXPIRED_TTL}
    elseif verdict == 'done' and unfinished == 0 or verdict == 'discarded' or verdict == 'cancelled' or verdict == 'dead' then
        task.attempts = task.attempts + (verdict == 'dead' and 1 or 0)
        follows = {state = verdict, result = result, ttl = time >= 0 and time or nil}
    elseif task.stop then
        follows = {state = 'cancelled', result = '', ttl = task.stop >= 0 and task.stop or nil}
    elseif verdict == 'retry' then
        task.attempts = task.attempts + 1
        task.deliveries = task.attempts
        follows = {since = numbers.now + time, retry = true}
    elseif verdict == 'give back' or verdict == 'postpone' then
        local is_anew = verdict == 'postpone' and result == 'anew'
        task.attempts = is_anew and 0 or task.attempts
        local has_begun = is_anew or verdict == 'postpone' and result == ''
        task.deliveries = has_begun and task.attempts or task.deliveries - 1
        follows = {since = verdict == 'postpone' and numbers.now + time or task.since}
    else
        task.deliveries = task.attempts
        follows = {since = task.since}
    end
    if not follows.state and verdict ~= 'give back' and verdict ~= 'done' and task.group ~= '' then
        require('groups').pin(queue, task)
    end
    local waits = not follows.state and (sub(verdict, 1, 4) == 'wait' or verdict == 'done')
    local rest = verdict == 'wait for end' and tonumber(result) or 0
    local awaited, prefix = verdict == 'wait for' and result or '', verdict == 'wait' and result or ''
    if not waits or not wait(queue, task, awaited, prefix, rest, verdict == 'wait for' and time or 0) then
        families.settle_so(queue, task, follows, session_ttl)
    end
end

-- entries

-- Keep a value or a signal, and wake the task if it waits for that.
function families.add_value(family, name, kind, state, value)
    families.update(family, {total = family.total + 1})
    families.add_entry(family, families.read_entry(family, name), {name, kind, state, value, '', 0, 0, 0})
    if name ~= '' and family.awaited == name then
        wake(family)
    end
end

-- The entry that is awaited did not come in time.
function families.time_out(member)
    local family = family_in(member)
    families.use(family.queue)
    untime(family)
    families.add_value(family, family.awaited, 'signal', 'expired', '')
end

-- All entries are gone: the task has become another one.
function families.begin_anew(queue, task)
    local family = families.read_family(queue, task.id)
    families.update(family, {tries = family.tries + 1, born = family.tries + 1})
end

-- Revive a dead letter -> false if it is a child, and no release. Of a life in which a release ran, entries are gone.
function families.revive_root(queue, task_id)
    local family = families.read_family(queue, task_id)
    if family.parent > 0 and family.release ~= 1 then
        return false
    elseif family.ran == 1 then
        families.update(family, {life = family.life + 1, named = 0, ran = 0})
    end
    end_try(family)
    return true
end

return families
