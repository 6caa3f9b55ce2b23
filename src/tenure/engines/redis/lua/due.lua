-- When the shard has to be swept next: at once if watches or lines are left, else when the first session, task or rest
-- ends. `sessions`, `expiring` and `cooling` are sorted sets by time, `unserved` is a set of keys, `unadmitted`
-- one of queues, `unnotified` one of what `notify_watchers` has left, `unoffered` one of what `offer_resource` has left.

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

local function set_due()
    local session_ends = first_time('sessions')
    local time = math.min(session_ends or math.huge, first_time('expiring') or math.huge, first_time('cooling') or math.huge)
    set_time('expiry', session_ends)
    set_time('due', call('EXISTS', P .. 'unserved', P .. 'unadmitted', P .. 'unnotified', P .. 'unoffered') > 0 and 0
        or time < math.huge and time or nil)
end
