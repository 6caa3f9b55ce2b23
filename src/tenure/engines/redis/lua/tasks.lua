-- The tasks of a queue, as they are read; `write` follows, which writes what many tasks change.
--
-- A task is a hash, the name of the queue with the id, as 14 hexadecimal digits: {payload; priority, attempts, deliveries unless
-- 0; key, and first, when it was put; deadline; expires, when it is looked at since it expires or is late; progress;
-- failure; meta; group; keep, 1 if its record shall hold the payload; watched, followed; kin, see families.lua; lease
-- while it is leased: token, ready since, limit of deliveries (0: it runs alone), the ttl of a dead letter ("": for good),
-- keep, 1 if it has more fields than the usual ones, deliveries, attempts, session, byte 255 and the group; stop, the ttl of
-- its record (-1: for good), when it shall not go back}.
-- Once it has ended it is its record: {state, result, ended: when, the number of the ending, and the token that it had;
-- expires, ...}. It expires, but for a dead letter, which the sweep deletes.
--
-- Sorted sets of ids, of those without a group: `ready` by since when, of the tasks with priority 0; `ranked` of the
-- others, by priority, then since when and id; `aged` of those by since when. Of all tasks: `delayed` by due time;
-- `<session> <queue>:leases` by token, of the tasks that a session has, and `lessees` a set of the sessions that have
-- any. `done`, `dead`, `cancelled`, `expired` and `discarded` list the records in parts of 4096 endings: each is a sorted
-- set of the numbers of its parts, and `done:<number>` one of ids by seq, which expires with the last of its records.
-- `keys` is a hash of key -> id, of unfinished tasks; the name of the queue, byte 255 and a key name a text, until
-- when a task has the key and its id, which expires then. Of the shard: `expiring`, a sorted set of tasks and dead
-- letters by the time when they expire or are late; of a session: `stops`.
local numbers = require('numbers')

local tasks = {}

local adding, removing = {}, {} -- to sorted sets: scores and members; members

function tasks.add_soon(key, score, member)
    local some = adding[key]
    if not some then
        some = {}
        adding[key] = some
    end
    some[#some + 1], some[#some + 2] = score, member
end

function tasks.remove_soon(key, member)
    local some = removing[key]
    if not some then
        some = {}
        removing[key] = some
    end
    some[#some + 1] = member
end

function tasks.write()
    for key, some in pairs(removing) do
        call('ZREM', key, unpack(some))
        removing[key] = nil
    end
    for key, some in pairs(adding) do
        call('ZADD', key, unpack(some))
        adding[key] = nil
    end
end

function tasks.read_task(queue, task_id)
    local task = {id = task_id, hash = queue.key .. ':' .. task_id, priority = 0, group = ''}
    local text, more = call('HGET', task.hash, 'lease'), '1'
    if text then
        task.token, task.since, task.limit, task.keep, more, task.deliveries, task.attempts, task.session, task.group =
            match(text, '^(%d+) (%d+) (%d+ %d*) (%d) (%d) (%d+) (%d+) ([^\255]*)\255?(.*)$')
        task.keep = task.keep == '1'
        task.since = math.min(task.since, numbers.now) -- a clock that was set back delays no task that was ready
    end
    if more == '1' then
        task.more = true
        local found = call('HMGET', task.hash, 'payload', 'state', 'priority', 'key', 'expires', 'stop', 'watched', 'keep',
            'attempts', 'deliveries', 'followed', 'group', 'kin', 'deadline')
        if found[2] or not found[1] then
            return
        end
        task.priority, task.key, task.expires = tonumber(found[3] or 0), found[4], found[5]
        task.watched, task.followed, task.kin, task.deadline = found[7], found[11], found[13], found[14]
        task.stop = found[6] and tonumber(found[6])
        if not text then
            task.keep, task.attempts, task.deliveries = found[8], found[9] or '0', found[10] or '0'
            task.group = found[12] or ''
        end
    end
    return task
end

function tasks.is_late(task)
    return task.deadline and tonumber(task.deadline) <= numbers.now
end

return tasks
