-- What precedes the tasks with priority 0, and what takes those that follow them: `take_ranked`, if there are others.
-- Reads: aging, last, lease, now, queue, set, taken
local take_ranked
if queue.ranked > 0 or aging then
    -- A member is since when (16 digits) and the id.
    local function lease_ranked(member)
        call('ZREM', queue.key .. ':ranked', member)
        call('ZREM', queue.key .. ':aged', sub(member, 17))
        set(queue, 'ranked', queue.ranked - 1)
        lease(sub(member, 17), sub(member, 1, 16))
    end

    take_ranked = function(from, to)
        for _, member in ipairs(call('ZRANGEBYSCORE', queue.key .. ':ranked', from, to, 'LIMIT', 0, (last - #taken) / 2)) do
            lease_ranked(member)
        end
    end

    while aging and #taken < last do
        local plain = call('ZRANGE', queue.key .. ':ready', 0, 0, 'WITHSCORES')
        local other = queue.ranked > 0 and call('ZRANGE', queue.key .. ':aged', 0, 0, 'WITHSCORES') or {}
        local since, its_since = tonumber(plain[2] or math.huge), tonumber(other[2] or math.huge)
        if now - math.min(since, its_since) <= aging then
            break
        elseif since < its_since or since == its_since and plain[1] < other[1] then
            call('ZREM', queue.key .. ':ready', plain[1])
            lease(plain[1], plain[2])
        else
            lease_ranked(format('%016d', its_since) .. other[1])
        end
    end
    if #taken < last then
        take_ranked('-inf', '(0')
    end
end
