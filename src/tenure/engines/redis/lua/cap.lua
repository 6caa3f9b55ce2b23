-- The step budget of an operation, and the most that one call of `unpack` returns half of.

local CAP = tonumber(ARGV[2])
