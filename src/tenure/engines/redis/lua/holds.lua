-- The rest of what can be done with holds; see acquire.lua for the keys. ARGV[3] is the operation.
-- Reads: ask_again_in, hint, notify_watchers, now, process_of, remove_hold, serve_key, subscribe_once
-- Writes: operations

-- A holder as it is listed, from its stored fields.
local function shown(HOLDERS, holder, about)
    local its_token, since, weight, session = match(about, '^(%d+) (%d+) (%d+) (.*)$')
    local value = call('HGET', HOLDERS, '=' .. holder) or ''
    return {process_of(session), holder, tonumber(its_token), tonumber(weight), value, math.max(0, now - since)}
end

-- ARGV: key, session, holder, ... -> asked: for each what `acquire` answers; gone
function operations.ask(key)
    if not process_of(ARGV[5]) then
        return 'gone'
    end
    local answers = {}
    for i = 6, #ARGV do
        local about = call('HGET', P .. key .. ':holders', '@' .. ARGV[i])
        local place = not about and call('ZRANK', P .. key .. ':waiting', ARGV[i])
        answers[i - 5] = about and 'granted ' .. match(about, '^%d+')
            or place and {'queued', place + 1, ask_again_in()}
            or 'unknown'
    end
    return {'asked', answers}
end

-- The session of the holder that has this token, or nil.
local function session_of(key, holder, its_token)
    local found, session = match(call('HGET', P .. key .. ':holders', '@' .. holder) or '', '^(%d+) %d+ %d+ (.*)$')
    return found and tonumber(found) == tonumber(its_token) and session
end

-- ARGV: key, holder, token, value -> ok, refused
function operations.set_value(key)
    local HOLDERS = P .. key .. ':holders'
    if not session_of(key, ARGV[5], ARGV[6]) then
        return 'refused'
    end
    call('HSET', HOLDERS, '=' .. ARGV[5], ARGV[7])
    if call('HGET', HOLDERS, 'watched') then
        notify_watchers(HOLDERS, key, '', 'changed')
    end
    return 'ok'
end

-- ARGV: key, holder, token -> ok, refused
function operations.break_hold(key)
    local session = session_of(key, ARGV[5], ARGV[6])
    if not session then
        return 'refused'
    end
    hint(process_of(session), key, ARGV[5], 'broken')
    remove_hold(key, ARGV[5])
    return 'ok'
end

-- ARGV: key, capacity -> ok
function operations.resize(key)
    local HOLDERS = P .. key .. ':holders'
    local holder = call('HGET', HOLDERS, 'holder')
    if holder and tonumber(call('HGET', HOLDERS, 'used') or 0) > 0 then
        call('ZADD', P .. key .. ':held', match(call('HGET', HOLDERS, '@' .. holder), '^%d+'), holder)
    end
    call('HDEL', HOLDERS, 'holder')
    call('HSET', HOLDERS, 'capacity', ARGV[5], 'fixed', 1)
    serve_key(key)
    return 'ok'
end

-- ARGV: key, limit, session that watches ("": none) -> holdings: capacity, used, holders, waiters; gone
function operations.holders(key)
    local HOLDERS, last = P .. key .. ':holders', tonumber(ARGV[5]) - 1
    if ARGV[6] ~= '' then
        if not process_of(ARGV[6]) then
            return 'gone'
        end
        subscribe_once(ARGV[6], HOLDERS, 'watch')
    end
    local found = call('HMGET', HOLDERS, 'capacity', 'used', 'holder')
    local used, held, waiting = tonumber(found[2] or 0), {}, {}
    if last >= 0 then
        held = found[3] and {used > 0 and found[3] or nil} or call('ZRANGE', P .. key .. ':held', 0, last)
        waiting = call('ZRANGE', P .. key .. ':waiting', 0, last)
    end
    for i, holder in ipairs(held) do
        held[i] = shown(HOLDERS, holder, call('HGET', HOLDERS, '@' .. holder))
    end
    for i, holder in ipairs(waiting) do
        waiting[i] = shown(HOLDERS, holder, call('GET', P .. key .. ':waiter:' .. holder))
    end
    return {'holdings', tonumber(found[1] or 0), used, held, waiting}
end
