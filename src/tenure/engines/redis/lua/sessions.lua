-- Sessions: life signs. A row "s:" name -> {name, id, process, ttl, expires}, a member "E:" expiry, name.

local function expiry(session)
    return 'E:' .. digits(session.expires) .. session.name
end

local function renew(session)
    leave(expiry(session))
    session.expires = now + session.ttl
    enter(expiry(session))
    save('s:' .. session.name, session)
    return 'ok'
end

-- ARGV: session, process, ttl -> ok
local function open_session()
    local session = session_of(ARGV[4])
        or {name = ARGV[4], id = digits(number('id')), process = ARGV[5], expires = 0}
    session.ttl = tonumber(ARGV[6])
    return renew(session)
end

-- ARGV: session -> ok, gone
local function renew_session()
    local session = session_of(ARGV[4])
    return session and renew(session) or 'gone'
end

local operations = {ping = function() return 'ok' end, open = open_session, renew = renew_session}
