-- What a session has: `<session>:items` is a sorted set, by family and then in the order in which it came. Holds come
-- first, at 0, then the kinds named here; the flat scripts write the numbers out: 3e15 for producers, 4e15 for tasks, 5e15
-- for idle takers.
-- Reads: detach
-- Writes: id

local CLAIM, WATCH = 1e15, 6e15

local function attach(session, family, item)
    id = id + 1
    call('ZADD', P .. session .. ':items', family + id, item)
end

local function process_of(session)
    return call('HGET', P .. session .. ':session', 'process')
end

local function hint(process, ...)
    call(PUBLISH, CHANNEL .. process, cjson.encode({...}))
end

-- Have the session hinted once, see notify_watchers.lua; `of` is a hash, `verb` is "watch" or "follow".
local function subscribe_once(session, of, verb)
    local field = verb .. 'ed'
    if not call('ZSCORE', of .. ':' .. field, session) then
        attach(session, WATCH, verb .. ' ' .. of)
        call('ZADD', of .. ':' .. field, id, session)
        call('HSET', of, field, 1)
    end
end

local function unsubscribe(session, of, verb)
    local field = verb .. 'ed'
    detach(session, verb .. ' ' .. of)
    call('ZREM', of .. ':' .. field, session)
    if call('EXISTS', of .. ':' .. field) == 0 then
        call('HDEL', of, field)
    end
end
