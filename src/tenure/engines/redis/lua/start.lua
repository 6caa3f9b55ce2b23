-- What every script begins with.
--
-- KEYS[1]  the rows: a hash of packed tables, by a kind and a name ("s:" sessions, "l:" lines, ...)
-- KEYS[2]  the order: a sorted set whose scores are all 0, so that it is an index of prefixes and numbers:
--          "E:" when sessions expire, "D:" what else becomes due, "t:" the things of a session, "w:" watches;
--          the families describe theirs
-- ARGV[1]  the time in microseconds; "" for the server's own
-- ARGV[2]  how many steps a loop may take
-- ARGV[3]  the operation; ARGV[4] and on: its arguments
-- returns  a word for an answer without words of its own ("ok", "gone", "more", ...), or an array that begins with one

local ROWS, ORDER = KEYS[1], KEYS[2]
local call = redis.call

local now = tonumber(ARGV[1])
if not now then
    local time = call('TIME')
    now = time[1] * 1000000 + time[2]
end
