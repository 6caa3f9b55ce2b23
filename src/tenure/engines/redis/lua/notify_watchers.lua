-- Hints the sessions that watch the object whose key is `of`, if it is `watched`; a watch is a request to be hinted once.
-- `<key>:watched` is a sorted set of sessions, in the order in which they asked. Of many, the first are hinted; the sweep
-- hints the others before anything else is done. Those that follow a task are in `<key>:followed`: `word` is "follow" then.
local fire = watched and function(of, key, name, notice, word)
    local verb = word or 'watch'
    local sessions = call('ZPOPMIN', of .. ':' .. verb .. 'ed', 256)
    call('HDEL', of, verb .. 'ed')
    for i = 1, #sessions, 2 do
        call('ZREM', P .. sessions[i] .. ':items', verb .. ' ' .. of)
        local process = call('HGET', P .. sessions[i] .. ':session', 'process')
        call(PUBLISH, CHANNEL .. process, cjson.encode({key, name, notice}))
    end
    if #sessions == 512 and call('EXISTS', of .. ':' .. verb .. 'ed') == 1 then
        call('SADD', P .. 'unfired', cjson.encode({of, key, name, notice, word}))
        call('HSET', P .. 'state', 'due', '0')
        state[1] = '0'
    end
    watched = nil
end
