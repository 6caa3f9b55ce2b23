-- Numbered answers: the last one of each session and object is kept for two ttls of the session. A client that gets no answer
-- for a ttl has lost its session, so it never asks for an older one. In: `session`, `n`, `object`. Out: `ttl`, and `known`,
-- the answer if this operation was applied before.
local about_session = call('HMGET', P .. session .. ':session', 'ttl', 'number')
local ttl, ANSWER = tonumber(about_session[1] or nil), P .. session .. ' ' .. object
if not ttl then
    return 'gone'
end
local known = call('GET', ANSWER)
if known then
    local number, its_n, last, its_answer = cmsgpack.unpack(known)
    known = number == about_session[2] and its_n == n and last > now and its_answer
end
