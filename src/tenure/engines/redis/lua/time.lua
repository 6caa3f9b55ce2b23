-- How long until something happens, and what becomes due.
-- Reads: expiry, now

-- Microseconds until the earliest moment at which asking again could help, -1 for never.
local function ask_again_in(time)
    local earliest = math.min(expiry or math.huge, time or math.huge)
    return earliest == math.huge and -1 or math.max(0, earliest - now)
end
