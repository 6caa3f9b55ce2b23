-- Single tasks, and the administration of a queue.

-- ARGV: queue, id, token, data -> ok, refused, requested
operations.progress = function()
    local name, id = ARGV[4], digits(ARGV[5])
    local task = task_of(name, id)
    if not task or not task.token or task.token ~= tonumber(ARGV[6]) then
        return 'refused'
    end
    task.progress = ARGV[7]
    save_task(name, id, task)
    return task.stop and 'requested' or 'ok'
end

-- ARGV: queue, id, session that watches ("": none) -> outcome, unfinished, unknown, gone
operations.result = function()
    local name, id = ARGV[4], digits(ARGV[5])
    local session = ARGV[6] ~= '' and session_of(ARGV[6])
    if ARGV[6] ~= '' and not session then
        return 'gone'
    end
    local task = task_of(name, id)
    if task then
        if session then
            watch(session, 'task' .. tag(name) .. id)
        end
        return {'unfinished', state_of(task), task.progress or '', ask_again_in()}
    end
    local record = record_of(name, id)
    if not record or (record.expires and record.expires <= now) then
        return 'unknown'
    end
    return {'outcome', record.state, record.result, record.attempts or 0}
end

-- ARGV: queue, id, ttl ("": for good) -> cancelled, requested, unknown
operations.cancel = function()
    local name, id, ttl = ARGV[4], digits(ARGV[5]), tonumber(ARGV[6])
    local task = task_of(name, id)
    if not task then
        return 'unknown'
    elseif not task.token then
        local queue = queue_of(name)
        step_out(name, queue, id, task)
        end_task(name, queue, id, task, 'cancelled', '', ttl)
        write()
        save_queue(name, queue)
        return 'cancelled'
    elseif not task.stop then
        task.stop, task.ttl = digits(number('id')), ttl
        save_task(name, id, task)
        enter(stop_place(name, task))
        hint(task.process, name, format('%d', task.token), 'stop')
    end
    return 'requested'
end

-- ARGV: queue, 1 if only some, their ids -> changed: count, 1 if there are more
operations.requeue = function()
    local name = ARGV[4]
    local queue, changed, more = queue_of(name), 0, 0
    local wanted = {}
    for i = 6, #ARGV do
        wanted[digits(ARGV[i])] = true
    end
    walk('y:' .. tag(name) .. LETTERS.dead, '', function(place)
        local id = string.sub(place, 17)
        local record = record_of(name, id)
        local in_use = record.key and call('HEXISTS', ROWS, 'K:' .. both(name, record.key)) == 1
        if (ARGV[5] == '1' and not wanted[id]) or in_use then
            return false
        elseif changed == CAP then
            more = 1
            return true
        end
        changed = changed + 1
        leave('y:' .. tag(name) .. LETTERS.dead .. place)
        queue.dead, queue.tasks = queue.dead - 1, queue.tasks + 1
        local task = {priority = record.priority, key = record.key, ready_at = now, payload = record.payload}
        if task.key then
            call('HSET', ROWS, 'K:' .. both(name, task.key), id)
        end
        enter('u:' .. tag(name) .. id)
        return_task(name, queue, id, task)
    end)
    save_queue(name, queue)
    return {'changed', changed, more}
end

local function purge_unfinished(name, queue, state, cap)
    local count = 0
    walk('u:' .. tag(name), '', function(place)
        if count == cap then
            return true
        end
        local id = place
        local task = task_of(name, id)
        if state_of(task) == state then
            count = count + 1
            step_out(name, queue, id, task)
            queue.purged = queue.purged + 1
            remove_task(name, queue, id, task)
            write()
            delete('T:' .. tag(name) .. id, 'Y:' .. tag(name) .. id)
            fire_finished(name, id)
        end
    end)
    return count
end

local function purge_ended(name, queue, state, cap)
    local count = 0
    walk('y:' .. tag(name) .. LETTERS[state], '', function(place)
        if count == cap then
            return true
        end
        local id = string.sub(place, 17)
        local record = record_of(name, id)
        if not record.expires or record.expires > now then
            count = count + 1
            forget_record(name, id, record)
            if state == 'dead' then
                queue.dead, queue.purged = queue.dead - 1, queue.purged + 1
            end
        end
    end)
    return count
end

