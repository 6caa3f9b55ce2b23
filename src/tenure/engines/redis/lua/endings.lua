-- The ends of tasks. `write_endings` follows, which writes what many of them change.
local changes = require('changes')
local numbers = require('numbers')
local queues = require('queues')
local tasks = require('tasks')

local endings = {}

endings.PART = 4096 -- endings in a part of a list of records
local LEFT, NONE = {'stop', 'keep', 'expires', 'first', 'deadline'}, {}

-- Take back the lease, but for the field of the task, which ends for sure if it `ends`.
function endings.unlease(queue, task, ends)
    tasks.remove_soon(P .. task.session .. ' ' .. queue.name .. ':leases', task.id)
    if task.stop then
        tasks.remove_soon(P .. task.session .. ':stops', task.token .. ' ' .. queue.name)
    end
    if task.group == '' then
        return
    elseif ends and require('alone').end_last(queue, task.group) then
        task.group = ''
    else
        require('groups').count_unleased(queue, task.group)
    end
end

-- A task that has left its order leaves the unfinished tasks of its queue.
function endings.leave_queue(queue, task)
    if task.key then
        call('HDEL', queue.key .. ':keys', task.key)
    end
    if task.expires then
        call('ZREM', P .. 'expiring', task.id .. queue.name)
    end
    queues.set(queue, 'tasks', queue.tasks - 1)
    if task.group ~= '' then
        require('groups').count_out(queue, task)
    end
    if queue.producers > 0 then
        require('producers').admit(queue)
    end
    if queue.watched == 1 and queue.tasks == 0 then
        require('order').notify_drained(queue)
    end
end

local ending -- the number of the last ending in the shard, once it was read
local lists = {} -- state -> the part of its list that is written, part -> the list
local parts = {} -- what lists and parts were written, and when their last record expires; false: never
local texts = {} -- times as text

-- A task that has left its order and has no lease has ended; `ttl` nil keeps the record for good. `session_ttl` is the
-- ttl of the session that settled it.
function endings.end_task(queue, task, state, result, ttl, session_ttl)
    local expires = ttl and numbers.now + ttl
    local stays = state == 'dead' or not expires -- until it is removed
    endings.leave_queue(queue, task)
    queues.set(queue, state, queue[state] + 1)
    if session_ttl or not stays then -- what stays keeps its queue by being there
        local until_then = session_ttl and numbers.now + 2 * session_ttl or 0
        queues.set(queue, 'keep', math.max(queue.keep, stays and 0 or expires, until_then))
    end
    if not expires and state ~= 'dead' then
        queues.set(queue, 'kept', queue.kept + 1)
    elseif expires and state == 'dead' then
        tasks.add_soon(P .. 'expiring', expires, task.id .. queue.name)
        changes.due_at(expires)
    end

    ending = (ending or call('HGET', P .. 'state', 'ending') or 0) + 1
    if not lists[state] or ending % endings.PART == 0 then
        local list, number = queue.key .. ':' .. state, format('%08d', ending / endings.PART)
        lists[state] = list .. ':' .. number
        tasks.add_soon(list, number, number)
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
    tasks.add_soon(part, seq, task.id)

    local payload = (task.keep or state == 'dead') and 'lease' or 'payload'
    call('HDEL', task.hash, 'lease', payload, unpack(task.more and LEFT or NONE))
    if expires then
        texts[expires] = texts[expires] or format('%016d', expires)
    end
    -- without a ttl the state is written twice, since a call cannot leave an argument out
    call('HSET', task.hash, 'state', state, 'result', result, 'ended', NOW .. ' ' .. seq .. ' ' .. (task.token or ''),
        'deliveries', task.deliveries, 'attempts', task.attempts, expires and 'expires' or 'state', texts[expires or 0] or state)
    if not stays and ARGV[1] == '' then
        call('PEXPIREAT', task.hash, sub(texts[expires], 1, -4))
    end
    if task.watched or task.followed then
        require('order').notify_task_watchers(queue, task, true)
    end
    if task.kin then
        require('families').ended(queue, task, state, result)
    end
end

-- Write what has gathered, and let the lists of records expire with their last ones.
function endings.write_endings()
    local left = {}
    if ARGV[1] == '' then
        for key in pairs(parts) do
            left[key] = call('PTTL', key)
        end
    end
    tasks.write()
    if ending then
        call('HSET', P .. 'state', 'ending', ending)
    end
    for key, before in pairs(left) do
        local time = parts[key]
        if time and (before == -2 or before >= 0 and numbers.now / 1000 + before < time / 1000) then
            call('PEXPIREAT', key, math.ceil(time / 1000))
        elseif not time and before >= 0 then
            call('PERSIST', key)
        end
        parts[key] = nil
    end
    lists = {}
end

return endings
