-- Sessions: life signs. `<session>:session` is a hash {process, ttl, number}. No two sessions have the same
-- number. ARGV[3] is the operation.
local numbers = require('numbers')
local queues = require('queues')
local rests = require('rests')
require('steps')
require('takers')

if numbers.is_due then
    return 'more'
end

local operations = {}

-- A server at maxmemory refuses what needs memory as the first write of a script, and not behind another write. Without
-- this one, which needs none, all leases would be lost while the memory is full.
local function allow_beyond_maxmemory()
    call('PERSIST', P .. 'sessions')
end

-- When an idle taker of a queue has to ask.
local function taker_due(name)
    local queue = queues.read_queue(name)
    local pace = queues.paced[queue]
    if queue.paused == 1 then
        return math.huge
    elseif not (pace and pace.open == 0) and require('paces').count_waiting(queue) > 0 then
        return numbers.now
    end
    return require('order').first_due(queue) or math.huge
end

-- ARGV: "", 1 to delete what could not be read -> ok
function operations.ping()
    if ARGV[5] == '1' then
        call('DEL', P .. 'unreadable')
    end
    return 'ok'
end

-- ARGV: session, process, ttl -> ok
function operations.open_session(session)
    allow_beyond_maxmemory()
    if call('EXISTS', P .. 'sessions') == 0 then
        rests.announce()
    end
    if call('EXISTS', P .. session .. ':session') == 0 then
        call('HSET', P .. session .. ':session', 'process', ARGV[5], 'number', call('HINCRBY', P .. 'state', 'id', 1))
    end
    call('HSET', P .. session .. ':session', 'ttl', ARGV[6])
    rests.wake(session, tonumber(ARGV[6]))
    return 'ok'
end

-- ARGV: session, how long it may rest -> ok, gone, or resting: for how long
function operations.renew_session(session)
    allow_beyond_maxmemory()
    local ttl = call('HGET', P .. session .. ':session', 'ttl')
    if not ttl then
        return 'gone'
    elseif tonumber(ARGV[5]) > 0 and call('ZCOUNT', P .. session .. ':items', '-inf', '(5e15') == 0 then
        local time = math.huge
        for _, item in ipairs(call('ZRANGEBYSCORE', P .. session .. ':items', 5e15, '(6e15')) do
            time = math.min(time, taker_due(sub(item, 7)))
        end
        return {'resting', rests.rest(session, tonumber(ttl), tonumber(ARGV[5]), time)}
    end
    rests.wake(session, tonumber(ttl))
    return 'ok'
end

return operations[ARGV[3]](ARGV[4])
