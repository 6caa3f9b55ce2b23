-- How long until something happens, and what becomes due.
local numbers = require('numbers')

local waits = {}

-- Microseconds until the earliest moment at which asking again could help, -1 for never.
function waits.ask_again_in(time)
    local earliest = math.min(numbers.expiry or math.huge, time or math.huge)
    return earliest == math.huge and -1 or math.max(0, earliest - numbers.now)
end

return waits
