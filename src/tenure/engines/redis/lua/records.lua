-- Single tasks, and the administration of a queue. ARGV[3] is the operation.
local changes = require('changes')
local dead_letters = require('dead_letters')
local endings = require('endings')
local keys = require('keys')
local numbers = require('numbers')
local order = require('order')
local producers = require('producers')
local queues = require('queues')
local session_items = require('session_items')
local steps = require('steps')
local takers = require('takers')
local task_lists = require('task_lists')
local tasks = require('tasks')
local waits = require('waits')

if numbers.is_due then
    return 'more'
end

local operations = {}

-- ARGV: queue, id, token, data -> ok, refused, requested
function operations.progress(name)
    local queue = {name = name, key = P .. name}
    local task = tasks.read_task(queue, task_lists.digits(ARGV[5]))
    if not task or not task.token or tonumber(task.token) ~= tonumber(ARGV[6]) then
        return 'refused'
    end
    call('HSET', task.hash, 'progress', ARGV[7])
    if task.followed then
        order.notify_task_watchers(queue, task)
    end
    return task.stop and call('ZSCORE', P .. task.session .. ':stops', task.token .. ' ' .. name) and 'requested' or 'ok'
end

-- ARGV: queue, producer -> left, released, unknown
function operations.leave(name)
    local queue = queues.read_queue(name)
    local answer = producers.remove_producer(queue, ARGV[5])
    queues.save_queue(queue)
    return answer
end

-- ARGV: queue, id, session that watches ("": none) -> outcome, unfinished, unknown, gone
function operations.get_result(name)
    if ARGV[6] ~= '' and not session_items.process_of(ARGV[6]) then
        return 'gone'
    end
    local task_id = task_lists.digits(ARGV[5])
    local key = P .. name .. ':' .. task_id
    local found = call('HMGET', key, 'state', 'result', 'attempts', 'expires', 'lease', 'kin')
    if found[1] then
        if found[4] and tonumber(found[4]) <= numbers.now then
            return 'unknown'
        end
        return {'outcome', found[1], found[2], tonumber(found[3] or 0)}
    elseif call('EXISTS', key) == 0 then
        return 'unknown'
    end
    if ARGV[6] ~= '' then
        session_items.subscribe_once(ARGV[6], key, 'watch')
        order.has_more(key)
    end
    local due_time = tonumber(call('ZSCORE', P .. name .. ':delayed', task_id) or 0)
    local apart = (found[6] or '1') ~= '1' and found[6]
    local state = found[5] and 'leased' or apart or due_time > numbers.now and 'delayed' or 'waiting'
    return {'unfinished', state, waits.ask_again_in()}
end

-- Cancel a task that has not ended, or ask its holder to do so; false if it has. The ttl of its record is ARGV[6].
local function cancel(queue, task_id)
    local task, ttl = tasks.read_task(queue, task_id), tonumber(ARGV[6])
    if not task or task.kin == 'held' then
        return false
    elseif task.kin then
        require('families').cancel(queue, task, ttl)
    elseif task.token then
        order.request_stop(queue, task, ttl)
    else
        order.dequeue(queue, task)
        endings.end_task(queue, task, 'cancelled', '', ttl)
        endings.write_endings()
    end
    return true
end

local function set_field(task, field, value, usual)
    if value == usual then
        call('HDEL', task.hash, field)
    else
        call('HSET', task.hash, field, value)
    end
end

-- A task that is in no order is of another group.
local function change_group(queue, task, group)
    local former = {id = task.id, group = task.group}
    task.group = group
    set_field(task, 'group', group, '')
    if group ~= '' then
        require('groups').count_in(queue, group)
    end
    if former.group ~= '' then
        require('groups').count_out(queue, former)
    end
end