-- ARGV: queue, then states, in the order in which they are to be purged -> changed: count, 1 if there are more
operations.purge = function()
    local name, left = ARGV[4], CAP
    local queue = queue_of(name)
    for i = 5, #ARGV do
        local unfinished_ones = ARGV[i] == 'waiting' or ARGV[i] == 'delayed'
        left = left - (unfinished_ones and purge_unfinished or purge_ended)(name, queue, ARGV[i], left)
    end
    save_queue(name, queue)
    return {'changed', CAP - left, left == 0 and 1 or 0}
end

local function browse_unfinished(name, state, after, limit)
    local records = {}
    walk('u:' .. tag(name), digits(after), function(place)
        if #records == limit then
            return true
        end
        local id = place
        local task = task_of(name, id)
        if state_of(task) == state then
            records[#records + 1] = {
                tonumber(id), tonumber(id), state, payload_of(name, id, task), task.priority or 0, task.key and 1 or 0,
                task.key or '', task.attempts or 0, task.deliveries or 0, '', ago(task.ready_at),
            }
        end
    end)
    return records
end

local function browse_ended(name, states, after, limit)
    local records = {}
    for _, state in ipairs(states) do
        local found = 0
        walk('y:' .. tag(name) .. LETTERS[state], digits(after) .. '\255', function(place)
            local id = string.sub(place, 17)
            local record = record_of(name, id)
            if found == limit then
                return true
            elseif not record.expires or record.expires > now then
                found = found + 1
                records[#records + 1] = {
                    record.seq, tonumber(id), state, payload_of(name, id, record), record.priority or 0,
                    record.key and 1 or 0, record.key or '', record.attempts or 0, record.deliveries or 0,
                    record.result, ago(record.ended_at),
                }
            end
        end)
    end
    table.sort(records, function(one, other) return one[1] < other[1] end)
    for i = #records, limit + 1, -1 do
        records[i] = nil
    end
    return records
end

-- ARGV: queue, state, after, limit -> page
operations.browse = function()
    local name, state, after, limit = ARGV[4], ARGV[5], tonumber(ARGV[6]), tonumber(ARGV[7])
    if state == 'ended' then
        return {'page', browse_ended(name, {'done', 'dead', 'discarded', 'cancelled', 'expired'}, after, limit)}
    elseif state == 'dead' then
        return {'page', browse_ended(name, {'dead'}, after, limit)}
    end
    return {'page', browse_unfinished(name, state, after, limit)}
end

-- ARGV: queue, paused (0 or 1) -> ok
operations.set_paused = function()
    local name = ARGV[4]
    local queue = queue_of(name)
    queue.paused = ARGV[5] == '1'
    offer_tasks(name, queue, queue.ready)
    save_queue(name, queue)
    return 'ok'
end

local function size_of(prefix, last)
    return call('ZLEXCOUNT', ORDER, '[' .. prefix, '(' .. prefix .. (last or '\255'))
end

-- Since when the task that has been ready for longest is so.
local function longest_ready(name)
    local plain, other = first('a:' .. tag(name) .. PLAIN), first('o:' .. tag(name))
    return math.min(
        plain and tonumber(string.sub(plain, -32, -17)) or math.huge,
        other and tonumber(string.sub(other, -32, -17)) or math.huge
    )
end

-- ARGV: queue, session that watches ("": none), recount (0 or 1) -> counts, gone
operations.count = function()
    local name = ARGV[4]
    if ARGV[5] ~= '' then
        local session = session_of(ARGV[5])
        if not session then
            return 'gone'
        end
        watch(session, 'drain' .. name)
    end
    local queue = queue_of(name)
    if ARGV[6] == '1' then
        queue.tasks, queue.ready = size_of('u:' .. tag(name)), size_of('a:' .. tag(name))
        queue.delayed, queue.dead = size_of('d:' .. tag(name)), size_of('y:' .. tag(name) .. LETTERS.dead)
    end
    local soon = queue.delayed > 0 and size_of('d:' .. tag(name), digits(now + 1)) or 0
    local oldest = queue.ready > 0 and longest_ready(name) or now
    if soon > 0 then
        oldest = math.min(oldest, (first_delayed(name)))
    end
    local cursors = {}
    for cursor, value in pairs(row('C:' .. name) or {}) do
        cursors[#cursors + 1] = {cursor, value}
    end
    return {
        'counts', queue.put, queue.ready + soon, queue.delayed - soon, queue.tasks - queue.ready - queue.delayed, queue.done,
        queue.dead, queue.cancelled, queue.expired, queue.discarded, queue.purged, queue.reserved, queue.producers,
        queue.paused and 1 or 0, ago(oldest), cursors, ask_again_in(),
    }
end
