-- Hints the sessions that watch the object whose key is `of`. A watch is a request to be hinted once: `<key>:watched` is a
-- sorted set of sessions, in the order in which they asked, and the object has the field `watched` meanwhile. The sessions
-- that follow a task are in `<key>:followed`; `verb` is "follow" then, else "watch". Of many, the first are hinted; the sweep
-- hints the others before anything else is done.
local function notify_watchers(of, key, name, notice, verb)
    verb = verb or 'watch'
    local watchers = of .. ':' .. verb .. 'ed'
    local sessions = call('ZPOPMIN', watchers, 256)
    call('HDEL', of, verb .. 'ed')
    for i = 1, #sessions, 2 do
        call('ZREM', P .. sessions[i] .. ':items', verb .. ' ' .. of)
        local process = call('HGET', P .. sessions[i] .. ':session', 'process')
        call(PUBLISH, CHANNEL .. process, cjson.encode({key, name, notice}))
    end
    if #sessions == 512 and call('EXISTS', watchers) == 1 then
        call('SADD', P .. 'unnotified', cjson.encode({of, key, name, notice, verb}))
        call('HSET', P .. 'state', 'due', '0')
        state[1] = '0'
    end
end