-- Make a task that no taker holds ready after ARGV[7] ("": when it would be), with another payload, priority or group
-- (ARGV[8] to ARGV[10], "": its own); false if there is none.
local function postpone(queue, task_id)
    local task, delay, payload, priority, group = tasks.read_task(queue, task_id), unpack(ARGV, 7, 10)
    if not task or task.token or (task.kin or '1') ~= '1' then
        return false
    elseif payload ~= '' then
        call('HSET', task.hash, 'payload', sub(payload, 2))
    end
    if delay .. priority .. group == '' then
        order.notify_task_watchers(queue, task)
        return true
    end
    local since = delay ~= '' and numbers.now + delay
        or tonumber(call('ZSCORE', queue.key .. ':delayed', task_id) or math.min(numbers.now, order.since_of(queue, task)))
    order.dequeue(queue, task)
    if priority ~= '' then
        task.priority = tonumber(priority)
        set_field(task, 'priority', priority, '0')
    end
    if group ~= '' and sub(group, 2) ~= task.group then
        change_group(queue, task, sub(group, 2))
    end
    order.requeue(queue, task, since)
    tasks.write()
    if queue.producers > 0 then
        producers.admit(queue)
    end
    return true
end

-- A dead task is ready again; false if another one has its key.
local function revive(queue, task_id)
    local key, its_id = queue.key .. ':' .. task_id, tonumber(task_id, 16)
    local found = call('HMGET', key, 'state', 'ended', 'priority', 'key', 'group', 'kin')
    if found[1] ~= 'dead' or found[4] and (keys.owner_of(queue, found[4]) or its_id) ~= its_id
        or found[6] and not require('families').revive_root(queue, task_id) then
        return false
    elseif found[4] then
        call('HSET', queue.key .. ':keys', found[4], its_id)
        call('HSET', key, 'first', NOW)
    end
    call('HDEL', key, 'state', 'expires', 'result', 'ended', 'attempts', 'deliveries')
    local _, seq = dead_letters.ending_of(found[2])
    dead_letters.remove_dead_letter(queue, task_id, seq)
    queues.set(queue, 'tasks', queue.tasks + 1)
    if found[5] then
        require('groups').count_in(queue, found[5])
    end
    order.enqueue(queue, {id = task_id, priority = tonumber(found[3] or 0), group = found[5] or ''}, numbers.now)
    tasks.write()
    return true
end

-- Delete a task that is not leased, or the record of a task; false for any other task, and for a release.
local function purge(queue, task_id)
    local key, task = queue.key .. ':' .. task_id, tasks.read_task(queue, task_id)
    if task then
        if task.token or (task.kin or '1') ~= '1' or task.kin and call('HGET', key .. ':family', 'release') then
            return false
        elseif task.kin then
            require('families').end_untaken(queue, task, 'purged')
            return true
        end
        order.dequeue(queue, task)
        queues.set(queue, 'purged', queue.purged + 1)
        endings.leave_queue(queue, task)
        call('DEL', key)
        order.notify_task_watchers(queue, task, true)
        return true
    end
    local state, expires, ended = unpack(call('HMGET', key, 'state', 'expires', 'ended'))
    if not state or expires and tonumber(expires) <= numbers.now then
        return false
    end
    local _, seq = dead_letters.ending_of(ended)
    if state == 'dead' then
        dead_letters.purge_dead_letter(queue, task_id, seq)
        return true
    elseif not expires then
        queues.set(queue, 'kept', queue.kept - 1)
    end
    call('DEL', key)
    dead_letters.unlist_ending(queue, state, task_id, seq)
    return true
end

local MOVES = {cancelled = cancel, delayed = postpone, waiting = revive, purged = purge}

-- The state that is shown of a task, which may have ended; nil if there is none.
local function state_of(queue, task_id)
    local key = queue.key .. ':' .. task_id
    local found = call('HMGET', key, 'state', 'expires', 'lease', 'kin', 'payload')
    if found[1] then
        return (not found[2] or tonumber(found[2]) > numbers.now) and found[1] or nil
    elseif found[3] then
        return 'leased'
    elseif (found[4] or '1') ~= '1' then
        return found[4]
    end
    local due_time = tonumber(call('ZSCORE', queue.key .. ':delayed', task_id) or 0)
    return found[5] and (due_time > numbers.now and 'delayed' or 'waiting')
end

