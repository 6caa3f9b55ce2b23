-- Gives back what `holder` has of `key`, or leaves its place -> released, left, unknown, more

local HOLDERS, WAITING = P .. key .. ':holders', P .. key .. ':waiting'
local found = call('HMGET', HOLDERS,
    '@' .. holder, 'capacity', 'used', 'waiting', 'fixed', 'large', 'watched')
local waiting = found[4] or '0'
local about = found[1] or waiting ~= '0' and call('GETDEL', P .. key .. ':waiter:' .. holder)
if not about then
    return 'unknown'
end
local fixed, watched, may_be_large = found[5], found[7], found[5] or found[6]
local weight, session = match(about, '^%d+ %d+ (%d+) (.*)$')
call('ZREM', P .. session .. ':items', 'hold ' .. HOLDERS .. '\255' .. holder)
-- include notify_watchers
if found[1] and fire then
    fire(HOLDERS, key, '', 'changed')
end
if found[1] and weight == found[3] and waiting == '0' and not fixed and not watched then
    -- the last one, as mostly
    if found[2] == '1' then
        call('DEL', HOLDERS)
    else
        call('DEL', HOLDERS, P .. key .. ':held')
    end
    return 'released'
end
local capacity, used, gone = tonumber(found[2]), tonumber(found[3] or 0), {'@' .. holder, '=' .. holder}
waiting = tonumber(waiting)
if found[1] then
    used = used - weight
    if capacity > 1 or fixed then
        call('ZREM', P .. key .. ':held', holder)
    end
else
    waiting = waiting - 1
    call('ZREM', WAITING, holder)
end
-- include serve_line
return unfinished and 'more' or found[1] and 'released' or 'left'
