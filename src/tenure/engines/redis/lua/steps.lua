-- The step budget: a loop that runs out of steps leaves the rest to the next sweep.

local steps = {}

-- The most that an operation may take, and that one call of `unpack` returns half of.
steps.most = tonumber(ARGV[2])
steps.left, steps.is_unfinished = steps.most, false

return steps
