-- The tasks of a queue: read, and ended. `write_endings` follows, which writes what many tasks change.
--
-- A task is a hash, the name of the queue with the id, which has 12 digits: {payload; priority, attempts, deliveries unless
-- 0; key, and first, when it was put; expires; progress; failure; meta; group; keep, 1 if its record shall hold the
-- payload; watched, followed; lease while it is leased: token, ready since, limit of deliveries, the ttl of a dead letter ("":
-- for good), keep, 1 if it has more fields than the usual ones, deliveries, attempts, session, byte 255 and the group; stop, the ttl of its record (-1:
-- for good, -2: it is superseded), when it shall be cancelled}. Once it has ended it is its record: {state, result, ended: when, and the number of
-- the ending; expires, ...}. It expires, but for a dead letter, which the sweep deletes.
--
-- Sorted sets of ids, of those without a group: `ready` by since when, of the tasks with priority 0; `ranked` of the others, by priority, then since
-- when and id; `aged` of those by since when. Of all tasks: `delayed` by due time; `<session> <queue>:leases` by token, of the tasks that a
-- session has, and `lessees` a set of the sessions that have any. `done`, `dead`, `cancelled`,
-- `expired` and `discarded` list the records in parts of 4096 endings: each is a sorted set of the numbers of its parts,
-- and `done:<number>` one of ids by seq, which expires with the last of its records. `keys` is a hash of key -> id, of unfinished
-- tasks; the name of the queue, byte 255 and a key is that of a text, until when a task has the key and its id, which expires then.
-- Of the shard: `expiring`, a sorted set of tasks and dead letters by the time when they expire; of a session: `stops`.

local PART = 4096
local LEFT, NONE = {'stop', 'keep', 'expires', 'first'}, {}
local adding, removing = {}, {} -- to sorted sets: scores and members; members

local function add_soon(key, score, member)
    local some = adding[key]
    if not some then
        some = {}
        adding[key] = some
    end
    some[#some + 1], some[#some + 2] = score, member
end

local function remove_soon(key, member)
    local some = removing[key]
    if not some then
        some = {}
        removing[key] = some
    end
    some[#some + 1] = member
end

local function write()
    for key, some in pairs(removing) do
        call('ZREM', key, unpack(some))
        removing[key] = nil
    end
    for key, some in pairs(adding) do
        call('ZADD', key, unpack(some))
        adding[key] = nil
    end
end

-- What is known of a task that has not ended, or nil.
local function read_task(queue, task_id)
    local task = {id = task_id, hash = queue.key .. ':' .. task_id, priority = 0, group = ''}
    local text, more = call('HGET', task.hash, 'lease'), '1'
    if text then
        task.token, task.since, task.limit, task.keep, more, task.deliveries, task.attempts, task.session, task.group =
            match(text, '^(%d+) (%d+) (%d+ %d*) (%d) (%d) (%d+) (%d+) ([^\255]*)\255?(.*)$')
        task.keep = task.keep == '1'
    end
    if more == '1' then
        task.more = true
        local found = call('HMGET', task.hash, 'payload', 'state', 'priority', 'key', 'expires', 'stop', 'watched', 'keep',
            'attempts', 'deliveries', 'followed', 'group')
        if found[2] or not found[1] then
            return
        end
        task.priority, task.key, task.expires = tonumber(found[3] or 0), found[4], found[5]
        task.watched, task.followed = found[7], found[11]
        task.stop = found[6] and tonumber(found[6])
        if task.stop == -2 then
            task.stop, task.superseded = 3600e6, true
        end
        if not text then
            task.keep, task.attempts, task.deliveries = found[8], found[9] or '0', found[10] or '0'
            task.group = found[12] or ''
        end
    end
    return task
end

-- Take back the lease, but for the field of the task.
local function unlease(queue, task)
    remove_soon(P .. task.session .. ' ' .. queue.name .. ':leases', task.id)
    if task.stop then
        remove_soon(P .. task.session .. ':stops', task.token .. ' ' .. queue.name)
    end
    if task.group ~= '' then
        rare('groups').unlease_in(queue, task.group)
    end
end

local ending -- the number of the last ending in the shard, once it was read
local lists = {} -- state -> the part of its list that is written, part -> the list
local parts = {} -- what lists and parts were written, and when their last record expires; false: never
local texts = {} -- times as text

-- A task, in no order any more and without a lease, has ended; `ttl` nil keeps the record for good. `session_ttl` is that
-- of the session that settled it.
local function end_task(queue, task, state, result, ttl, session_ttl)
    local expires = ttl and now + ttl
    local stays = state == 'dead' or not expires -- until it is removed
    -- include leave_queue
    set(queue, state, queue[state] + 1)
    if session_ttl or not stays then -- what stays keeps its queue by being there
        set(queue, 'keep', math.max(queue.keep, stays and 0 or expires, session_ttl and now + 2 * session_ttl or 0))
    end
    if not expires and state ~= 'dead' then
        set(queue, 'kept', queue.kept + 1)
    elseif expires and state == 'dead' then
        add_soon(P .. 'expiring', expires, task.id .. queue.name)
        due_at(expires)
    end

    ending = (ending or call('HGET', P .. 'state', 'ending') or 0) + 1
    if not lists[state] or ending % PART == 0 then
        local list, number = queue.key .. ':' .. state, format('%08d', ending / PART)
        lists[state] = list .. ':' .. number
        add_soon(list, number, number)
        parts[list], parts[lists[state]] = parts[list] or 0, 0
        lists[lists[state]] = list
    end
    local part = lists[state]
    local list = lists[part]
    if stays then
        parts[list], parts[part] = false, false
    elseif parts[part] and parts[part] < expires then
        parts[list], parts[part] = parts[list] and math.max(parts[list], expires), expires
    end
    local seq = format('%d', ending)
    add_soon(part, seq, task.id)

    local payload = (task.keep or state == 'dead') and 'lease' or 'payload'
    call('HDEL', task.hash, 'lease', payload, unpack(task.more and LEFT or NONE))
    if expires then
        texts[expires] = texts[expires] or format('%016d', expires)
    end
    -- without a ttl the state is written twice, since a call cannot leave an argument out
    call('HSET', task.hash, 'state', state, 'result', result, 'ended', NOW .. ' ' .. seq, 'deliveries', task.deliveries,
        'attempts', task.attempts, expires and 'expires' or 'state', texts[expires or 0] or state)
    if not stays and ARGV[1] == '' then
        call('PEXPIREAT', task.hash, sub(texts[expires], 1, -4))
    end
    if task.watched or task.followed then
        rare().announce(queue, task, true)
    end
end

-- Write what has gathered, and let the lists of records expire with their last ones.
local function write_endings()
    local left = {}
    if ARGV[1] == '' then
        for key in pairs(parts) do
            left[key] = call('PTTL', key)
        end
    end
    write()
    if ending then
        call('HSET', P .. 'state', 'ending', ending)
    end
    for key, before in pairs(left) do
        local time = parts[key]
        if time and (before == -2 or before >= 0 and now / 1000 + before < time / 1000) then
            call('PEXPIREAT', key, math.ceil(time / 1000))
        elseif not time and before >= 0 then
            call('PERSIST', key)
        end
        parts[key] = nil
    end
    lists = {}
end
