-- When the shard has to be swept next: at once if watches or lines are left, else when the first session, task, rest
-- or wait ends, or at the time `sweep_at` of the state if children are to be cancelled. `sessions`, `expiring`,
-- `cooling` and `timeouts` are sorted sets by time, `unserved` is a set of keys, `unadmitted` one of queues,
-- `unnotified` one of what `notify_watchers` has left, `unoffered` one of comparisons that `claims.lua` has left; families.lua
-- has `sweeping`.

local due = {}

local function first_time(set_name)
    return tonumber(call('ZRANGE', P .. set_name, 0, 0, 'WITHSCORES')[2])
end

local function set_time(field, time)
    if time then
        call('HSET', P .. 'state', field, format('%016d', time))
    else
        call('HDEL', P .. 'state', field)
    end
end

-- When a session, wait or sweep of children is due; without the sessions if they all rest.
local function first_expiry(all_rest)
    local sweep = call('EXISTS', P .. 'sweeping') == 1 and tonumber(call('HGET', P .. 'state', 'sweep_at') or 0)
    return math.min(sweep or math.huge, not all_rest and first_time('sessions') or math.huge,
        first_time('timeouts') or math.huge)
end

function due.first_due(all_rest)
    return math.min(first_expiry(all_rest), first_time('expiring') or math.huge, first_time('cooling') or math.huge)
end

-- -> when asking again could help
function due.set_expiry()
    local time = first_expiry()
    set_time('expiry', time < math.huge and time)
    return time
end

function due.set_due()
    local time = math.min(due.set_expiry(), due.first_due())
    local left = call('EXISTS', P .. 'unserved', P .. 'unadmitted', P .. 'unnotified', P .. 'unoffered')
    set_time('due', left > 0 and 0 or time < math.huge and time)
end

return due
