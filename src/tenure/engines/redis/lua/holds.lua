-- The rest of what can be done with holds; see acquire.lua for the keys. ARGV[3] is the operation.
local changes = require('changes')
local hold_line = require('hold_line')
local numbers = require('numbers')
local session_items = require('session_items')
local steps = require('steps')
local waits = require('waits')
local watchers = require('watchers')

if numbers.is_due then
    return 'more'
end

local operations = {}

-- ARGV: key, session, holder, ... -> asked: for each what `acquire` answers; gone
function operations.ask(key)
    if not session_items.process_of(ARGV[5]) then
        return 'gone'
    end
    local answers = {}
    for i = 6, #ARGV do
        local found = call('HMGET', P .. key .. ':holders', '@' .. ARGV[i], 'meeting')
        local place = not found[1] and call('ZRANK', P .. key .. ':waiting', ARGV[i])
        answers[i - 5] = found[1] and 'granted ' .. match(found[1], '^%d+')
            or place and {'queued', place + 1, waits.ask_again_in(), found[2] or nil}
            or 'unknown'
    end
    return {'asked', answers}
end

-- The session of the holder that has this token, or nil.
local function session_of(key, holder, its_token)
    local found, session = match(call('HGET', P .. key .. ':holders', '@' .. holder) or '', '^(%d+) %d+ %d+ (.*)$')
    return found and tonumber(found) == tonumber(its_token) and session
end

-- ARGV: key, holder, token, value -> ok, refused
function operations.set_value(key)
    local HOLDERS = P .. key .. ':holders'
    if not session_of(key, ARGV[5], ARGV[6]) then
        return 'refused'
    end
    call('HSET', HOLDERS, '=' .. ARGV[5], ARGV[7])
    if call('HGET', HOLDERS, 'watched') then
        watchers.notify_watchers(HOLDERS, key, '', 'changed')
    end
    return 'ok'
end

-- ARGV: key, holder, token -> ok, refused
function operations.break_hold(key)
    local session = session_of(key, ARGV[5], ARGV[6])
    if not session then
        return 'refused'
    end
    session_items.hint(session_items.process_of(session), key, ARGV[5], 'broken')
    hold_line.remove_hold(key, ARGV[5])
    return 'ok'
end

-- ARGV: key, capacity -> ok, refused
function operations.resize(key)
    local HOLDERS = P .. key .. ':holders'
    local found = call('HMGET', HOLDERS, 'holder', 'used', 'waiting', 'watched')
    local holder, used = found[1], tonumber(found[2] or 0)
    if ARGV[5] == '0' then
        if used > 0 or tonumber(found[3] or 0) > 0 then
            return 'refused'
        end
        call('HDEL', HOLDERS, 'fixed', 'holder')
        call('HSET', HOLDERS, 'capacity', 0)
        local passed = call('EXISTS', P .. key .. ':held') == 1
        hold_line.serve_line(key, {capacity = 0, used = 0, waiting = 0, watched = found[4], passed = passed, gone = {}})
        return 'ok'
    end
    if holder and used > 0 then
        call('ZADD', P .. key .. ':held', match(call('HGET', HOLDERS, '@' .. holder), '^%d+'), holder)
    end
    call('HDEL', HOLDERS, 'holder')
    call('HSET', HOLDERS, 'capacity', ARGV[5], 'fixed', 1)
    hold_line.serve_key(key)
    return 'ok'
end

local answer = operations[ARGV[3]](ARGV[4])
changes.save_numbers()
return steps.is_unfinished and 'more' or answer
