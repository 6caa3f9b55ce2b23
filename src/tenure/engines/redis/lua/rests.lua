-- Rests: a session without a lease sends no life signs while nothing is due, and all sessions rest. `resting` is a set of
-- the sessions that rest. Once one is awake, some of the others are told. From then on they come back whenever a session
-- that is awake may have ended.
local due = require('due')
local numbers = require('numbers')

local rests = {}

local WATCHERS = 16 -- not all, and hardly all of one machine

local function all_rest()
    return call('SCARD', P .. 'resting') == call('ZCARD', P .. 'sessions')
end

-- One of the sessions is about to be awake.
function rests.break_silence()
    local left = all_rest() and WATCHERS or 0
    for _, session in ipairs(left > 0 and call('SRANDMEMBER', P .. 'resting', 4 * WATCHERS) or {}) do
        if left > 0 then
            local process = call('HGET', P .. session .. ':session', 'process')
            left = left - call(PUBLISH, CHANNEL .. process, cjson.encode({'', session, 'wake'}))
        end
    end
end

-- The first session of a server, which may have lost its data: all listening processes ask for everything again.
function rests.announce()
    local kind = PUBLISH == 'PUBLISH' and 'CHANNELS' or 'SHARDCHANNELS'
    local channels = redis.pcall('PUBSUB', kind, CHANNEL .. '*') -- a user may lack the right
    for _, channel in ipairs(channels) do
        call(PUBLISH, channel, cjson.encode({'', '', 'missed'}))
    end
end

function rests.wake(session, ttl)
    rests.break_silence()
    call('SREM', P .. 'resting', session)
    call('ZADD', P .. 'sessions', numbers.now + ttl, session)
    due.set_due()
end

-- A session rests for `longest`, or until an earlier `time`, when a taker of its own has to ask. -> for how long
function rests.rest(session, ttl, longest, time)
    call('SADD', P .. 'resting', session)
    call('ZADD', P .. 'sessions', numbers.now + longest + ttl, session)
    time = math.max(numbers.now, math.min(time, numbers.now + longest, due.first_due(all_rest())))
    call('ZADD', P .. 'sessions', time + ttl, session)
    due.set_due()
    return time - numbers.now
end

return rests
