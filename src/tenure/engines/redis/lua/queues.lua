-- A work queue, as it is read; `save_queue` and `changes.save_numbers` follow any change.
--
-- `queue` is a hash {settings, see SETTINGS; paused, tasks, delayed, ranked, reserved, producers, line, takers, watched; how
-- many were put, done, dead, cancelled, expired, discarded, purged; kept, how many releases are held, and records other than
-- dead letters are kept for good; keep, until when the queue is remembered once it is empty; expires and listed, see
-- `save_queue`; grouped, lined and virtual, see `groups.lua`; pace, see `paces.lua`}.
local numbers = require('numbers')

local queues = {}

-- Fields that were not read together are read when they are asked for; a missing field is 0.
local LAZY = {
    __index = function(queue, field)
        local value = tonumber(call('HGET', queue.key .. ':queue', field) or 0)
        rawset(queue, field, value)
        return value
    end,
}

queues.paced = {} -- queue -> its pace, of those that have one

-- What the scripts read of the record: the size, aging in microseconds (-: none), limit
-- of deliveries, ttl of dead letters (-: for good), 1 if records keep payloads, the revision; and of the groups the limit, the
-- size, 1 if they keep their order, and how many the hash `weights` has. Without a record it is empty.
local SETTINGS = '^(%d+) (%S+) (%d+) (%S+) (%d) (%d+) (%d+) (%d+) (%d) (%d+)$'

-- -> as text
function queues.read_settings(queue)
    if queue.settings == '' then
        return '10000', '-', '20', '15552000000000', '0', '0', '0', '0', '1', '0'
    end
    return match(queue.settings, SETTINGS)
end

function queues.size_of(queue)
    return tonumber((queues.read_settings(queue)))
end

local function is_over(queue)
    return queue.tasks == 0 and queue.dead == 0 and queue.kept == 0 and queue.paused == 0 and queue.producers == 0
        and queue.reserved == 0 and queue.grouped == 0
        and call('EXISTS', queue.key .. ':cursors') == 0
end

function queues.read_queue(name)
    local found = call('HMGET', P .. name .. ':queue', 'tasks', 'put', 'takers', 'delayed', 'ranked', 'producers', 'reserved',
        'paused', 'watched', 'keep', 'listed', 'grouped', 'settings', 'pace')
    local queue = setmetatable({
        name = name, key = P .. name, changed = {}, tasks = tonumber(found[1] or 0), put = tonumber(found[2] or 0),
        takers = found[3] and tonumber(found[3]) or 0, delayed = found[4] and tonumber(found[4]) or 0,
        ranked = found[5] and tonumber(found[5]) or 0, producers = found[6] and tonumber(found[6]) or 0,
        reserved = found[7] and tonumber(found[7]) or 0, paused = found[8] and tonumber(found[8]) or 0,
        watched = found[9] and 1 or 0, keep = found[10] and tonumber(found[10]) or 0,
        listed = found[11] and tonumber(found[11]) or 0, grouped = found[12] and tonumber(found[12]) or 0,
        settings = found[13] or '',
    }, LAZY) -- these and one more: a table of more than 16 fields takes twice the space
    if found[14] then
        queue.pace = found[14]
        local every, burst, group_every, group_burst, starts_at, open, opens_at, idle, paced_at =
            match(found[14], '^(%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+)$')
        if every then
            queues.paced[queue] = {
                every = tonumber(every), burst = tonumber(burst), group_every = tonumber(group_every),
                group_burst = tonumber(group_burst), starts_at = tonumber(starts_at), open = tonumber(open),
                opens_at = tonumber(opens_at), idle = tonumber(idle), paced_at = tonumber(paced_at),
            }
        end
    end
    if queue.tasks == 0 and (queue.put > 0 or queue.settings ~= '') and queue.keep <= numbers.now and is_over(queue) then
        -- it was to be forgotten
        for _, field in ipairs({'put', 'done', 'cancelled', 'expired', 'discarded', 'purged', 'keep'}) do
            queue[field], queue.changed[field] = 0, 0
        end
        queue.settings, queue.changed.settings, queues.paced[queue] = '', '', nil
        if queue.pace then
            queue.pace, queue.changed.pace = '', ''
        end
    end
    return queue
end

function queues.set(queue, field, value)
    if queue[field] ~= value then
        queue[field], queue.changed[field] = value, value
    end
end

-- When a queue is forgotten, and until when it is listed. `queues:` and two letters are sorted sets of the shard, so many
-- that none grows large: queues by the time at which they are forgotten, +inf while they are in use.

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
        call('ZREMRANGEBYSCORE', part, '-inf', numbers.now)
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
    queues.set(queue, 'expires', expires)
    if listed ~= queue.listed then
        queues.set(queue, 'listed', listed)
        list_queue(queue, listed)
    end
end

-- Write what has changed. A queue for which nothing has to be remembered expires.
function queues.save_queue(queue)
    if queue.grouped > 0 or queue.changed.grouped or package.loaded.groups then
        require('alone').save(queue)
    end
    local pace = queues.paced[queue]
    if pace and (package.loaded.paces or pace.idle > 0 and queue.changed.grouped == 0) then -- else it is as it was
        require('paces').save_pace(queue)
    end
    if queue.settings ~= '' and queue.keep < numbers.now + RECORD_TTL then
        queues.set(queue, 'keep', numbers.now + 2 * RECORD_TTL)
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
    if over and queue.expires > 0 and queue.expires <= numbers.now then
        call('DEL', QUEUE, queue.key .. ':settings', queue.key .. ':weights', queue.key .. ':groups', queue.key .. ':idle')
    end
    queue.changed = {}
end

return queues
