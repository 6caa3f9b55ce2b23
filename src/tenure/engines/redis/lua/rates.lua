-- Spending at rates, with several limits (GCRA, ITU-T I.371): `Limiter` in tenure/engine/_rates.py says what and why.
--
-- `limiter` is {until, held_until, held, last_due, then name, end, rate, moved of each limit and, of a last booking that
-- has to wait, its session, due and size, else 0}, all times in microseconds;
-- `last_due` and the ends are on the limiter's clock, which stands still while it is held off. The key expires at
-- `until`, when the limiter is as good as new. `spenders` is a sorted set of the processes that wait, by when the last of
-- each is due. `limiters` has the limiters that are held off or make a caller wait, by the latest time at which they may.
--
-- A limit is three arguments: its name, rate, burst.
-- ARGV: "spend", key, session, n, number of limits, the limits, horizon, then for each request longest wait ("": any), costs
-- -> spent held {delay, then end and size of each limit if it was booked}..., all in whole nanoseconds; gone
-- ARGV: "refund", key, session, n, number of limits, the limits, then for each request and limit end, size and amount
-- ("": none) -> ok, gone
-- ARGV: "hold_off", key, session, n, microseconds (0: a hold ends) -> ok, gone
local numbers = require('numbers')
local replies = require('replies')

if numbers.is_due then
    return 'more'
end

local operation, key = ARGV[3], ARGV[4]
local LIMITER, WAITING = P .. key .. ':limiter', P .. key .. ':spenders'
local stored = call('GET', LIMITER)
local state = stored and cmsgpack.unpack(stored)
if not state or state[1] <= numbers.now then
    -- nil is room for one limit: a table that grows costs as much as a small command
    state = {0, 0, 0, 0, nil, nil, nil, nil, nil, nil, nil}
end
local held_until, held, last_due = state[2], state[3], state[4]
local time = (numbers.now > held_until and numbers.now or held_until) - held

-- Of each limit of the operation: its place in `state`, its rate, and for how many seconds it is booked at that rate.
local count, first = 0, 8
if operation ~= 'hold_off' then
    count = tonumber(ARGV[7])
end
local places, rates, ahead, far = {}, {}, {}, {}
local place_of
if count > 4 then -- for a few, a table costs more than it saves
    place_of = {}
    for place = 5, #state, 7 do
        place_of[state[place]] = place
    end
end
for i = 1, count do
    local name, rate, place = ARGV[first], tonumber(ARGV[first + 1]), 5
    if place_of then
        place = place_of[name] or #state + 1
    else
        while state[place] and state[place] ~= name do
            place = place + 7
        end
    end
    if not state[place] then
        state[place], state[place + 1], state[place + 2], state[place + 3] = name, 0, rate, 0
        state[place + 4], state[place + 5], state[place + 6] = 0, 0, 0
    elseif operation == 'spend' and state[place + 4] ~= 0 and state[place + 5] > time
            and call('EXISTS', P .. state[place + 4] .. ':session') == 0 then
        state[place + 1], state[place + 4] = state[place + 1] - state[place + 6], 0
    end
    local debt = (state[place + 1] - time) / 1e6 * (state[place + 2] / rate)
    debt = debt > 1e9 and 1e9 or debt > 0 and debt or 0
    places[i], rates[i], ahead[i] = place, rate, debt
    if operation == 'spend' and state[place + 2] ~= rate then
        state[place + 1], state[place + 2], state[place + 3], state[place + 4] = time + debt * 1e6, rate, 0, 0
    end
    first = first + 3
end

local session, n, object = ARGV[5], ARGV[6], key .. ':spend'
local ttl, number, known = replies.cached_reply(session, n, object)
if not ttl then
    return 'gone'
elseif known then
    replies.cache_reply(session, n, object, ttl, number, known)
    return known
end

local waits, delays = false, false
if operation == 'hold_off' then
    local begin, until_then = math.max(numbers.now, held_until), numbers.now + math.max(0, ARGV[7])
    if until_then > begin or until_then == numbers.now and numbers.now < held_until then
        for _, process in ipairs(call('ZRANGEBYSCORE', WAITING, format('%.17g', time), '+inf')) do
            call(PUBLISH, CHANNEL .. process, cjson.encode({key, '', 'held'}))
            waits = true
        end
        held, held_until = held + until_then - begin, until_then
        delays = true
    end
    known = 'ok'
