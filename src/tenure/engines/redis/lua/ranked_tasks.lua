-- Takes tasks with a priority, and those that are ready for longer than `aging`. `lease` leases a task.
local numbers = require('numbers')
local queues = require('queues')

local ranked_tasks = {}

-- A member is since when (16 digits) and the id.
local function lease_ranked(queue, member, lease)
    call('ZREM', queue.key .. ':ranked', member)
    call('ZREM', queue.key .. ':aged', sub(member, 17))
    queues.set(queue, 'ranked', queue.ranked - 1)
    lease(sub(member, 17), sub(member, 1, 16))
end

-- Take the tasks whose scores are within bounds, at most so many.
function ranked_tasks.take(queue, from, to, most, lease)
    for _, member in ipairs(call('ZRANGEBYSCORE', queue.key .. ':ranked', from, to, 'LIMIT', 0, most)) do
        lease_ranked(queue, member, lease)
    end
end

-- Take those that precede all others by their age, at most so many -> how many are left to take
function ranked_tasks.take_aged(queue, aging, most, lease)
    while most > 0 do
        local plain = call('ZRANGE', queue.key .. ':ready', 0, 0, 'WITHSCORES')
        local other = queue.ranked > 0 and call('ZRANGE', queue.key .. ':aged', 0, 0, 'WITHSCORES') or {}
        local since, its_since = tonumber(plain[2] or math.huge), tonumber(other[2] or math.huge)
        if numbers.now - math.min(since, its_since) <= aging then
            break
        elseif since < its_since or since == its_since and plain[1] < other[1] then
            call('ZREM', queue.key .. ':ready', plain[1])
            lease(plain[1], plain[2])
        else
            lease_ranked(queue, format('%016d', its_since) .. other[1], lease)
        end
        most = most - 1
    end
    return most
end

return ranked_tasks
