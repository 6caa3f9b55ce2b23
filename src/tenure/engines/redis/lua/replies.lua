-- Numbered answers: the last answer of each session and object, such as `<session> <queue>:exchange`, is kept for two ttls of
-- the session. A client that gets no answer for a ttl has lost its session, so it never asks for an older one.
local numbers = require('numbers')

local replies = {}

-- -> the ttl and the number of the session, and the answer if this operation was applied before; nil if the session is gone
function replies.cached_reply(session, n, object)
    local found = call('HMGET', P .. session .. ':session', 'ttl', 'number')
    local ttl, number = tonumber(found[1] or nil), found[2]
    local packed = ttl and call('GET', P .. session .. ' ' .. object)
    if packed then
        local its_number, its_n, last, answer = cmsgpack.unpack(packed)
        return ttl, number, its_number == number and its_n == n and last > numbers.now and answer
    end
    return ttl, number
end

function replies.cache_reply(session, n, object, ttl, number, answer)
    local name, packed = P .. session .. ' ' .. object, cmsgpack.pack(number, n, numbers.now + 2 * ttl, answer)
    if ARGV[1] == '' then
        call('SET', name, packed, 'PX', math.ceil(ttl / 500))
    else
        call('SET', name, packed)
    end
end

return replies
