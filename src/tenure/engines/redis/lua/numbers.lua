-- The numbers of the shard: a hash `state` {due, expiry, token, id; ending; layout, shards}. `due` may be too early,
-- and is never too late; `token` and `id` rise with each use. A task's id is a token.

local now = tonumber(NOW)
local shard = call('HMGET', P .. 'state', 'due', 'expiry', 'token', 'id')
local expiry, token, id = tonumber(shard[2] or nil), shard[3] or '0000000000000000', tonumber(shard[4] or 0)

local function new_token()
    token = token >= NOW and format('%016d', token + 1) or NOW
    return token
end
