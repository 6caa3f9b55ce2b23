-- Spending at rates, with several limits (GCRA, ITU-T I.371): `Limiter` in tenure/engine/_rates.py says what and why.
--
-- `limiter` is {until, held_until, held, last_due, {name -> {end, rate}}}, all times in microseconds; the last three on the
-- limiter's clock, which stands still while it is held off. The key expires at `until`, when the limiter is as good as new.
-- `spenders` is a sorted set of the processes that wait, by when the last of each is due.
--
-- A limit is three arguments: its name, rate, burst.
-- ARGV: "spend", key, session, n, number of limits, the limits, then for each request longest wait ("": any) and costs
-- -> spent {booked, delay and held in seconds, end and size in seconds of each limit}..., gone
-- ARGV: "refund", key, session, n, number of limits, the limits, then for each request and limit end, size and amount ("": none)
-- -> ok, gone
-- ARGV: "hold_off", key, session, n, microseconds -> ok, gone
-- ARGV: "look", key, the limits -> looked: held off and held in seconds, what is booked of each

local operation, key = ARGV[3], ARGV[4]
local LIMITER, WAITING = P .. key .. ':limiter', P .. key .. ':spenders'
local held_until, held, last_due, booked = 0, 0, 0, {}
local stored = call('GET', LIMITER)
if stored then
    local used_until, a, b, c, d = cmsgpack.unpack(stored)
    if used_until > now then
        held_until, held, last_due, booked = a, b, c, d
    end
end
local time = math.max(now, held_until) - held

-- For how many seconds a limit is booked from now on, at its rate of today.
local function ahead_of(name, rate)
    local one = booked[name]
    if not one or one[1] <= time then
        return 0
    end
    return math.min((one[1] - time) / 1e6 * (one[2] / rate), 1e9)
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
        local spendings, hold, held_text = {}, math.max(0, held_until - now) / 1e6, format('%.17g', held / 1e6)
        known = {'spent', spendings}
        for at = first, #ARGV, 1 + count do
            local longest, start, ahead = tonumber(ARGV[at]), 0, {}
            for i = 1, count do
                local cost = tonumber(ARGV[at + i])
                ahead[i] = ahead_of(names[i], rates[i])
                if cost ~= 0 then
                    start = math.max(start, ahead[i] + (cost - bursts[i]) / rates[i])
                end
            end
            if start < 1e-6 then -- the time has no finer steps
                start = 0
            end
            local delay = hold + start
            local spending = {0, format('%.17g', delay), held_text}
            local is_booked = not longest or delay <= longest / 1e6 + 1e-6
            if is_booked then
                spending[1] = 1
                for i = 1, count do
                    local cost, after = tonumber(ARGV[at + i]), ahead[i]
                    if cost ~= 0 then
                        -- what would come back beyond the burst before the start is lost
                        after = math.max(after + cost / rates[i], start + math.min(cost, bursts[i]) / rates[i])
                        booked[names[i]] = {time + after * 1e6, rates[i]}
                    end
                    spending[2 + 2 * i] = format('%.17g', time + after * 1e6)
                    spending[3 + 2 * i] = format('%.17g', after - ahead[i])
                end
                if delay > 0 then
                    last_due, waits = math.max(last_due, time + start * 1e6), true
                end
            end
            spendings[#spendings + 1] = spending
        end
        if waits then
            call('ZREMRANGEBYSCORE', WAITING, '-inf', format('(%.17g', time))
            call('ZADD', WAITING, format('%.17g', last_due), call('HGET', P .. session .. ':session', 'process'))
        end
    else
        for at = first, #ARGV, 3 do
            local i = (at - first) / 3 % count + 1
            local one, amount = booked[names[i]], tonumber(ARGV[at + 2])
            if not one and amount and amount < 0 then
                one = {time, rates[i]}
            end
            if one then
                -- in seconds at the rate of the booking, from now on
                local change = one[2] / rates[i]
                local ahead, ends = (one[1] - time) / 1e6 * change, (ARGV[at] - time) / 1e6
                local size, back = tonumber(ARGV[at + 1]), nil
                if not amount then
                    back = math.max(0, math.min(size, size - (ahead - ends)))
                elseif amount >= 0 then
                    back = math.max(0, math.min(amount / rates[i], ends))
                else
                    back, ahead = amount / rates[i], math.max(0, ahead)
                end
                if back ~= 0 then
                    booked[names[i]] = {time + (ahead - back) / change * 1e6, one[2]}
                end
            end
        end
        known = 'ok'
    end
end

local latest = last_due
for name, one in pairs(booked) do
    if one[1] <= time then
        booked[name] = nil
    elseif one[1] > latest then
        latest = one[1]
    end
end
local used_until = math.max(held_until, latest + held)
if used_until <= now then
    if stored then
        call('DEL', LIMITER, WAITING)
    end
else
    local state = cmsgpack.pack(used_until, held_until, held, last_due, booked)
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
