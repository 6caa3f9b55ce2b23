-- An arrival joined the line: if it completes the parties, all are granted at once. The tokens follow one another from a
-- multiple of `capacity`. `capacity` is a text, `nth` the number of those that wait, `last` the last token of the shard.
local watchers = require('watchers')

local meetings = {}

function meetings.gather(key, holder, capacity, nth, last, again)
    local HOLDERS, WAITING = P .. key .. ':holders', P .. key .. ':waiting'
    local meeting = call('HGET', HOLDERS, 'meeting')
    if not meeting then
        last = last >= NOW and format('%016d', last + 1) or NOW
        meeting = last
        call('HSET', HOLDERS, 'meeting', meeting)
    end
    local parties, answer = tonumber(capacity), {'queued', nth, again, meeting}
    if nth == parties then
        local first = tonumber(last >= NOW and last + 1 or NOW)
        last = format('%016d', first + 2 * (parties - 1))
        first = first + -first % parties
        local line = call('ZRANGE', WAITING, 0, -1)
        call('DEL', WAITING)
        call('HDEL', HOLDERS, 'meeting')
        call('HSET', HOLDERS, 'waiting', 0)
        for i, party in ipairs(line) do
            local its_token = format('%016d', first + i - 1)
            local whose = match(call('GETDEL', P .. key .. ':waiter:' .. party), '^0 %d+ 0 (.*)$')
            call('HSET', HOLDERS, '@' .. party, its_token .. ' ' .. NOW .. ' 0 ' .. whose)
            call('ZADD', P .. key .. ':held', its_token, party)
            if party ~= holder then
                local process = call('HGET', P .. whose .. ':session', 'process')
                call(PUBLISH, CHANNEL .. process, cjson.encode({key, party, 'granted', its_token}))
            end
            answer = 'granted ' .. its_token
        end
        if call('HGET', HOLDERS, 'watched') then
            watchers.notify_watchers(HOLDERS, key, '', 'changed')
        end
    end
    call('HSET', P .. 'state', 'token', last)
    return answer
end

return meetings
