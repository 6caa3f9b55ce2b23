-- Writes the numbers that the operation has changed.
local numbers = require('numbers')
local shard = require('shard')

local changes = {}

local due

-- The shard has to be swept at that time, if not earlier.
function changes.due_at(time)
    due = math.min(due or time, time)
end

function changes.save_numbers()
    if due and (not shard.due or due < tonumber(shard.due)) then
        call('HSET', P .. 'state', 'due', format('%016d', due))
    end
    if shard.token ~= (numbers.stored[3] or '0000000000000000') then
        call('HSET', P .. 'state', 'token', shard.token)
    end
    if numbers.id ~= tonumber(numbers.stored[4] or 0) then
        call('HSET', P .. 'state', 'id', numbers.id)
    end
end

return changes
