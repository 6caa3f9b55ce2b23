-- Put, for a single plain task, as it mostly goes: nothing is due or outdated, the queue is known and has room, and nobody
-- stands in line for it. It does what `put` in producers.lua does then; see acquire.lua for why.

local name, payload = ARGV[6], ARGV[14]

local usual = ARGV[3] == 'put' and ARGV[7] == '1' and ARGV[11] == '' and ARGV[13] == '1' and ARGV[15] == ''
    and #payload <= 512 -- SHORT, in tasks.lua
local session, queue
if usual then
    local found = call('HMGET', ROWS, 's:' .. ARGV[4], 'Q:' .. name)
    session, queue = found[1] and cmsgpack.unpack(found[1]), found[2] and cmsgpack.unpack(found[2])
    usual = session and queue and queue.put > 0 and queue.producers == 0 and queue.reserved == 0
        and queue.tasks < tonumber(ARGV[8])
end
if usual then
    local outdated = first('J:')
    usual = time_left() > 0 and not (outdated and tonumber(sub(outdated, 3, 18)) <= now)
end
local n, answer_key, known, id
if usual then
    n, answer_key = tonumber(ARGV[5]), 'a:' .. session.id .. ':put ' .. name
    local found = call('HMGET', ROWS, answer_key, '#task')
    known, id = found[1], tonumber(found[2] or 0) + 1
    usual = not known or cmsgpack.unpack(known)[1] ~= n
end

if usual then
    local tag, id_in_digits, now_in_digits = #name .. ':' .. name, format('%016d', id), format('%016d', now)
    queue.size, queue.tasks, queue.put, queue.ready =
        tonumber(ARGV[8]), queue.tasks + 1, queue.put + 1, queue.ready + 1
    -- 2 ^ 52 is priority 0
    call('ZADD', ORDER, '0', 'a:' .. tag .. '4503599627370496' .. now_in_digits .. id_in_digits,
        '0', 'u:' .. tag .. id_in_digits)
    if not known then
        call('ZADD', ORDER, '0', 't:' .. session.id .. ':70000000000000000put ' .. name)
    end
    if queue.takers > 0 and not queue.paused then
        local prefix = 'k:' .. tag
        local member = first(prefix)
        local row = prefix .. sub(member, #prefix + 17)
        local taker = cmsgpack.unpack(call('HGET', ROWS, row))
        call('HDEL', ROWS, row)
        call('ZREM', ORDER, member, taker.thing)
        queue.takers = queue.takers - 1
        hint(taker.process, name, '', 'ready')
    end
    local answer = {'put', 1, id}
    call('HSET', ROWS, 'T:' .. tag .. id_in_digits, cmsgpack.pack({ready_at = now, payload = payload}),
        'Q:' .. name, cmsgpack.pack(queue), answer_key, cmsgpack.pack({n, answer}), '#task', format('%d', id))
    return answer
end
