-- Gives back what the holder has, or leaves its place.
--
-- ARGV: key, holder -> released, left, unknown, more

local steps_left, unfinished = tonumber(ARGV[2]), false
local state = call('HMGET', P .. 'state', 'due', 'token')
if state[1] and state[1] <= NOW then
    return 'more'
end
local token = state[2] or '0000000000000000'
-- include notify_watchers
-- include serve_line
-- include remove_hold
return remove_hold(ARGV[3], ARGV[4])
