-- Spending at a rate (GCRA, ITU-T I.371).
--
-- `rate` is the theoretical arrival time, in microseconds; the key expires then, since a limiter that is full is as good
-- as new.
--
-- ARGV: "spend", key, session, n, rate, burst, then cost and longest wait ("": any) of each request
-- -> spent {booked, delay in seconds, booking}..., gone
-- ARGV: "refund", key, session, n, cost, booking, rate -> ok, gone

local key, session, n = ARGV[4], ARGV[5], ARGV[6]
local object = key .. ':spend'
-- include answer_known
if not known then
    local before = tonumber(call('GET', P .. key .. ':rate') or nil)
    local last = before
    if ARGV[3] == 'spend' then
        local rate, burst = tonumber(ARGV[7]), tonumber(ARGV[8])
        local spendings = {}
        known = {'spent', spendings}
        for i = 9, #ARGV, 2 do
            local longest, cost = tonumber(ARGV[i + 1]), tonumber(ARGV[i])
            local from = math.max(now, last or now)
            -- the small terms first: a sum with the time keeps no fractions
            local arrival = from + math.min(cost / rate, 1e9) * 1e6
            local delay = (from - now) / 1e6 + math.min(cost / rate, 1e9) - math.min(burst / rate, 1e9)
            if delay < 1e-6 then -- the time has no finer steps
                delay = 0
            end
            local booked = not longest or delay <= longest
            last = booked and arrival or last
            spendings[#spendings + 1] = {booked and 1 or 0, format('%.17g', delay), booked and format('%.17g', arrival) or '0'}
        end
    else
        local unspent = last and math.min(ARGV[7] / ARGV[9], 1e9) * 1e6 - (last - ARGV[8])
        if unspent and unspent > 0 then
            last = last - unspent
        end
        known = 'ok'
    end
    if last ~= before and ARGV[1] ~= '' then
        call('SET', P .. key .. ':rate', format('%.17g', last))
    elseif last ~= before and last > now then
        call('SET', P .. key .. ':rate', format('%.17g', last), 'PX', math.ceil((last - now) / 1000))
    elseif last ~= before then
        call('DEL', P .. key .. ':rate')
    end
end
-- include answer_keep
return known
