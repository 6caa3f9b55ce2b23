-- Grants to the head of the line of a key for as long as it fits, then writes how the key stands. `line` is {capacity, used,
-- waiting, fixed, watched; may_be_large: a waiter may want more than the capacity, and has to ask then; gone: the fields of
-- holders that go; passed: arrivals at a barrier were granted}.
-- Reads: notify_watchers
-- Writes: is_unfinished, steps_left, token
local function serve_line(key, line)
    local hash, WAITING, WAITER = P .. key .. ':holders', P .. key .. ':waiting', P .. key .. ':waiter:'
    local capacity, used, waiting, gone, granted = line.capacity, line.used, line.waiting, line.gone, {}
    while waiting > 0 and (used < capacity or line.may_be_large) do
        local head = call('ZRANGE', WAITING, 0, 0)[1]
        local weight, session = match(call('GET', WAITER .. head) or '0 0 0 ', '^0 %d+ (%d+) (.*)$')
        local too_large = tonumber(weight) > capacity
        if not too_large and (used + weight > capacity or weight == '0') then
            break
        elseif steps_left == 0 then
            is_unfinished = true
            call('SADD', P .. 'unserved', key)
            call('HSET', P .. 'state', 'due', '0')
            break
        end
        steps_left, waiting = steps_left - 1, waiting - 1
        call('ZREM', WAITING, head)
        call('DEL', WAITER .. head)
        local process = call('HGET', P .. session .. ':session', 'process')
        if too_large then
            gone[#gone + 1] = '=' .. head
            call('ZREM', P .. session .. ':items', 'hold ' .. hash .. '\255' .. head)
            call(PUBLISH, CHANNEL .. process, cjson.encode({key, head, 'ask'}))
        else
            token, used = token >= NOW and format('%016d', token + 1) or NOW, used + weight
            granted[#granted + 1] = '@' .. head
            granted[#granted + 1] = token .. ' ' .. NOW .. ' ' .. weight .. ' ' .. session
            if capacity == 1 and not line.fixed then
                granted[#granted + 1] = 'holder'
                granted[#granted + 1] = head
            else
                call('ZADD', P .. key .. ':held', token, head)
            end
            if line.watched then
                line.watched = nil
                notify_watchers(hash, key, '', 'changed')
            end
            call(PUBLISH, CHANNEL .. process, cjson.encode({key, head, 'granted', token}))
        end
    end
    if #granted > 0 then
        call('HSET', P .. 'state', 'token', token)
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
