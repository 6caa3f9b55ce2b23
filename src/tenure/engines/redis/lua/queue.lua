-- A work queue, as it is read; `save_queue` and `save_numbers` follow any change.
--
-- `queue` is a hash {settings, see SETTINGS; paused, tasks, delayed, ranked, reserved, producers, line, takers, watched; how
-- many were put, done, dead, cancelled, expired, discarded, purged; kept, how many records other than dead letters are kept for
-- good; keep, until when the queue is remembered once it is empty; expires and listed, see `save_queue`; grouped, lined and
-- virtual, see `groups.lua`; pace, see `paces.lua`}.
-- Reads: now

-- Fields that were not read together are read when they are asked for; a missing field is 0.
local LAZY = {
    __index = function(queue, field)
        local value = tonumber(call('HGET', queue.key .. ':queue', field) or 0)
        rawset(queue, field, value)
        return value
    end,
}

local paced = {} -- queue -> its pace, of those that have one

-- What the scripts read of the record: the size, aging in microseconds (-: none), limit
-- of deliveries, ttl of dead letters (-: for good), 1 if records keep payloads, the revision; and of the groups the limit, the
-- size, 1 if they keep their order, and how many the hash `weights` has. Without a record it is empty.
local SETTINGS = '^(%d+) (%S+) (%d+) (%S+) (%d) (%d+) (%d+) (%d+) (%d) (%d+)$'

-- -> as text
local function read_settings(queue)
    if queue.settings == '' then
        return '10000', '-', '20', '15552000000000', '0', '0', '0', '0', '1', '0'
    end
    return match(queue.settings, SETTINGS)
end

local function size_of(queue)
    return tonumber((read_settings(queue)))
end

local function is_over(queue)
    return queue.tasks == 0 and queue.dead == 0 and queue.kept == 0 and queue.paused == 0 and queue.producers == 0
        and queue.reserved == 0 and queue.grouped == 0
        and call('EXISTS', queue.key .. ':cursors') == 0
end

local function read_queue(name)
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
            paced[queue] = {
                every = tonumber(every), burst = tonumber(burst), group_every = tonumber(group_every),
                group_burst = tonumber(group_burst), starts_at = tonumber(starts_at), open = tonumber(open),
                opens_at = tonumber(opens_at), idle = tonumber(idle), paced_at = tonumber(paced_at),
            }
        end
    end
    if queue.tasks == 0 and (queue.put > 0 or queue.settings ~= '') and queue.keep <= now and is_over(queue) then
        -- it was to be forgotten
        for _, field in ipairs({'put', 'done', 'cancelled', 'expired', 'discarded', 'purged', 'keep'}) do
            queue[field], queue.changed[field] = 0, 0
        end
        queue.settings, queue.changed.settings, paced[queue] = '', '', nil
        if queue.pace then
            queue.pace, queue.changed.pace = '', ''
        end
    end
    return queue
end

local function set(queue, field, value)
    if queue[field] ~= value then
        queue[field], queue.changed[field] = value, value
    end
end
