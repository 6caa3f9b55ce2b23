-- Tries each command that the scripts call, on a key of its own, and reads which layout the keys have. So no script stops
-- halfway because the user lacks a right, because a server of another make lacks the command or refuses keys that are not
-- declared, or because another version wrote the keys. `COMMANDS` comes first, see `_scripts.py`.
--
-- ARGV: number of shards ("": the layout is kept elsewhere) -> the commands that are refused; the layout and the number of
-- shards that are stored; the commands that are unknown; the commands whose keys have to be declared

local P, LAYOUT = KEYS[1], '1'
local X, refused, unknown, undeclared = P .. 'probe', {}, {}, {}

local function try(command, ...)
    local answer = redis.pcall(command, ...)
    local problem = type(answer) == 'table' and answer.err
    if problem and (string.find(problem, "can't ", 1, true) or string.find(problem, 'NOPERM', 1, true)
        or string.find(problem, 'ACL failure', 1, true)) then
        refused[#refused + 1] = command
    elseif problem and (string.find(problem, 'nknown Redis command', 1, true)
        or string.find(problem, 'nknown command', 1, true)) then
        unknown[#unknown + 1] = command
    elseif problem and string.find(problem, 'undeclared', 1, true) then
        undeclared[#undeclared + 1] = command
    end
end

COMMANDS[#COMMANDS + 1] = P ~= 'tenure:{0}:' and redis.REDIS_VERSION_NUM and 'SPUBLISH' or 'PUBLISH'
-- Rights are checked behind the number of arguments and before their values, so one of these calls tries the right.
for _, command in ipairs(COMMANDS) do
    for count = 0, 5 do
        try(command, unpack({X, X, X, X, X}, 1, count))
    end
end
redis.pcall('DEL', X)
redis.pcall('PEXPIREAT', X, 1)
if ARGV[1] == '' or #refused + #unknown + #undeclared > 0 then
    return {refused, LAYOUT, ARGV[1], unknown, undeclared}
end
redis.pcall('HSETNX', P .. 'state', 'layout', LAYOUT)
redis.pcall('HSETNX', P .. 'state', 'shards', ARGV[1])
local stored = redis.pcall('HMGET', P .. 'state', 'layout', 'shards')
return {refused, stored[1] or LAYOUT, stored[2] or ARGV[1], unknown, undeclared}
