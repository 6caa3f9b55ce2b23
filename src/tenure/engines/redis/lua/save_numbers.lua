-- Write the numbers that the operation has changed.
-- Reads: id, shard, token

local due

-- The shard has to be swept at that time, if not earlier.
local function due_at(time)
    due = math.min(due or time, time)
end

local function save_numbers()
    if due and (not shard[1] or due < tonumber(shard[1])) then
        call('HSET', P .. 'state', 'due', format('%016d', due))
    end
    if token ~= (shard[3] or '0000000000000000') then
        call('HSET', P .. 'state', 'token', token)
    end
    if id ~= tonumber(shard[4] or 0) then
        call('HSET', P .. 'state', 'id', id)
    end
end
