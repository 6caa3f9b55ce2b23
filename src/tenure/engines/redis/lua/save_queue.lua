-- When a queue is forgotten, and until when it is listed. `queues:` and two letters are sorted sets of the shard, so many
-- that none grows large: queues by the time at which they are forgotten, +inf while they are in use.
-- Reads: groups, is_over, made_groups, made_paces, now, paced, paces, set

local RECORD_TTL = 86400e6

-- List the queue until a time, or without end (-1), or no longer (0).
local function list_queue(queue, time)
    local part = P .. 'queues:' .. sub(redis.sha1hex(queue.name), 1, 2)
    if time < 0 then
        call('ZADD', part, '+inf', queue.name)
        call('PERSIST', part)
        return
    end
    call('ZREM', part, queue.name)
    if ARGV[1] == '' then
        call('ZREMRANGEBYSCORE', part, '-inf', now)
    end
    if time > 0 then
        call('ZADD', part, time, queue.name)
    end
    if ARGV[1] == '' and call('ZCOUNT', part, '+inf', '+inf') == 0 then
        local last = call('ZRANGE', part, -1, -1, 'WITHSCORES')[2]
        if last then
            call('PEXPIREAT', part, math.ceil(last / 1000))
        end
    end
end

-- The queue comes into use or goes out of it, or is remembered for longer.
local function relist(queue, over, listed)
    local QUEUE = queue.key .. ':queue'
    local expires = over and queue.takers == 0 and math.max(queue.keep, 1) or 0
    local function of_record(command, ...)
        if queue.settings ~= '' then
            call(command, queue.key .. ':settings', ...)
            call(command, queue.key .. ':weights', ...)
        end
    end
    if expires ~= queue.expires and expires == 0 then
        call('PERSIST', QUEUE)
        of_record('PERSIST')
    elseif expires ~= queue.expires and ARGV[1] == '' then
        call('HSET', QUEUE, 'expires', expires)
        call('PEXPIREAT', QUEUE, math.ceil(expires / 1000))
        of_record('PEXPIREAT', math.ceil(expires / 1000))
    end
    set(queue, 'expires', expires)
    if listed ~= queue.listed then
        set(queue, 'listed', listed)
        list_queue(queue, listed)
    end
end

-- Write what has changed. A queue for which nothing has to be remembered expires.
local function save_queue(queue)
    if queue.grouped > 0 or queue.changed.grouped or made_groups then
        groups(true).save(queue)
    end
    local pace = paced[queue]
    if pace and (made_paces or pace.idle > 0 and queue.changed.grouped == 0) then -- else it is as it was
        paces().save_pace(queue)
    end
    if queue.settings ~= '' and queue.keep < now + RECORD_TTL then
        set(queue, 'keep', now + 2 * RECORD_TTL)
    end
    local fields, QUEUE, over = {}, queue.key .. ':queue', queue.tasks == 0 and is_over(queue)
    local listed = not over and -1 or (queue.put > 0 or queue.settings ~= '') and queue.keep or 0
    if over or listed ~= queue.listed then
        relist(queue, over, listed)
    end
    for field, value in pairs(queue.changed) do
        fields[#fields + 1], fields[#fields + 2] = field, value
    end
    if #fields > 0 then
        call('HSET', QUEUE, unpack(fields))
    end
    if over and queue.expires > 0 and queue.expires <= now then
        call('DEL', QUEUE, queue.key .. ':settings', queue.key .. ':weights', queue.key .. ':groups', queue.key .. ':idle')
    end
    queue.changed = {}
end
