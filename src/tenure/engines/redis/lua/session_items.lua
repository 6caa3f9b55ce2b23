-- What a session has: `<session>:items` is a sorted set, by family and then in the order in which it came. Holds come
-- first, at 0, then the kinds named here; the flat scripts write the numbers out: 3e15 for producers, 4e15 for tasks, 5e15
-- for idle takers.
local numbers = require('numbers')

local session_items = {}

local WATCH = 6e15
session_items.CLAIM = 1e15

function session_items.detach(session, item)
    call('ZREM', P .. session .. ':items', item)
end

function session_items.attach(session, family, item)
    numbers.id = numbers.id + 1
    call('ZADD', P .. session .. ':items', family + numbers.id, item)
end

function session_items.process_of(session)
    return call('HGET', P .. session .. ':session', 'process')
end

function session_items.hint(process, ...)
    call(PUBLISH, CHANNEL .. process, cjson.encode({...}))
end

-- Have the session hinted once, see watchers.lua; `of` is a hash, `verb` is "watch" or "follow".
function session_items.subscribe_once(session, of, verb)
    local field = verb .. 'ed'
    if not call('ZSCORE', of .. ':' .. field, session) then
        session_items.attach(session, WATCH, verb .. ' ' .. of)
        call('ZADD', of .. ':' .. field, numbers.id, session)
        call('HSET', of, field, 1)
    end
end

function session_items.unsubscribe(session, of, verb)
    local field = verb .. 'ed'
    session_items.detach(session, verb .. ' ' .. of)
    call('ZREM', of .. ':' .. field, session)
    if call('EXISTS', of .. ':' .. field) == 0 then
        call('HDEL', of, field)
    end
end

return session_items
