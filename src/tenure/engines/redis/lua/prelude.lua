-- Every script begins with this.
--
-- KEYS[1]  what the names of all keys of the shard begin with, its hash tag included: "tenure:{0}:"
-- ARGV[1]  the time in microseconds, 16 digits; "" for the server's own
-- ARGV[2]  how many steps a loop may take
-- returns  a word ("ok", "gone", "more", ...), or an array that begins with one
--
-- The scripts that run for each lock are flat, and keep numbers as text where they can: a function, or a number that is
-- made of a text, costs as much as a small command. Times and tokens have 16 digits, so that they compare as text. A number
-- may be handed to `call` as it is: Redis writes it with 17 digits. Lua's `..` keeps 14: use string.format.

local P, call = KEYS[1], redis.call
local format, match, sub = string.format, string.match, string.sub

local NOW = ARGV[1]
if NOW == '' then
    local time = call('TIME')
    NOW = time[1] .. sub('00000' .. time[2], -6)
end

-- Where hints go: the name of the process follows. On a cluster, whose tags begin with 1, they need not go to all of its
-- nodes, from 7.0 on.
local PUBLISH, CHANNEL = 'PUBLISH', 'tenure:'
if P ~= 'tenure:{0}:' and redis.REDIS_VERSION_NUM then
    PUBLISH, CHANNEL = 'SPUBLISH', P
end