-- ARGV: queue, where to, ttl ("": for good), delay ("": as before), "=" and the payload, priority, "=" and the group ("":
-- as before), the state of which the tasks are ("": any), then ids -> changed: count
function operations.move(name)
    local queue, count = queues.read_queue(name), 0
    for i = 12, #ARGV do
        local task_id = task_lists.digits(ARGV[i])
        if ARGV[11] == '' or ARGV[11] == state_of(queue, task_id) then
            count = count + (MOVES[ARGV[5]](queue, task_id) and 1 or 0)
        end
    end
    takers.offer_tasks(queue, takers.newly_takeable)
    if package.loaded.families then
        require('families').finish()
    end
    queues.save_queue(queue)
    return {'changed', count}
end

-- The groups of which another number of tasks can be taken if at most so many are leased: all of them have more tasks.
local function groups_above(queue, one, other)
    local least = math.min(one == 0 and math.huge or one, other == 0 and math.huge or other)
    local names = least < math.huge and call('ZRANGEBYSCORE', queue.key .. ':sizes', '-inf', format('(%d', -least)) or {}
    require('groups').read_groups(queue, names)
    return names
end

-- Set the rates -> all groups if the rate of groups changes, else these. What could be taken of them before is known then.
local function set_rates(queue, names, is_other, rate, group_rate)
    local groups = require('groups')
    local every, burst = group_rate[1], group_rate[2]
    local before, of = queues.paced[queue] or {group_every = 0, group_burst = 1}, {}
    local is_new_rate = every ~= before.group_every or burst ~= before.group_burst
    if is_new_rate or is_other and queues.paced[queue] then
        names = call('ZRANGE', queue.key .. ':sizes', 0, -1)
    end
    for _, name in ipairs(is_new_rate and call('ZRANGE', queue.key .. ':idle', 0, -1) or {}) do
        names[#names + 1] = name
    end
    groups.read_groups(queue, names)
    for i, name in ipairs(names) do
        of[i] = groups.read_group(queue, name)
    end
    require('paces').set_rates(queue, rate[1], rate[2], every, burst, of)
    return names
end

local DEFAULTS = {
    max_size = '10000', aging = 'null', max_deliveries = '20', dead = '15552000.0', payloads = 'false', results = '3600.0',
    keys = 'null', tracebacks = 'true', group_limit = '0', hold = 'true', weights = '[]', group_size = '0', rate = 'null',
    group_rate = 'null',
}

-- The record: `settings` is a hash of the fields {since when, the length of who set it, who set it, and the value as JSON}.
local function read_record(queue)
    local record, found = {}, queue.settings ~= '' and call('HGETALL', queue.key .. ':settings') or {}
    for i = 1, #found, 2 do
        local at, length, rest = match(found[i + 1], '^(%d+) (%d+) (.*)$')
        record[found[i]] = {at = tonumber(at), by = sub(rest, 1, length), value = sub(rest, length + 1)}
    end
    return record
end

-- The queue has other settings, with so many weights, or as many as before if that is nil.
local function have_settings(queue, record, weighted)
    local groups = require('groups')
    local known, was_open = groups.known_of(queue), queues.paced[queue] and queues.paced[queue].open
    local before = queue.takers > 0 and order.first_due(queue)
    local function value(name)
        return record[name] and record[name].value or DEFAULTS[name]
    end
    local function duration(name)
        local seconds = tonumber(value(name))
        return seconds and format('%d', seconds * 1e6 + 0.5) or '-'
    end
    local function rate(name)
        local every, burst = match(value(name), '^%[(%S+), (%S+)%]$')
        return {tonumber(every or 0) * 1e6, tonumber(burst or 1)}
    end
    local per_group, size, hold = tonumber(value('group_limit')), tonumber(value('group_size')), value('hold') == 'true'
    weighted = weighted or tonumber(known.weighted or 0)
    local is_other = per_group ~= known.per_group or hold ~= known.hold
    local changed = is_other and groups_above(queue, per_group, known.per_group) or {}
    changed = set_rates(queue, changed, is_other, rate('rate'), rate('group_rate'))
    known.per_group, known.size, known.hold, known.weighted = per_group, size, hold, weighted > 0 and weighted
    queues.set(queue, 'settings', format('%s %s %s %s %d %.0f %d %d %d %d', value('max_size'), duration('aging'),
        value('max_deliveries'), duration('dead'), value('payloads') == 'true' and 1 or 0, numbers.new_token(), per_group, size,
        hold and 1 or 0, weighted))
    for _, group in ipairs(changed) do
        groups.refresh(queue, groups.read_group(queue, group))
    end
    producers.admit_everywhere(queue)
    takers.offer_tasks(queue, was_open == 0 and require('paces').count_waiting(queue) or takers.newly_takeable)
    order.offer_sooner(queue, before)
end

-- ARGV: queue, who sets them, 1 if only fields that are missing, number of weights, names and weights; names of fields and
-- values -> configured: name, value, age, and who has set it, of each; the revision
function operations.configure(name)
    local queue, is_other, first, weighted = queues.read_queue(name), false, 8 + 2 * ARGV[7], nil
    local record, RECORD, WEIGHTS = read_record(queue), queue.key .. ':settings', queue.key .. ':weights'
    if #ARGV >= first and queue.settings == '' then
        call('DEL', RECORD, WEIGHTS)
    end
    for i = first, #ARGV, 2 do
        local field, value, known = ARGV[i], ARGV[i + 1], record[ARGV[i]]
        if value ~= (known and known.value or DEFAULTS[field]) and not (known and ARGV[6] == '1') then
            is_other, record[field] = true, {at = numbers.now, by = ARGV[5], value = value}
            call('HSET', RECORD, field, format('%s %d ', NOW, #ARGV[5]) .. ARGV[5] .. value)
            weighted = field == 'weights' and tonumber(ARGV[7]) or weighted
        end
    end
    if weighted then
        call('DEL', WEIGHTS)
        for i = 8, first - 1, 2 * steps.most do
            call('HSET', WEIGHTS, unpack(ARGV, i, math.min(i + 2 * steps.most - 1, first - 1)))
        end
    end
    if is_other then
        have_settings(queue, record, weighted)
        queue.expires = -1 -- what is new expires too
    end
    if #ARGV >= first and queue.settings ~= '' then
        queues.save_queue(queue)
    end
    local fields, last = {}, 0
    for field, one in pairs(record) do
        fields[last + 1], fields[last + 2], fields[last + 3], fields[last + 4] = field, one.value, numbers.now - one.at, one.by
        last = last + 4
    end
    local _, _, _, _, _, revision = queues.read_settings(queue)
    return {'configured', fields, revision}
end

-- How many tasks can be taken, at most about so many.
local function count_takeable(queue, most)
    local plain = call('ZCARD', queue.key .. ':ready') + queue.ranked
    if queue.grouped == 0 then
        return plain
    end
    local names, count = call('ZRANGE', queue.key .. ':tags', 0, most - 1), 0
    require('groups').read_groups(queue, names)
    for _, name in ipairs(names) do
        count = count + require('groups').read_group(queue, name).takeable
    end
    return count
end

-- ARGV: queue, paused (0 or 1), for how long to hold it off ("": it is paused or resumed), the group that is held off ("":
-- all) -> ok
function operations.set_paused(name)
    local queue, holds = queues.read_queue(name), ARGV[6] ~= ''
    if not holds and ARGV[5] == '1' then
        queues.set(queue, 'paused', 1)
        queues.save_queue(queue)
        return 'ok'
    end
    local before, was_open = queue.takers > 0 and order.first_due(queue), queues.paced[queue] and queues.paced[queue].open
    if holds or queues.paced[queue] then
        require('paces').hold_off(queue, ARGV[7], numbers.now + (tonumber(ARGV[6]) or 0))
    end
    if holds then
        takers.offer_tasks(queue, was_open == 0 and require('paces').count_waiting(queue) or takers.newly_takeable)
    else
        queues.set(queue, 'paused', 0)
        local ready = count_takeable(queue, task_lists.MOST + 1)
        takers.offer_tasks(queue, math.min(ready, task_lists.MOST))
        -- very many takers are hinted in several operations
        steps.is_unfinished = ready > task_lists.MOST and queue.takers > 0
    end
    order.offer_sooner(queue, before)
    queues.save_queue(queue)
    return 'ok'
end

-- How many groups have a task that is ready, delayed or leased.
local function count_groups(queue)
    local seen, count = {[''] = true}, 0
    local function see(name)
        count, seen[name] = count + (seen[name] and 0 or 1), true
    end
    local function see_all(key)
        for _, task_id in ipairs(call('ZRANGE', key, 0, -1)) do
            see(call('HGET', queue.key .. ':' .. task_id, 'group') or '')
        end
    end
    see_all(queue.key .. ':ages')
    see_all(queue.key .. ':delayed')
    see_all(queue.key .. ':suspended')
    see_all(queue.key .. ':ending')
    for _, session in ipairs(call('SMEMBERS', queue.key .. ':lessees')) do
        see_all(P .. session .. ' ' .. queue.name .. ':leases')
    end
    return count
end

-- The time until the next task of the queue may start; the rates of the queue and of its groups; and for how long it is held
-- off.
local function shown_pace(queue)
    local pace = queues.paced[queue]
    local function rate(every, burst)
        return every > 0 and {format('%.17g', every / 1e6), format('%.17g', burst)}
    end
    if not pace then
        return 0, false, false, 0
    end
    local starts_in = require('paces').starts_in(pace.starts_at)
    return starts_in, rate(pace.every, pace.burst), rate(pace.group_every, pace.group_burst), pace.paced_at and starts_in or 0
end

-- ARGV: queue, session that watches ("": none), recount (0 or 1) -> counts, gone
function operations.count(name)
    local queue = queues.read_queue(name)
    if ARGV[5] ~= '' then
        if not session_items.process_of(ARGV[5]) then
            return 'gone'
        end
        if queue.tasks > 0 then
            session_items.subscribe_once(ARGV[5], queue.key .. ':queue', 'watch')
        end
    end
    local in_turns = call('ZCARD', queue.key .. ':turns')
    local ready, delayed = call('ZCARD', queue.key .. ':ready') + queue.ranked + in_turns, queue.delayed
    local group_counter = call('ZCARD', queue.key .. ':sizes')
    local suspended, in_ending = call('ZCARD', queue.key .. ':suspended'), call('ZCARD', queue.key .. ':ending')
    local unfinished, dead, grouped = queue.tasks, queue.dead, group_counter
    if ARGV[6] == '1' then
        ready = call('ZCARD', queue.key .. ':ready') + call('ZCARD', queue.key .. ':ranked') + in_turns
        grouped = count_groups(queue)
        delayed = call('ZCARD', queue.key .. ':delayed')
        unfinished, dead = ready + delayed + suspended + in_ending, 0
        for _, session in ipairs(call('SMEMBERS', queue.key .. ':lessees')) do
            unfinished = unfinished + call('ZCARD', P .. session .. ' ' .. name .. ':leases')
        end
        for _, number in ipairs(call('ZRANGE', queue.key .. ':dead', 0, -1)) do
            dead = dead + call('ZCARD', queue.key .. ':dead:' .. number)
        end
    end
    local soon = delayed > 0 and call('ZCOUNT', queue.key .. ':delayed', '-inf', numbers.now) or 0
    local oldest = numbers.now
    for _, set_name in ipairs({'ready', 'aged', 'ages', 'delayed'}) do
        local since = call('ZRANGE', queue.key .. ':' .. set_name, 0, 0, 'WITHSCORES')[2]
        oldest = math.min(oldest, tonumber(since or numbers.now))
    end
    local starts_in, rate, group_rate, held_off = shown_pace(queue)
    return {
        'counts', queue.put, ready + soon, delayed - soon, unfinished - ready - delayed - suspended - in_ending, queue.done, dead,
        queue.cancelled, queue.expired, queue.discarded, queue.purged, queue.reserved, queue.producers + queue.lined,
        grouped, queue.paused, numbers.now - oldest,
        call('HGETALL', queue.key .. ':cursors'),
        waits.ask_again_in(), numbers.now, queues.size_of(queue), group_counter,
        suspended, in_ending, starts_in, rate, group_rate, held_off, call('ZCARD', queue.key .. ':held'),
    }
end

local answer = operations[ARGV[3]](ARGV[4])
changes.save_numbers()
return steps.is_unfinished and 'more' or answer
