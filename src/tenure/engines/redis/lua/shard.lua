-- What is known of the numbers of the shard, once a script has read them: when the shard is due, and the last token.

local shard = {}

shard.due, shard.token = nil, nil

return shard
