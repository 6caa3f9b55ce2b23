-- Grants to the head of the line of `key` for as long as it fits, then writes how the key stands: `capacity`, `used`,
-- `waiting`, `fixed`; `may_be_large`: a waiter may want more than the capacity, and has to ask then; `gone`: fields that go.
local granted = {}
while waiting > 0 and (used < capacity or may_be_large) do
    local head = call('ZRANGE', WAITING, 0, 0)[1]
    local its_weight, its_session = match(call('GET', P .. key .. ':waiter:' .. head) or '0 0 0 ', '^0 %d+ (%d+) (.*)$')
    local too_large = tonumber(its_weight) > capacity
    if not too_large and used + its_weight > capacity then
        break
    elseif steps_left == 0 then
        unfinished = true
        call('SADD', P .. 'unserved', key)
        call('HSET', P .. 'state', 'due', '0')
        break
    end
    steps_left, waiting = steps_left - 1, waiting - 1
    call('ZREM', WAITING, head)
    call('DEL', P .. key .. ':waiter:' .. head)
    local process = call('HGET', P .. its_session .. ':session', 'process')
    if too_large then
        gone[#gone + 1] = '=' .. head
        call('ZREM', P .. its_session .. ':items', 'hold ' .. HOLDERS .. '\255' .. head)
        call(PUBLISH, CHANNEL .. process, cjson.encode({key, head, 'ask'}))
    else
        token, used = token >= NOW and format('%016d', token + 1) or NOW, used + its_weight
        granted[#granted + 1] = '@' .. head
        granted[#granted + 1] = token .. ' ' .. NOW .. ' ' .. its_weight .. ' ' .. its_session
        if capacity == 1 and not fixed then
            granted[#granted + 1] = 'holder'
            granted[#granted + 1] = head
        else
            call('ZADD', P .. key .. ':held', token, head)
        end
        if watched then
            fire(HOLDERS, key, '', 'changed')
        end
        call(PUBLISH, CHANNEL .. process, cjson.encode({key, head, 'granted', token}))
    end
end
if #granted > 0 then
    call('HSET', P .. 'state', 'token', token)
end
if used > 0 or waiting > 0 or fixed then
    if #gone > 0 then
        call('HDEL', HOLDERS, unpack(gone))
    end
    call('HSET', HOLDERS, 'used', used, 'waiting', waiting, unpack(granted))
else
    call('DEL', HOLDERS)
    if watched then
        call('HSET', HOLDERS, 'watched', 1)
    end
end
