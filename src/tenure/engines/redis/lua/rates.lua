-- Spending at rates, with several limits (GCRA, ITU-T I.371): `Limiter` in tenure/engine/_rates.py says what and why.
--
-- `limiter` is {until, held_until, held, last_due, then name, end, rate of each limit}, all times in microseconds; `last_due`
-- and the ends are on the limiter's clock, which stands still while it is held off. The key expires at `until`, when the
-- limiter is as good as new.
-- `spenders` is a sorted set of the processes that wait, by when the last of each is due.
--
-- A limit is three arguments: its name, rate, burst.
-- ARGV: "spend", key, session, n, number of limits, the limits, then for each request longest wait ("": any) and costs
-- -> spent held {delay, then end and size of each limit if it was booked}..., all in whole nanoseconds; gone
-- ARGV: "refund", key, session, n, number of limits, the limits, then for each request and limit end, size and amount ("": none)
-- -> ok, gone
-- ARGV: "hold_off", key, session, n, microseconds -> ok, gone
-- ARGV: "look", key, the limits -> looked: held off and held in seconds, what is booked of each

local operation, key = ARGV[3], ARGV[4]
local LIMITER, WAITING = P .. key .. ':limiter', P .. key .. ':spenders'
local held_until, held, last_due = 0, 0, 0
local ends, end_rates = {}, {} -- by the name of the limit
local stored = call('GET', LIMITER)
if stored then
    local state = cmsgpack.unpack(stored)
    if state[1] > now then
        held_until, held, last_due = state[2], state[3], state[4]
        for i = 5, #state, 3 do
            ends[state[i]], end_rates[state[i]] = state[i + 1], state[i + 2]
        end
    end
end
local time = (now > held_until and now or held_until) - held

-- For how many seconds a limit is booked from now on, at its rate of today.
local function ahead_of(name, rate)
    local ends_at = ends[name]
    if not ends_at or ends_at <= time then
        return 0
    end
    return math.min((ends_at - time) / 1e6 * (end_rates[name] / rate), 1e9)
end

if operation == 'look' then
    local debts = {}
    for i = 5, #ARGV, 3 do
        debts[#debts + 1] = format('%.17g', ahead_of(ARGV[i], tonumber(ARGV[i + 1])) * ARGV[i + 1])
    end
    return {'looked', format('%.17g', math.max(0, held_until - now) / 1e6), format('%.17g', held / 1e6), debts}
end

local session, n = ARGV[5], ARGV[6]
local object = key .. ':spend'
-- include answer_known
if known then
    -- include answer_keep
    return known
end

local waits, hints = false, {}
if operation == 'hold_off' then
    local begin, until_then = math.max(now, held_until), now + ARGV[7]
    if until_then > begin then
        hints = call('ZRANGEBYSCORE', WAITING, format('%.17g', time), '+inf')
        held, held_until = held + until_then - begin, until_then
        waits = #hints > 0
    end
    known = 'ok'
else
    local count = tonumber(ARGV[7])
    local names, rates, bursts = {}, {}, {}
    for i = 1, count do
        names[i], rates[i], bursts[i] = ARGV[5 + 3 * i], tonumber(ARGV[6 + 3 * i]), tonumber(ARGV[7 + 3 * i])
    end
    local first = 8 + 3 * count
    if operation == 'spend' then
        local ahead, costs = {}, {}
        for i = 1, count do
            ahead[i] = ahead_of(names[i], rates[i])
        end
        local hold = held_until > now and (held_until - now) / 1e6 or 0
        known = {'spent', held * 1e3}
        for at = first, #ARGV, 1 + count do
            local longest, start = tonumber(ARGV[at]), 0
            for i = 1, count do
                local cost = tonumber(ARGV[at + i])
                costs[i] = cost
                if cost ~= 0 then
                    local fits = ahead[i] + (cost - bursts[i]) / rates[i]
                    if fits > start then
                        start = fits
                    end
                end
            end
            if start < 1e-6 then -- the time has no finer steps
                start = 0
            end
            local delay = hold + start
            local spending = {delay * 1e9}
            if not longest or delay <= longest / 1e6 + 1e-6 then
                for i = 1, count do
                    local cost, before, rate = costs[i], ahead[i], rates[i]
                    local after = before
                    if cost ~= 0 then
                        -- what would come back beyond the burst before the start is lost
                        local least = start + (cost < bursts[i] and cost or bursts[i]) / rate
                        after = before + cost / rate
                        if after < least then
                            after = least
                        end
                        ahead[i], ends[names[i]], end_rates[names[i]] = after, time + after * 1e6, rate
                    end
                    spending[2 * i], spending[2 * i + 1] = (time + after * 1e6) * 1e3, (after - before) * 1e9
                end
                if delay > 0 then
                    waits = true
                    if time + start * 1e6 > last_due then
                        last_due = time + start * 1e6
                    end
                end
            end
            known[#known + 1] = spending
        end
        if waits then
            call('ZREMRANGEBYSCORE', WAITING, '-inf', format('(%.17g', time))
            call('ZADD', WAITING, format('%.17g', last_due), call('HGET', P .. session .. ':session', 'process'))
        end
    else
        for at = first, #ARGV, 3 do
            local i = (at - first) / 3 % count + 1
            local name, rate, amount = names[i], rates[i], tonumber(ARGV[at + 2])
            if not ends[name] and amount and amount < 0 then
                ends[name], end_rates[name] = time, rate
            end
            if ends[name] then
                -- in seconds at the rate of the booking, from now on
                local change = end_rates[name] / rate
                local ahead, ends_in = (ends[name] - time) / 1e6 * change, (ARGV[at] - time) / 1e6
                local size, back = tonumber(ARGV[at + 1]), nil
                if not amount then
                    back = math.max(0, math.min(size, size - (ahead - ends_in)))
                elseif amount >= 0 then
                    back = math.max(0, math.min(amount / rate, ends_in))
                else
                    back, ahead = amount / rate, math.max(0, ahead)
                end
                if back ~= 0 then
                    ends[name] = time + (ahead - back) / change * 1e6
                end
            end
        end
        known = 'ok'
    end
end

local state, latest = {0, held_until, held, last_due}, last_due
for name, ends_at in pairs(ends) do
    if ends_at > time then
        local last = #state
        state[last + 1], state[last + 2], state[last + 3] = name, ends_at, end_rates[name]
        if ends_at > latest then
            latest = ends_at
        end
    end
end
local used_until = math.max(held_until, latest + held)
if used_until <= now then
    if stored then
        call('DEL', LIMITER, WAITING)
    end
else
    state[1] = used_until
    state = cmsgpack.pack(state)
    if ARGV[1] ~= '' then
        call('SET', LIMITER, state)
    else
        local left = math.ceil((used_until - now) / 1000)
        call('SET', LIMITER, state, 'PX', left)
        if waits then
            call('PEXPIREAT', WAITING, math.ceil(used_until / 1000))
        end
    end
end
for _, process in ipairs(hints) do
    call(PUBLISH, CHANNEL .. process, cjson.encode({key, '', 'held'}))
end
-- include answer_keep
return known
