-- Gives back a holder's part of a key, or its place -> released, or granted with the token of an arrival; left, unknown,
-- more. `found` is the stored value about both, if the caller has read it.
-- Reads: is_unfinished, notify_watchers, serve_line
local function remove_hold(key, holder, found)
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
            notify_watchers(hash, key, '', 'changed')
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
    serve_line(key, line)
    return is_unfinished and 'more' or not is_held and 'left' or weight == '0' and 'granted ' .. its_token or 'released'
end
