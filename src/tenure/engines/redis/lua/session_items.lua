-- What a session has: `<session>:items` is a sorted set, by family and then in the order in which it came. Holds come
-- first, at 0, then what is named here; the flat scripts write the numbers out: 3e15 for producers, 4e15 for tasks, 5e15
-- for idle takers.

local CLAIM, ARRIVAL, WATCH = 1e15, 2e15, 6e15

local function attach(session, family, item)
    id = id + 1
    call('ZADD', P .. session .. ':items', family + id, item)
end

-- include detach

local function process_of(session)
    return call('HGET', P .. session .. ':session', 'process')
end

local function hint(process, ...)
    call(PUBLISH, CHANNEL .. process, cjson.encode({...}))
end

-- Have the session hinted once, see fire.lua; `of` is a hash.
local function watch(session, of)
    if not call('ZSCORE', of .. ':watched', session) then
        attach(session, WATCH, 'watch ' .. of)
        call('ZADD', of .. ':watched', id, session)
        call('HSET', of, 'watched', 1)
    end
end

local function unwatch(session, of)
    detach(session, 'watch ' .. of)
    call('ZREM', of .. ':watched', session)
    if call('EXISTS', of .. ':watched') == 0 then
        call('HDEL', of, 'watched')
    end
end

local function fire_if(watched, of, key, name, notice)
    -- include fire
    if fire then
        fire(of, key, name, notice)
    end
end
