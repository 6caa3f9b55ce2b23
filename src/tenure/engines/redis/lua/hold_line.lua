-- Grants to the head of the line of a key for as long as it fits, then writes how the key stands. `line` is {capacity, used,
-- waiting, fixed, watched; may_be_large: a waiter may want more than the capacity, and has to ask then; gone: the fields of
-- holders that go; passed: arrivals at a barrier were granted}.
local shard = require('shard')
local steps = require('steps')
local watchers = require('watchers')

local hold_line = {}

function hold_line.serve_line(key, line)
    local hash, WAITING, WAITER = P .. key .. ':holders', P .. key .. ':waiting', P .. key .. ':waiter:'
    local capacity, used, waiting, gone, granted = line.capacity, line.used, line.waiting, line.gone, {}
    while waiting > 0 and (used < capacity or line.may_be_large) do
        local head = call('ZRANGE', WAITING, 0, 0)[1]
        local weight, session = match(call('GET', WAITER .. head) or '0 0 0 ', '^0 %d+ (%d+) (.*)$')
        local too_large = tonumber(weight) > capacity
        if not too_large and (used + weight > capacity or weight == '0') then
            break
        elseif steps.left == 0 then
            steps.is_unfinished = true
            call('SADD', P .. 'unserved', key)
            call('HSET', P .. 'state', 'due', '0')
            break
        end
        steps.left, waiting = steps.left - 1, waiting - 1
        call('ZREM', WAITING, head)
        call('DEL', WAITER .. head)
        local process = call('HGET', P .. session .. ':session', 'process')
        if too_large then
            gone[#gone + 1] = '=' .. head
            call('ZREM', P .. session .. ':items', 'hold ' .. hash .. '\255' .. head)
            call(PUBLISH, CHANNEL .. process, cjson.encode({key, head, 'ask'}))
        else
            shard.token, used = shard.token >= NOW and format('%016d', shard.token + 1) or NOW, used + weight
            granted[#granted + 1] = '@' .. head
            granted[#granted + 1] = shard.token .. ' ' .. NOW .. ' ' .. weight .. ' ' .. session
            if capacity == 1 and not line.fixed then
                granted[#granted + 1] = 'holder'
                granted[#granted + 1] = head
            else
                call('ZADD', P .. key .. ':held', shard.token, head)
            end
            if line.watched then
                line.watched = nil
                watchers.notify_watchers(hash, key, '', 'changed')
            end
            call(PUBLISH, CHANNEL .. process, cjson.encode({key, head, 'granted', shard.token}))
        end
    end
    if #granted > 0 then
        call('HSET', P .. 'state', 'token', shard.token)
    end
    if used > 0 or waiting > 0 or line.fixed or line.passed then
        if #gone > 0 then
            call('HDEL', hash, unpack(gone))
        end
        call('HSET', hash, 'used', used, 'waiting', waiting, unpack(granted))
    else
        call('DEL', hash)
        if line.watched then
            call('HSET', hash, 'watched', 1)
        end
    end
end

-- Serves the line of a key after something else than the departure of a holder: it was cut short, or resized.
function hold_line.serve_key(key)
    local found = call('HMGET', P .. key .. ':holders', 'capacity', 'used', 'waiting', 'fixed', 'watched')
    if found[1] then
        hold_line.serve_line(key, {
            capacity = tonumber(found[1]), used = tonumber(found[2] or 0), waiting = tonumber(found[3] or 0),
            fixed = found[4], watched = found[5], may_be_large = true, gone = {},
        })
    end
end

-- Gives back a holder's part of a key, or its place -> released, or granted with the token of an arrival; left, unknown,
-- more. `found` is the stored value about both, if the caller has read it.
function hold_line.remove_hold(key, holder, found)
    local hash = P .. key .. ':holders'
    found = found or call('HMGET', hash, '@' .. holder, 'capacity', 'used', 'waiting', 'fixed', 'watched', 'large')
    local is_held, waiting, fixed, watched = found[1], found[4] or '0', found[5], found[6]
    local about = is_held or waiting ~= '0' and call('GETDEL', P .. key .. ':waiter:' .. holder)
    if not about then
        return 'unknown'
    end
    local its_token, weight, session = match(about, '^(%d+) %d+ (%d+) (.*)$')
    call('ZREM', P .. session .. ':items', 'hold ' .. hash .. '\255' .. holder)
    local line = {
        capacity = tonumber(found[2]), used = tonumber(found[3] or 0), waiting = tonumber(waiting), fixed = fixed,
        watched = watched, may_be_large = fixed or found[7], gone = {'@' .. holder, '=' .. holder},
    }
    if is_held then
        if watched then
            line.watched = nil
            watchers.notify_watchers(hash, key, '', 'changed')
        end
        line.used = line.used - weight
        if line.capacity > 1 or fixed or weight == '0' then
            call('ZREM', P .. key .. ':held', holder)
        end
    else
        line.waiting = line.waiting - 1
        call('ZREM', P .. key .. ':waiting', holder)
    end
    if weight == '0' then
        if not is_held and call('HGET', hash, '=' .. holder) ~= 'drop' then
            line.capacity, line.fixed, line.may_be_large = -1, 1, true
            call('HSET', hash, 'capacity', -1, 'fixed', 1)
        end
        line.passed = call('EXISTS', P .. key .. ':held') == 1
    end
    hold_line.serve_line(key, line)
    return steps.is_unfinished and 'more' or not is_held and 'left' or weight == '0' and 'granted ' .. its_token or 'released'
end

return hold_line
