-- Records, and dead letters among them, as they leave their lists.
-- Reads: PART, set

-- The time at which a task ended, and the number of its ending, as its record has them.
local function ending_of(text)
    local time, seq = match(text, '^(%d+) (%d+)$')
    return tonumber(time), tonumber(seq)
end

local function unlist_ending(queue, state, task_id, seq)
    local list, number = queue.key .. ':' .. state, format('%08d', math.floor(seq / PART))
    call('ZREM', list .. ':' .. number, task_id)
    if call('EXISTS', list .. ':' .. number) == 0 then
        call('ZREM', list, number)
    end
end

-- A dead letter is no longer one: it goes, or becomes a task again.
local function remove_dead_letter(queue, task_id, seq)
    call('ZREM', P .. 'expiring', task_id .. queue.name)
    unlist_ending(queue, 'dead', task_id, seq)
    set(queue, 'dead', queue.dead - 1)
end

local function purge_dead_letter(queue, task_id, seq)
    remove_dead_letter(queue, task_id, seq)
    local hash = queue.key .. ':' .. task_id
    call('DEL', hash, hash .. ':family', hash .. ':names')
    set(queue, 'purged', queue.purged + 1)
end
