-- The numbers of the shard: a hash `state` {due, expiry, token, id; ending; layout, shards}. `due` may be too early,
-- and is never too late; `token` and `id` rise with each use. A task's id is a token.
local shard = require('shard')

local numbers = {}

local stored = call('HMGET', P .. 'state', 'due', 'expiry', 'token', 'id')
shard.due, shard.token = stored[1], stored[3] or '0000000000000000'
numbers.stored, numbers.now, numbers.expiry, numbers.id =
    stored, tonumber(NOW), tonumber(stored[2] or nil), tonumber(stored[4] or 0)

-- Nothing is done while something is due: the client sends `sweep`, and then the operation again. If `due` was too early,
-- the sweep finds nothing.
numbers.is_due = stored[1] and stored[1] <= NOW

function numbers.new_token()
    shard.token = shard.token >= NOW and format('%016d', shard.token + 1) or NOW
    return shard.token
end

return numbers
