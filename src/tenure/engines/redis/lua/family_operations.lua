-- Children and entries of tasks. ARGV[3] is the operation.
local changes = require('changes')
local families = require('families')
local numbers = require('numbers')
local queues = require('queues')
local steps = require('steps')
local takers = require('takers')
local tasks = require('tasks')

if numbers.is_due then
    return 'more'
end

local operations = {}

local MOST_ENTRIES, DEEPEST = 10000, 32

-- The task that has the token of its lease, if its holder was not asked to stop; or a word.
local function read_leased(queue, task_id, its_token)
    local task = tasks.read_task(queue, families.digits(task_id))
    if not task or not task.token or tonumber(task.token) ~= tonumber(its_token) then
        return nil, 'refused'
    end
    local asked = task.stop and call('ZSCORE', P .. task.session .. ':stops', task.token .. ' ' .. queue.name)
    return not asked and task, 'requested'
end

-- Put a child of a family: its name, payload, priority, delay, meta, group and deadline ("": none) -> its id. `latest` is
-- the deadline of its parent.
local function put_child(family, queue, child, latest, name, payload, priority, delay, meta, group, deadline)
    local hash = queue.key .. ':' .. families.digits(child)
    call('HSET', hash, 'payload', payload, 'kin', 1)
    if priority ~= '0' then
        call('HSET', hash, 'priority', priority)
    end
    if meta ~= '' then
        call('HSET', hash, 'meta', meta)
    end
    if group ~= '' then
        call('HSET', hash, 'group', group)
        require('groups').count_in(queue, group)
    end
    call('HSET', hash .. ':family', 'parent_queue', family.queue.name, 'parent', tonumber(family.id, 16), 'name', name, 'depth',
        family.depth + 1)
    latest = math.min(tonumber(latest or math.huge), deadline == '' and math.huge or numbers.now + deadline)
    if latest < math.huge then
        call('HSET', hash, 'deadline', latest)
        require('order').look_at(queue, {id = families.digits(child), hash = hash}, latest)
        changes.due_at(latest)
    end
    queues.set(queue, 'put', queue.put + 1)
    queues.set(queue, 'tasks', queue.tasks + 1)
    local task = {id = families.digits(child), priority = tonumber(priority), group = group}
    require('order').enqueue(queue, task, numbers.now + delay)
    return child
end

-- ARGV: queue, id, token, queue of the children, most, then for each name, payload, priority, delay, meta, group and
-- deadline
-- -> accepted: ids; entry: the first that is no child's; toomany: most; refused, requested
function operations.put_children(name)
    local queue = families.queue_of(name)
    local task, refusal = read_leased(queue, ARGV[5], ARGV[6])
    if not task then
        return refusal
    end
    families.use(queue)
    local family, former, ids, new, more = families.family_of(queue, task), {}, {}, 0, 0
    for i = 9, #ARGV, 7 do
        local entry, is_there = families.read_entry(family, ARGV[i])
        if is_there and entry[2] ~= 'child' then
            return {'entry', unpack(entry)}
        elseif is_there then
            ids[i] = entry[6]
        else
            former[i], new, more = entry, new + 1, more + (entry and 0 or 1)
        end
    end
    local most = math.min(tonumber(ARGV[8]), MOST_ENTRIES)
    if more > 0 and family.total + more > most then
        return {'toomany', most}
    elseif new > 0 and family.depth >= DEEPEST then
        return redis.error_reply(format('ERR task %d is %d levels below its root and can have no children', ARGV[5], DEEPEST))
    end
    families.update(family, {total = family.total + more, unfinished = family.unfinished + new})
    local to = families.queue_of(ARGV[7])
    local answer, before = {}, to.takers > 0 and require('order').first_due(to)
    families.switch(to)
    for i = 9, #ARGV, 7 do
        if not ids[i] then
            ids[i] = put_child(family, to, tonumber(numbers.new_token()), task.deadline, unpack(ARGV, i, i + 6))
            families.add_entry(family, former[i], {ARGV[i], 'child', 'unfinished', '', to.name, ids[i], 0, 0})
        end
        answer[#answer + 1] = ids[i]
    end
    tasks.write()
    if new > 0 then
        takers.offer_tasks(to, takers.newly_takeable)
        require('order').offer_sooner(to, before)
    end
    families.close()
    return {'accepted', answer}
end

-- ARGV: queue, id, token (0: a signal), name, value -> ok, entry: the existing entry; toomany: most; refused, requested, unknown
function operations.set_entry(name)
    local queue = families.queue_of(name)
    local task, refusal = read_leased(queue, ARGV[5], ARGV[6])
    if ARGV[6] == '0' then
        task, refusal = tasks.read_task(queue, families.digits(ARGV[5])), 'unknown'
    end
    if not task then
        return refusal
    end
    families.use(queue)
    local family = families.family_of(queue, task)
    local entry, is_there = families.read_entry(family, ARGV[7])
    if is_there then
        return {'entry', unpack(entry)}
    elseif family.total >= MOST_ENTRIES then
        return {'toomany', MOST_ENTRIES}
    end
    if ARGV[6] ~= '0' and task.attempts ~= '0' then
        local counts = format('%%1 %d 0', task.deliveries - task.attempts)
        local its_lease = string.gsub(call('HGET', task.hash, 'lease'), '^(%d+ %d+ %d+ %d* %d %d) %d+ %d+', counts)
        call('HSET', task.hash, 'lease', its_lease)
    end
    families.add_value(family, ARGV[7], ARGV[6] == '0' and 'signal' or 'value', 'done', ARGV[8])
    families.close()
    return 'ok'
end

local answer = operations[ARGV[3]](ARGV[4])
changes.save_numbers()
return steps.is_unfinished and 'more' or answer
