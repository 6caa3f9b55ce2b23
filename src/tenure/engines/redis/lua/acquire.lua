-- Takes a share of a key, or a place in its line.
--
-- ARGV: key, session, holder, capacity, weight, value, wait (0 or 1)
-- -> "granted" with the token; queued: place, ask again in; refused; mismatch: the capacity in force; gone
--
-- `<key>:holders` is a hash {capacity, used, waiting; fixed once it was resized; large once somebody waits for more than the
-- capacity; holder, who has all of a capacity of 1}. It has a field for each holder, "@" and its name -> token, since when,
-- weight, session; and "=" and its name -> the value, if there is one. `waiting` is a sorted set of waiters in the order
-- in which they came, and `waiter:<holder>` a text about each: 0, since when, weight, session. `held` is a sorted set
-- of the holders of a capacity above 1, and of arrivals at a barrier, by their tokens; `meeting` is the token of the meeting
-- for which arrivals wait, or which they broke.

local key, session, holder, capacity, weight = ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7]
local HOLDERS, WAITING = P .. key .. ':holders', P .. key .. ':waiting'

local shard = call('HMGET', P .. 'state', 'due', 'expiry', 'token', 'id')
if shard[1] and shard[1] <= NOW then
    return 'more'
elseif call('EXISTS', P .. session .. ':session') == 0 then
    return 'gone'
end
local found = call('HMGET', HOLDERS, '@' .. holder, 'capacity', 'used', 'waiting', 'watched')
if found[1] then
    return 'granted ' .. match(found[1], '^%d+')
end
local used, free = found[3] or '0', not found[4] or found[4] == '0'
local place = not free and call('ZRANK', WAITING, holder)
if place then
    return {'queued', place + 1, shard[2] - NOW, weight == '0' and call('HGET', HOLDERS, 'meeting') or nil}
elseif found[2] and found[2] ~= capacity
    and (weight ~= '0' or not free or call('HEXISTS', HOLDERS, 'fixed') == 1) then
    return {'mismatch', tonumber(found[2])}
end
if capacity == '1' and weight == '1' then
    free, used = free and used == '0', '1'
else
    used = used + weight
    free = free and used <= tonumber(capacity) and weight ~= '0'
end
if not free and ARGV[9] == '0' then
    return 'refused'
end
local id = (shard[4] or 0) + 1
call('ZADD', P .. session .. ':items', id, 'hold ' .. HOLDERS .. '\255' .. holder)
if ARGV[8] ~= '' then
    call('HSET', HOLDERS, '=' .. holder, ARGV[8])
end
local about = ' ' .. NOW .. ' ' .. weight .. ' ' .. session
if not free then
    place = (found[4] or 0) + 1
    call('ZADD', WAITING, id, holder)
    call('SET', P .. key .. ':waiter:' .. holder, '0' .. about)
    call('HSET', HOLDERS, 'capacity', capacity, 'waiting', place)
    if weight ~= '1' and tonumber(weight) > tonumber(capacity) then
        call('HSET', HOLDERS, 'large', 1)
    end
    call('HSET', P .. 'state', 'id', id)
    if weight == '0' then
        local meetings = require('meetings')
        return meetings.gather(key, holder, capacity, place, shard[3] or '0000000000000000', shard[2] - NOW)
    end
    return {'queued', place, shard[2] - NOW}
end
local token = shard[3] or '0000000000000000'
token = token >= NOW and format('%016d', token + 1) or NOW
if capacity == '1' then
    call('HSET', HOLDERS, 'capacity', '1', 'used', used, 'holder', holder, '@' .. holder, token .. about)
else
    call('HSET', HOLDERS, 'capacity', capacity, 'used', used, '@' .. holder, token .. about)
    call('ZADD', P .. key .. ':held', token, holder)
end
call('HSET', P .. 'state', 'token', token, 'id', id)
if found[5] then
    local watchers = require('watchers')
    watchers.notify_watchers(HOLDERS, key, '', 'changed')
end
return 'granted ' .. token
