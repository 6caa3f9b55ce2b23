-- The step budget: a loop that runs out of steps leaves the rest to the next sweep.
-- Reads: CAP

local steps_left, is_unfinished = CAP, false -- of the whole operation

local function step()
    if steps_left > 0 then
        steps_left = steps_left - 1
        return true
    end
    is_unfinished = true
    return false
end
