-- Hints all sessions that watch the object whose key is `of`, if it is `watched`; a watch is a request to be hinted once.
-- `<key>:watched` is a sorted set of sessions, in the order in which they asked.
local fire = watched and function(of, key, name, notice)
    local sessions = call('ZRANGE', of .. ':watched', 0, -1)
    call('DEL', of .. ':watched')
    call('HDEL', of, 'watched')
    for _, session in ipairs(sessions) do
        call('ZREM', P .. session .. ':things', 'watch ' .. of)
        local process = call('HGET', P .. session .. ':session', 'process')
        call(PUBLISH, CHANNEL .. process, cjson.encode({key, name, notice}))
    end
    watched = nil
end
