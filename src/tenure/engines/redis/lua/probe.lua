-- Tries each command that the scripts call, on a key of its own, and looks which layout the keys have. Nothing is half
-- applied later because the user lacks a right, or because the keys are another version's.
--
-- ARGV: number of shards ("": the layout is kept elsewhere) -> the commands that are refused; the layout and the number of
-- shards that are stored

local P, LAYOUT = KEYS[1], '2'
local X = P .. 'probe'
local refused = {}

local function try(...)
    local answer = redis.pcall(...)
    local problem = type(answer) == 'table' and answer.err
    if problem and (string.find(problem, "can't ", 1, true) or string.find(problem, 'NOPERM', 1, true)
        or string.find(problem, 'ACL failure', 1, true)) then
        refused[#refused + 1] = (select(1, ...))
    end
    return answer
end

try('TIME')
try('INFO', 'server')
for _, command in ipairs({'HMGET', 'HGET', 'HDEL', 'HEXISTS', 'ZRANK', 'ZREM', 'ZSCORE', 'SREM'}) do
    try(command, X, 'x')
end
for _, command in ipairs({'HGETALL', 'GET', 'GETDEL', 'EXISTS', 'PTTL', 'PERSIST', 'ZCARD', 'SMEMBERS', 'SCARD', 'ZPOPMIN'}) do
    try(command, X)
end
try('ZRANGE', X, 0, 0)
try('ZRANGEBYSCORE', X, 0, 0)
try('ZRANGEBYLEX', X, '-', '+')
try('ZCOUNT', X, 0, 0)
try('ZREMRANGEBYSCORE', X, 0, 0)
try('HSET', X, 'x', '1')
try('HSETNX', X, 'x', '1')
try('HINCRBY', X, 'x', 1)
try('DEL', X)
try('ZADD', X, 0, 'x')
try('DEL', X)
try('SADD', X, 'x')
try('PEXPIREAT', X, 1)
try('SET', X, '1', 'PX', 1)
try('DEL', X)
try('INCR', X)
try('DEL', X)
redis.pcall('PEXPIREAT', X, 1)
if P ~= 'tenure:{0}:' and redis.REDIS_VERSION_NUM then
    try('SPUBLISH', P .. 'probe', '')
else
    try('PUBLISH', 'tenure:probe', '')
end
if ARGV[1] == '' or #refused > 0 then
    return {refused, LAYOUT, ARGV[1]}
end
if redis.pcall('EXISTS', P .. 'rows') == 1 then
    return {refused, '1', ARGV[1]}
end
redis.pcall('HSETNX', P .. 'state', 'layout', LAYOUT)
redis.pcall('HSETNX', P .. 'state', 'shards', ARGV[1])
local stored = redis.pcall('HMGET', P .. 'state', 'layout', 'shards')
return {refused, stored[1] or LAYOUT, stored[2] or ARGV[1]}
