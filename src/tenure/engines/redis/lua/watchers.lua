-- Hints the sessions that watch a hash, about an object. A watch is a request to be hinted once: `<key>:watched` is a
-- sorted set of sessions, in the order in which they asked, and the object has the field `watched` meanwhile. The sessions
-- that follow a task are in `<key>:followed`; `verb` is "follow" then, else "watch". Of many, the first are hinted; the
-- sweep hints the others before anything else is done.
local shard = require('shard')

local watchers = {}

function watchers.notify_watchers(hash, topic, name, notice, verb)
    verb = verb or 'watch'
    local watching = hash .. ':' .. verb .. 'ed'
    local sessions = call('ZPOPMIN', watching, 256)
    call('HDEL', hash, verb .. 'ed')
    for i = 1, #sessions, 2 do
        call('ZREM', P .. sessions[i] .. ':items', verb .. ' ' .. hash)
        local process = call('HGET', P .. sessions[i] .. ':session', 'process')
        call(PUBLISH, CHANNEL .. process, cjson.encode({topic, name, notice}))
    end
    if #sessions == 512 and call('EXISTS', watching) == 1 then
        call('SADD', P .. 'unnotified', cjson.encode({hash, topic, name, notice, verb}))
        call('HSET', P .. 'state', 'due', '0')
        shard.due = '0'
    end
end

return watchers
