-- The step budget: a loop that runs out of steps leaves the rest to the next sweep.

local CAP = tonumber(ARGV[2])
local steps_left, unfinished = CAP, false -- of the whole operation

local function step()
    if steps_left > 0 then
        steps_left = steps_left - 1
        return true
    end
    unfinished = true
    return false
end
