-- Acquire, as it mostly goes: nothing is due, nobody watches, and the holder is new. It does what `acquire` in holds.lua
-- does then, in one piece and with few commands: in a script that has little to do, making its functions is most of the
-- work. Everything else is left to the parts behind this one.

local key, holder, capacity, weight = ARGV[5], ARGV[6], tonumber(ARGV[7]), tonumber(ARGV[8])
local place = #key .. ':' .. key
local name = place .. holder
local found = call('HMGET', ROWS, 's:' .. ARGV[4], 'l:' .. key, 'h:' .. name, '#watches hold', '#id', '#token')
local session, line = found[1], found[2]

local usual = session and not found[3] and (found[4] or '0') == '0'
local again
if usual then
    again = time_left()
    line = line and cmsgpack.unpack(line)
        or {capacity = capacity, fixed = false, used = 0, ordinal = 0, held = 0, waiting = 0}
    usual = again > 0 and line.capacity == capacity
end
local fits = usual and line.waiting == 0 and line.used + weight <= capacity

if fits or usual and ARGV[10] == '1' then
    session = cmsgpack.unpack(session)
    local id, token = tonumber(found[5] or 0) + 1, 0
    -- joined, since a format ends at a zero byte
    local thing = 't:' .. session.id .. ':0' .. format('%016d', id) .. name
    local ahead, standing = line.waiting, nil
    line.ordinal = line.ordinal + 1
    local ordinal = line.ordinal
    if fits then
        token = math.max(tonumber(found[6] or 0) + 1, now)
        id = id + 1
        ordinal = id
        line.used, line.held = line.used + weight, line.held + 1
        standing = 'g:' .. place .. format('%016d', ordinal) .. holder
    else
        line.waiting = ahead + 1
        standing = 'q:' .. place .. format('%016d', ordinal) .. holder
    end
    local hold = cmsgpack.pack({
        session = session.name, process = session.process, weight = weight, value = ARGV[9],
        ordinal = ordinal, since = now, token = token, thing = thing,
    })
    call('ZADD', ORDER, '0', thing, '0', standing)
    if fits then
        call('HSET', ROWS, 'l:' .. key, cmsgpack.pack(line), 'h:' .. name, hold,
            '#id', format('%d', id), '#token', format('%d', token))
        return {'granted', token}
    end
    call('HSET', ROWS, 'l:' .. key, cmsgpack.pack(line), 'h:' .. name, hold, '#id', format('%d', id))
    if ahead > 0 then
        local head = first('q:' .. place)
        ahead = ordinal - tonumber(sub(head, #place + 3, #place + 18))
    end
    return {'queued', ahead + 1, again}
end
