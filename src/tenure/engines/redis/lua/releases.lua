-- Releases: children that are named before there is anything to release, and begin when their owner would end. The laws are
-- in engine/_families.py, and rules/_releases.py is the same in Python. families.lua has the keys.
local families = require('families')
local numbers = require('numbers')
local queues = require('queues')
local tasks = require('tasks')

local releases = {}

-- What `names` has of a release that is held: the release that was named last comes first.
local function held_name(entry)
    return 'h' .. format('%014x', 2 ^ 53 - entry[6]) .. entry[1]
end

-- A new release is held, with that many microseconds for its work ("": no limit).
function releases.hold(family, queue, entry, hash, duration)
    call('ZADD', family.names, 0, held_name(entry))
    call('ZADD', queue.key .. ':held', entry[6], families.digits(entry[6]))
    call('HSET', hash .. ':family', 'release', 1, 'life', 1, 'since', NOW, 'duration', duration)
    queues.set(queue, 'kept', queue.kept + 1) -- the queue is not over
end

-- A release is held no more.
local function leave(family, entry, state)
    entry[3] = state
    families.write_entry(family, entry)
    call('ZREM', family.names, held_name(entry))
    families.update(family, {held = family.held - 1})
    local queue = families.queue_of(entry[5])
    local task = tasks.read_task(queue, families.digits(entry[6]))
    families.leave_place(queue, task)
    queues.set(queue, 'kept', queue.kept - 1)
    return queue, task
end

function releases.begin(family, entry)
    local queue, task = leave(family, entry, 'unfinished')
    families.update(family, {unfinished = family.unfinished + 1, ran = 1, beside = entry.together})
    local duration = tonumber(call('HGET', task.hash .. ':family', 'duration'))
    require('order').notify_task_watchers(queue, task)
    families.offering(queue, families.enter, task, duration and numbers.now + duration or math.huge, numbers.now)
end

-- A release never begins.
function releases.remove(family, entry, state)
    local queue, task = leave(family, entry, state)
    call('DEL', task.hash, task.hash .. ':family', task.hash .. ':names')
    require('order').notify_task_watchers(queue, task, true)
end

-- Begin the next releases, or drop those that are handed over; true if there may be more.
local function begin_next(family)
    for _ = 1, families.SWEEP_STEPS do
        local first = families.next_name(family, 'h', '', '')
        local entry = first and families.read_entry(family, sub(first, 15))
        local is_beside = entry and family.beside == 1 and entry.together == 1 and family.unfinished < families.SWEEP_STEPS
        if entry and entry.token and entry.token == family.dropped then
            releases.remove(family, entry, 'dropped')
        elseif entry and (family.unfinished == 0 or is_beside) then
            releases.begin(family, entry)
        else
            return false
        end
    end
    return true
end

-- No child of a task that is ending is unfinished: its releases begin, and then the verdict is applied.
function releases.go_on(family)
    local is_final = family.ending ~= 'retry'
    if is_final and begin_next(family) then
        families.sweep_from(family, '')
    end
    if family.unfinished == 0 and not (is_final and family.held > 0) then
        families.apply(family, tasks.read_task(family.queue, family.id))
    end
end

return releases
