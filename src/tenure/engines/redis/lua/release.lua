-- Release, as it mostly goes: nothing is due, nobody watches, and nobody waits, or a lock passes from one to the next.
-- It does what `release` in holds.lua does then; see acquire.lua for why. Everything else is left to the parts behind.

local key, holder = ARGV[4], ARGV[5]
local place = #key .. ':' .. key
local name = place .. holder
local found = call('HMGET', ROWS, 'l:' .. key, 'h:' .. name, '#watches hold', '#id', '#token')
local hold, line, head, after = found[2] and cmsgpack.unpack(found[2]), nil, nil, nil

local usual = hold and hold.token > 0 and (found[3] or '0') == '0'
if usual then
    line = cmsgpack.unpack(found[1])
    line.used, line.held = line.used - hold.weight, line.held - 1
    usual = time_left() > 0 and (line.waiting == 0 or line.used == 0 and not line.fixed)
end
if usual and line.waiting > 0 then
    local member = first('q:' .. place)
    head = sub(member, #place + 19)
    after = cmsgpack.unpack(call('HGET', ROWS, 'h:' .. place .. head))
    -- whoever wants less than all may not be the only one who gets something
    usual = after.weight == line.capacity
end

if usual then
    local granted = 'g:' .. place .. format('%016d', hold.ordinal) .. holder
    if not head then
        call('ZREM', ORDER, hold.thing, granted)
        if line.held == 0 and not line.fixed then
            call('HDEL', ROWS, 'l:' .. key, 'h:' .. name)
        else
            call('HDEL', ROWS, 'h:' .. name)
            call('HSET', ROWS, 'l:' .. key, cmsgpack.pack(line))
        end
        return 'released'
    end
    call('ZREM', ORDER, hold.thing, granted, 'q:' .. place .. format('%016d', after.ordinal) .. head)
    call('HDEL', ROWS, 'h:' .. name)
    local id, token = tonumber(found[4]) + 1, math.max(tonumber(found[5]) + 1, now)
    after.token, after.since, after.ordinal = token, now, id
    line.used, line.held, line.waiting = after.weight, 1, line.waiting - 1
    call('ZADD', ORDER, '0', 'g:' .. place .. format('%016d', id) .. head)
    call('HSET', ROWS, 'l:' .. key, cmsgpack.pack(line), 'h:' .. place .. head, cmsgpack.pack(after),
        '#id', format('%d', id), '#token', format('%d', token))
    hint(after.process, key, head, 'granted', format('%.0f', token))
    return 'released'
end
