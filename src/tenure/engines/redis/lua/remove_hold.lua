-- Gives back what a holder has of a key, or leaves its place -> released, left, unknown, more
local function remove_hold(key, holder)
    local HOLDERS = P .. key .. ':holders'
    local found = call('HMGET', HOLDERS, '@' .. holder, 'capacity', 'used', 'waiting', 'fixed', 'large', 'watched')
    local is_held, waiting, fixed, watched = found[1], found[4] or '0', found[5], found[7]
    local about = is_held or waiting ~= '0' and call('GETDEL', P .. key .. ':waiter:' .. holder)
    if not about then
        return 'unknown'
    end
    local weight, session = match(about, '^%d+ %d+ (%d+) (.*)$')
    call('ZREM', P .. session .. ':items', 'hold ' .. HOLDERS .. '\255' .. holder)
    if is_held and watched then
        watched = nil
        notify_watchers(HOLDERS, key, '', 'changed')
    end
    if is_held and weight == found[3] and waiting == '0' and not fixed and not watched then
        -- the last one, as mostly
        if found[2] == '1' then
            call('DEL', HOLDERS)
        else
            call('DEL', HOLDERS, P .. key .. ':held')
        end
        return 'released'
    end
    local line = {
        capacity = tonumber(found[2]), used = tonumber(found[3] or 0), waiting = tonumber(waiting), fixed = fixed,
        watched = watched, may_be_large = fixed or found[6], gone = {'@' .. holder, '=' .. holder},
    }
    if is_held then
        line.used = line.used - weight
        if line.capacity > 1 or fixed then
            call('ZREM', P .. key .. ':held', holder)
        end
    else
        line.waiting = line.waiting - 1
        call('ZREM', P .. key .. ':waiting', holder)
    end
    serve_line(key, line)
    return unfinished and 'more' or is_held and 'released' or 'left'
end
