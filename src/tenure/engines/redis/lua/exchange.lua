-- Exchange, for a taker that was idle and has nothing to settle, as it mostly goes: nothing is due, outdated or delayed,
-- and no task is to be stopped. It does what `exchange` in takers.lua does then; see acquire.lua for why.

local name, want = ARGV[6], tonumber(ARGV[7])
local tag = #name .. ':' .. name

local usual = not ARGV[12] and want <= 256 and ARGV[9] == ''
local session, queue, again
if usual then
    local found = call('HMGET', ROWS, 's:' .. ARGV[4], 'Q:' .. name)
    session, queue = found[1] and cmsgpack.unpack(found[1]), found[2] and cmsgpack.unpack(found[2])
    usual = session and queue and queue.delayed == 0 and not queue.paused
end
if usual then
    again = time_left()
    local outdated = first('J:')
    usual = again > 0 and not (outdated and tonumber(sub(outdated, 3, 18)) <= now)
        and not first('z:' .. tag .. session.id)
end
local n, answer_key, taker_key, known, taker, id, token
if usual then
    n, answer_key = tonumber(ARGV[5]), 'a:' .. session.id .. ':exchange ' .. name
    taker_key = 'k:' .. tag .. session.name
    local found = call('HMGET', ROWS, answer_key, taker_key, '#id', '#token')
    known, taker = found[1], found[2] and cmsgpack.unpack(found[2])
    id, token = tonumber(found[3] or 0), tonumber(found[4] or 0)
    usual = not known or cmsgpack.unpack(known)[1] ~= n
end

if usual then
    local entering, leaving, setting, members, taken, fields = {}, {}, {}, {}, {}, {}
    if queue.ready > 0 then
        members = call('ZRANGEBYLEX', ORDER, '[a:' .. tag, '(a:' .. tag .. '\255', 'LIMIT', 0, want)
    end
    local limit, keep = tonumber(ARGV[10]), ARGV[11] == '1' or nil
    for i, member in ipairs(members) do
        local since, task_id = sub(member, -32, -17), sub(member, -16)
        local key = 'T:' .. tag .. task_id
        local task = cmsgpack.unpack(call('HGET', ROWS, key))
        token = math.max(token + 1, now)
        task.session, task.process, task.token = session.id, session.process, token
        task.deliveries, task.limit, task.keep = (task.deliveries or 0) + 1, limit, keep
        leaving[#leaving + 1] = member
        if task.priority then
            leaving[#leaving + 1] = 'o:' .. tag .. since .. task_id
        end
        entering[2 * i - 1], entering[2 * i] = '0', 't:' .. session.id .. ':4' .. format('%016d', token) .. tag .. task_id
        setting[2 * i - 1], setting[2 * i] = key, cmsgpack.pack(task)
        local waited = math.max(0, now - task.ready_at)
        taken[i] = {task_id, waited}
        local last = 8 * i - 8
        fields[last + 1], fields[last + 2] = tonumber(task_id), token
        fields[last + 3] = task.payload or call('HGET', ROWS, 'Y:' .. tag .. task_id) or ''
        fields[last + 4], fields[last + 5], fields[last + 6] = task.priority or 0, task.attempts or 0, task.deliveries
        fields[last + 7], fields[last + 8] = waited, task.progress or ''
    end
    queue.ready = queue.ready - #members

    local idle = ARGV[8] == '1' and want - #members or 0
    if idle > 0 then
        if not taker then
            queue.takers = queue.takers + 1
            taker = {
                ordinal = id + 1, process = session.process,
                thing = 't:' .. session.id .. ':5' .. format('%016d', id + 2) .. name,
            }
            id = id + 2
            entering[#entering + 1], entering[#entering + 2] = '0', taker.thing
            entering[#entering + 1], entering[#entering + 2] =
                '0', 'k:' .. tag .. format('%016d', taker.ordinal) .. session.name
        end
        taker.want = idle
        setting[#setting + 1], setting[#setting + 2] = taker_key, cmsgpack.pack(taker)
    elseif taker then
        leaving[#leaving + 1] = taker.thing
        leaving[#leaving + 1] = 'k:' .. tag .. format('%016d', taker.ordinal) .. session.name
        queue.takers = queue.takers - 1
        call('HDEL', ROWS, taker_key)
    end

    if not known then
        entering[#entering + 1], entering[#entering + 2] = '0', 't:' .. session.id .. ':70000000000000000exchange ' .. name
    end
    if #leaving > 0 then
        call('ZREM', ORDER, unpack(leaving))
    end
    if #entering > 0 then
        call('ZADD', ORDER, unpack(entering))
    end
    if #members > 0 then
        setting[#setting + 1], setting[#setting + 2] = '#token', format('%d', token)
    end
    local none = {}
    local answer = {refused = none, stop = none, paused = 0, again = again, taken = taken}
    call('HSET', ROWS, 'Q:' .. name, cmsgpack.pack(queue), answer_key, cmsgpack.pack({n, answer}),
        '#id', format('%d', id), unpack(setting))
    return {'exchanged', fields, none, none, 0, again}
end
