-- What the quick parts have in common; as few functions as possible, see acquire.lua.

local format, sub = string.format, string.sub

-- The first member of the order with this prefix.
local function first(prefix)
    return call('ZRANGEBYLEX', ORDER, '[' .. prefix, '(' .. prefix .. '\255', 'LIMIT', 0, 1)[1]
end

-- Microseconds until the first session expires; not above 0 if anything is due now. For who has found a session.
local function time_left()
    local due = call('ZRANGEBYLEX', ORDER, '[D:', '(E;', 'LIMIT', 0, 1)[1]
    if sub(due, 1, 1) == 'D' and tonumber(sub(due, 3, 18)) > now then
        due = first('E:')
    end
    return tonumber(sub(due, 3, 18)) - now
end

-- As `hint` in state.lua.
local function hint(process, ...)
    local text = cjson.encode({...})
    if redis.REDIS_VERSION_NUM and ROWS ~= 'tenure:{0}:rows' then
        call('SPUBLISH', sub(ROWS, 1, -5) .. process, text)
    else
        call('PUBLISH', 'tenure:' .. process, text)
    end
end
