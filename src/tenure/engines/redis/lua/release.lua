-- Gives back what the holder has, or leaves its place.
--
-- ARGV: key, holder -> released, left, unknown, more

local KEY, HOLDER = ARGV[3], ARGV[4]
local numbers = call('HMGET', P .. 'state', 'due', 'token')
if numbers[1] and numbers[1] <= NOW then
    return 'more'
end
local HOLDERS = P .. KEY .. ':holders'
local stored = call('HMGET', HOLDERS, '@' .. HOLDER, 'capacity', 'used', 'waiting', 'fixed', 'watched', 'large')
if stored[1] and (stored[4] or '0') == '0' and not stored[5] and not stored[6] then
    local weight, session = match(stored[1], '^%d+ %d+ (%d+) (.*)$')
    if weight == stored[3] and weight ~= '0' then
        -- the last one, as mostly: nothing else is to be done, and no function to be made
        call('ZREM', P .. session .. ':items', 'hold ' .. HOLDERS .. '\255' .. HOLDER)
        if stored[2] == '1' then
            call('DEL', HOLDERS)
        else
            call('DEL', HOLDERS, P .. KEY .. ':held')
        end
        return 'released'
    end
end
local shard = require('shard')
local hold_line = require('hold_line')
shard.token = numbers[2] or '0000000000000000'
return hold_line.remove_hold(KEY, HOLDER, stored)
