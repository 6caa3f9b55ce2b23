-- Sessions: life signs. `<session>:session` is a hash {process, ttl, number}. No two sessions have the same
-- number. ARGV[3] is the operation.
local due = require('due')
local numbers = require('numbers')

if numbers.is_due then
    return 'more'
end

local operations = {}

-- A server at maxmemory refuses what needs memory as the first write of a script, and not behind another write. Without
-- this one, which needs none, all leases would be lost while the memory is full.
local function allow_beyond_maxmemory()
    call('PERSIST', P .. 'sessions')
end

local function renew(session, ttl)
    call('ZADD', P .. 'sessions', numbers.now + ttl, session)
    due.set_due()
    return 'ok'
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
    if call('EXISTS', P .. session .. ':session') == 0 then
        call('HSET', P .. session .. ':session', 'process', ARGV[5], 'number', call('HINCRBY', P .. 'state', 'id', 1))
    end
    call('HSET', P .. session .. ':session', 'ttl', ARGV[6])
    return renew(session, tonumber(ARGV[6]))
end

-- ARGV: session -> ok, gone
function operations.renew_session(session)
    allow_beyond_maxmemory()
    local ttl = call('HGET', P .. session .. ':session', 'ttl')
    return ttl and renew(session, tonumber(ttl)) or 'gone'
end

return operations[ARGV[3]](ARGV[4])
