-- Takers. `takers` is a sorted set of the sessions that are idle, `wants` a hash of how much each wants.
local numbers = require('numbers')
local queues = require('queues')

local takers = {}

takers.newly_takeable = 0 -- how many tasks can be taken now and could not be before the operation

-- -> how much it wanted
function takers.forget_taker(queue, session)
    local want = tonumber(call('HGET', queue.key .. ':wants', session))
    call('HDEL', queue.key .. ':wants', session)
    call('ZREM', queue.key .. ':takers', session)
    call('ZREM', P .. session .. ':items', 'taker ' .. queue.name)
    queues.set(queue, 'takers', queue.takers - 1)
    return want
end

function takers.add_taker(queue, session, want)
    if call('HSET', queue.key .. ':wants', session, want) == 1 then
        numbers.id = numbers.id + 1
        queues.set(queue, 'takers', queue.takers + 1)
        call('ZADD', P .. session .. ':items', 5e15 + numbers.id, 'taker ' .. queue.name)
        call('ZADD', queue.key .. ':takers', numbers.id, session)
    end
end

-- Have as many idle takers ask as are needed for `count` tasks.
function takers.hint_takers(queue, count)
    if count > 0 and queue.takers > 0 and call('EXISTS', P .. 'resting') == 1 then
        require('rests').break_silence() -- this taker may be dead
    end
    while count > 0 and queue.takers > 0 and queue.paused == 0 do
        local session = call('ZRANGE', queue.key .. ':takers', 0, 0)[1]
        local want = takers.forget_taker(queue, session)
        local process = call('HGET', P .. session .. ':session', 'process')
        local reached = call(PUBLISH, CHANNEL .. process, cjson.encode({queue.name, '', 'ready'}))
        -- a process that does not listen here is dead, or asks once it is back; in a cluster it may listen elsewhere
        if reached > 0 or P ~= 'tenure:{0}:' then
            count = count - want
        end
    end
end

-- Hint idle takers that `count` more tasks can be taken, as many takers as are needed. A queue with a pace hints one:
-- whoever takes something has the next one hinted.
function takers.offer_tasks(queue, count)
    local open = queues.paced[queue] and queues.paced[queue].open
    takers.hint_takers(queue, open and math.min(count, open) or count)
end

function takers.leave_lessees(queue, session)
    call('SREM', queue.key .. ':lessees', session)
    call('ZREM', P .. session .. ':items', 'tasks ' .. queue.name)
end

return takers
