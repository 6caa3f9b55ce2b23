-- `task`, in no order any more, leaves the unfinished ones of `queue`.
if task.key then
    call('HDEL', queue.key .. ':keys', task.key)
end
if task.expires then
    call('ZREM', P .. 'expiring', task.id .. queue.name)
end
set(queue, 'tasks', queue.tasks - 1)
if task.group ~= '' then
    rare('groups').go(queue, task)
end
if queue.producers > 0 then
    rare().admit(queue)
end
if queue.watched == 1 and queue.tasks == 0 then
    rare().fire_if(true, queue.key .. ':queue', queue.name, '', 'drained')
    queue.watched = 0
end