elseif operation == 'spend' then
    local hold = held_until > numbers.now and (held_until - numbers.now) / 1e6 or 0
    known = {'spent', held * 1e3, nil}
    local horizon = ARGV[first] == '' and math.huge or ARGV[first] / 1e6 + 1e-6
    for i = 1, count do
        far[i] = ahead[i] - ARGV[7 + 3 * i] / rates[i] > horizon
    end
    for at = first + 1, #ARGV, 1 + count do
        local longest, start, is_far = ARGV[at], 0, false
        for i = 1, count do
            local cost = ARGV[at + i]
            if cost ~= '0' then
                local fits = ahead[i] + (cost - ARGV[7 + 3 * i]) / rates[i]
                start = fits > start and fits or start
                is_far = is_far or far[i]
            end
        end
        if start < 1e-6 then -- the time has no finer steps
            start = 0
        end
        local delay = hold + start
        local spending = {delay * 1e9, nil, nil}
        if (longest == '' or delay <= longest / 1e6 + 1e-6)
                and (start == 0 or not is_far) then
            for i = 1, count do
                local cost, before = ARGV[at + i], ahead[i]
                local after = before
                if cost ~= '0' then
                    -- what would come back beyond the burst before the start is lost
                    local least = start + math.min(cost, ARGV[7 + 3 * i]) / rates[i]
                    after = before + cost / rates[i]
                    after = after > least and after or least
                    ahead[i] = after < 1e9 and after or 1e9
                    local place = places[i]
                    state[place + 1], state[place + 2] = time + after * 1e6, rates[i]
                    state[place + 3], state[place + 4] = 0, 0
                    if delay > 0 then
                        state[place + 4], state[place + 5] = session, time + start * 1e6
                        state[place + 6] = (after - before) * 1e6
                    end
                end
                -- Redis cuts fractions off
                spending[2 * i] = (time + after * 1e6) * 1e3 + 0.5
                spending[2 * i + 1] = (after - before) * 1e9 + 0.5
            end
            if delay > 0 then
                waits, last_due = true, math.max(last_due, time + start * 1e6)
            end
        end
        known[#known + 1] = spending
    end
    if waits then
        call('ZREMRANGEBYSCORE', WAITING, '-inf', format('(%.17g', time))
        call('ZADD', WAITING, format('%.17g', last_due), call('HGET', P .. session .. ':session', 'process'))
        delays = true
    end
else
    for at = first, #ARGV, 3 do
        local i = (at - first) / 3 % count + 1
        local place, rate, amount = places[i], rates[i], tonumber(ARGV[at + 2])
        -- in seconds at the rate of the booking, from now on
        local change = state[place + 2] / rate
        local debt, ends_in = (state[place + 1] - time) / 1e6 * change, (ARGV[at] - time) / 1e6
        local back = amount and amount / rate or tonumber(ARGV[at + 1])
        if not amount then
            local moved, by = state[place + 3], state[place + 4]
            if math.abs(debt - moved / 1e6 * change - ends_in) > 1e-6 or by ~= 0 and by ~= session then
                back = 0 -- there is another booking behind it, whose caller may have counted on none of it
            elseif moved == 0 then
                debt = ends_in -- no rounding adds up
            end
        elseif back < 0 then
            debt = math.max(0, debt)
        end
        if back ~= 0 then
            local after = time + math.min((debt - math.min(back, math.max(0, ends_in))) / change, 1e9) * 1e6
            if amount then
                state[place + 3] = state[place + 3] + after - state[place + 1]
            else
                state[place + 4] = 0
            end
            state[place + 1] = after
        end
    end
    known = 'ok'
end

if delays then
    local LIMITERS = P .. 'limiters'
    call('ZREMRANGEBYSCORE', LIMITERS, '-inf', format('(%.17g', numbers.now))
    call('ZADD', LIMITERS, 'GT', format('%.17g', math.max(held_until, last_due + held)), key)
    if ARGV[1] == '' then
        call('PEXPIREAT', LIMITERS, math.ceil(call('ZRANGE', LIMITERS, -1, -1, 'WITHSCORES')[2] / 1000))
    end
end

-- Limits without bookings go.
local latest, last = last_due, 4
for place = 5, #state, 7 do
    local ends = state[place + 1]
    if ends > time then
        latest = ends > latest and ends or latest
        for i = 0, 6 do
            state[last + 1 + i] = state[place + i]
        end
        last = last + 7
    end
end
for extra = #state, last + 1, -1 do
    state[extra] = nil
end
local used_until = latest + held
used_until = used_until > held_until and used_until or held_until
if used_until <= numbers.now then
    if stored then
        call('DEL', LIMITER, WAITING)
    end
else
    state[1], state[2], state[3], state[4] = used_until, held_until, held, last_due
    state = cmsgpack.pack(state)
    if ARGV[1] ~= '' then
        call('SET', LIMITER, state)
    else
        local left = math.ceil((used_until - numbers.now) / 1000)
        call('SET', LIMITER, state, 'PX', left)
        if waits then
            call('PEXPIREAT', WAITING, math.ceil(used_until / 1000))
        end
    end
end
replies.cache_reply(session, n, object, ttl, number, known)
return known
