-- Clears up what time has made due: lines left unserved, expired sessions, then the rest, in the order of their times.
-- With a session as argument, that one is ended first, whatever its time. -> ok, gone (no such session), more

local droppers = {
    [HOLD] = drop_hold, [CLAIM] = drop_claim, [ARRIVAL] = drop_arrival, [PRODUCER] = drop_producer,
    [TASK] = drop_task, [TAKER] = drop_taker,
    [WATCH] = function(_, name)
        unwatch(name)
    end,
    [ANSWER] = function(session, name)
        delete('a:' .. session.id .. ':' .. name)
    end,
}

-- Give up what a session has, and forget it; false if the steps did not suffice.
local function finish(session)
    local prefix = 't:' .. session.id .. ':'
    local member = first(prefix)
    while member do
        local family = tonumber(string.sub(member, #prefix + 1, #prefix + 1))
        if family ~= ANSWER and not step() then
            return false
        end
        leave(member)
        droppers[family](session, string.sub(member, #prefix + 18))
        member = first(prefix)
    end
    leave('E:' .. digits(session.expires) .. session.name)
    delete('s:' .. session.name)
    return true
end

local function go_on()
    for _, member in ipairs(under('D:' .. digits(0) .. 'l', 1000)) do
        leave(member)
        go_on_serving(string.sub(member, 20))
    end
end

local function end_expired()
    look_for_the_soonest()
    while soonest and soonest <= now do
        if not finish(session_of(string.sub(first('E:'), 19))) then
            return false
        end
        look_for_the_soonest()
    end
    return true
end

-- Expire tasks, then end rests, each in the order of their times.
local function do_what_is_due()
    local members = call('ZRANGEBYLEX', ORDER, '[D:', '(D:' .. digits(now + 1), 'LIMIT', 0, 1000)
    for _, kind in ipairs({'x', 'r'}) do
        for _, member in ipairs(members) do
            if string.sub(member, 19, 19) == kind then
                if not step() then
                    return false
                end
                local act = kind == 'x' and expire_task or end_rest
                act(string.sub(member, 20))
                leave(member)
            end
        end
    end
    return #members < 1000
end

local function clear_up()
    go_on()
    return not unfinished and end_expired() and do_what_is_due()
end

local function sweep()
    return clear_up() and 'ok' or 'more'
end

-- ARGV: session -> ok, gone
local function close_session()
    if not clear_up() then
        return 'more'
    end
    local session = session_of(ARGV[4])
    if not session then
        return 'gone'
    end
    leave('E:' .. digits(session.expires) .. session.name)
    session.expires = 0
    enter('E:' .. digits(0) .. session.name)
    save('s:' .. session.name, session)
    return finish(session) and 'ok' or 'more'
end

local answer = ({sweep = sweep, close = close_session})[ARGV[3]]()
keep_numbers()
return unfinished and 'more' or answer
