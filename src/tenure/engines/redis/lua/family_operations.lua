-- Children and entries of tasks. ARGV[3] is the operation.
local changes = require('changes')
local families = require('families')
local numbers = require('numbers')
local steps = require('steps')
local takers = require('takers')
local tasks = require('tasks')

if numbers.is_due then
    return 'more'
end

local operations = {}

local MOST_ENTRIES, DEEPEST = 10000, 32

-- The task that has the token of its lease, if its holder was not asked to stop, or may be; or a word.
local function read_leased(queue, task_id, its_token, may_stop)
    local task = tasks.read_task(queue, families.digits(task_id))
    if not task or not task.token or tonumber(task.token) ~= tonumber(its_token) then
        return nil, 'refused'
    end
    local asked = task.stop and call('ZSCORE', P .. task.session .. ':stops', task.token .. ' ' .. queue.name)
    return (may_stop or not asked) and task, 'requested'
end

-- Put the child of an entry: its name, payload, priority, delay, meta, group and deadline ("": none). `latest` is the deadline
-- of its parent.
local function put_child(family, queue, entry, latest, name, payload, priority, delay, meta, group, deadline)
    local task_id = families.digits(entry[6])
    local hash = queue.key .. ':' .. task_id
    call('HSET', hash, 'payload', payload, 'kin', entry[3] == 'held' and 'held' or 1)
    if priority ~= '0' then
        call('HSET', hash, 'priority', priority)
    end
    if meta ~= '' then
        call('HSET', hash, 'meta', meta)
    end
    if group ~= '' then
        call('HSET', hash, 'group', group)
    end
    call('HSET', hash .. ':family', 'parent_queue', family.queue.name, 'parent', tonumber(family.id, 16), 'name', name, 'depth',
        family.depth + 1)
    if entry[3] == 'held' then
        return require('releases').hold(family, queue, entry, hash, deadline)
    end
    latest = math.min(tonumber(latest or math.huge), deadline == '' and math.huge or numbers.now + deadline)
    local task = {id = task_id, hash = hash, priority = tonumber(priority), group = group}
    families.enter(queue, task, latest, numbers.now + delay)
end

-- Whether a release that is there has another target, or another payload as long as that is on record.
local function differs(entry, payload)
    local state, its = unpack(call('HMGET', P .. entry[5] .. ':' .. families.digits(entry[6]), 'state', 'payload'))
    return entry[5] ~= ARGV[7] or not state and its and its ~= payload
end

-- ARGV: queue, id, token, queue of the children, most, held ("": children), together (0 or 1), then for each name, payload,
-- priority, delay, meta, group and deadline
-- -> accepted: ids; named: ids and states; entry: the first that is no child's, or of another release; toomany: most; refused,
-- requested
function operations.put_children(name)
    local queue = families.queue_of(name)
    local task, refusal = read_leased(queue, ARGV[5], ARGV[6])
    if not task then
        return refusal
    end
    families.use(queue)
    local family, former, ids, new, more = families.family_of(queue, task), {}, {}, 0, 0
    local held, kind, known, states = ARGV[9] ~= '', ARGV[9] ~= '' and 'release' or 'child', {}, {}
    for i = 11, #ARGV, 7 do
        local entry, is_there = families.read_entry(family, ARGV[i])
        if is_there and (entry[2] ~= kind or held and differs(entry, ARGV[i + 1])) then
            return {'entry', unpack(entry)}
        elseif is_there then
            known[i] = entry
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
    families.update(family, not held and {total = family.total + more, unfinished = family.unfinished + new}
        or {total = family.total + more, held = family.held + new, named = 1, life = math.max(1, family.life)})
    local to = families.queue_of(ARGV[7])
    local before = to.takers > 0 and require('order').first_due(to)
    families.switch(to)
    for i = 11, #ARGV, 7 do
        local entry = known[i]
        if not entry then
            entry = {ARGV[i], kind, held and 'held' or 'unfinished', '', to.name, tonumber(numbers.new_token()), 0, 0,
                together = held and tonumber(ARGV[10]) or nil, token = ARGV[9] == 'unless_done' and tonumber(ARGV[6]) or nil}
            put_child(family, to, entry, task.deadline, unpack(ARGV, i, i + 6))
            families.add_entry(family, former[i], entry)
        elseif entry.token then
            entry.token = tonumber(ARGV[6])
            families.write_entry(family, entry)
        end
        ids[#ids + 1], states[#states + 1] = entry[6], entry[3]
    end
    tasks.write()
    if new > 0 then
        takers.offer_tasks(to, takers.newly_takeable)
        require('order').offer_sooner(to, before)
    end
    families.close()
    return held and {'named', ids, states} or {'accepted', ids}
end

-- ARGV: queue, id, token (0: a signal), name, value, "begin" or "keep" of a release or "" -> ok, entry: the existing entry;
-- toomany: most; refused, requested, unknown, children
function operations.set_entry(name)
    local queue = families.queue_of(name)
    local change = ARGV[9]
    local task, refusal = read_leased(queue, ARGV[5], ARGV[6], change ~= '')
    if ARGV[6] == '0' and change == '' then
        task, refusal = tasks.read_task(queue, families.digits(ARGV[5])), 'unknown'
    end
    if not task then
        return refusal
    end
    families.use(queue)
    local family = families.family_of(queue, task)
    local entry, is_there = families.read_entry(family, ARGV[7])
    if change ~= '' and not (is_there and entry[2] == 'release') then
        return 'unknown'
    elseif is_there and (change == '' or entry[3] ~= 'held') then
        return {'entry', unpack(entry)}
    elseif change == 'begin' and families.next_name(family, 'u', '', '') then
        return 'children'
    elseif change ~= '' then
        local act = change == 'keep' and require('releases').remove or require('releases').begin
        act(family, entry, 'kept')
        families.close()
        return 'ok'
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
