-- Records, and dead letters among them, as they leave their lists.
local endings = require('endings')
local queues = require('queues')

local dead_letters = {}

-- The time at which a task ended, the number of its ending and the token, as its record has them.
function dead_letters.ending_of(text)
    local time, seq, token = match(text, '^(%d+) (%d+) ?(%d*)$')
    return tonumber(time), tonumber(seq), token
end

function dead_letters.unlist_ending(queue, state, task_id, seq)
    local list, number = queue.key .. ':' .. state, format('%08d', math.floor(seq / endings.PART))
    call('ZREM', list .. ':' .. number, task_id)
    if call('EXISTS', list .. ':' .. number) == 0 then
        call('ZREM', list, number)
    end
end

function dead_letters.remove_dead_letter(queue, task_id, seq)
    call('ZREM', P .. 'expiring', task_id .. queue.name)
    dead_letters.unlist_ending(queue, 'dead', task_id, seq)
    queues.set(queue, 'dead', queue.dead - 1)
end

function dead_letters.purge_dead_letter(queue, task_id, seq)
    dead_letters.remove_dead_letter(queue, task_id, seq)
    local hash = queue.key .. ':' .. task_id
    call('DEL', hash, hash .. ':family', hash .. ':names')
    queues.set(queue, 'purged', queue.purged + 1)
end

return dead_letters
