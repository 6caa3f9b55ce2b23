-- Counters: spending at a rate (GCRA, ITU-T I.371), and barriers.
--
-- A field "r:" key -> the theoretical arrival time, in microseconds; a member "R:" that time, key, to find those that
-- are past. A row "b:" key -> the barrier {parties, on_departure, generation, broken, arrived}; a row "p:" key,
-- participant -> {process, ordinal, thing, outcome}; members "b:" key, ordinal, participant for those who wait.

local function exact(value)
    return string.format('%.17g', value)
end

local function set_arrival(key, before, arrival)
    if before then
        leave('R:' .. digits(before) .. key)
    end
    call('HSET', ROWS, 'r:' .. key, exact(arrival))
    enter('R:' .. digits(arrival) .. key)
end

local function arrival_at(key)
    return tonumber(call('HGET', ROWS, 'r:' .. key) or nil)
end

-- A key whose time has passed is as good as new: forget a few more than may have come.
local function forget_past_rates()
    for _, member in ipairs(under('R:', 2)) do
        if tonumber(string.sub(member, 3, 18)) < now then
            leave(member)
            delete('r:' .. string.sub(member, 19))
        end
    end
end

-- ARGV: session, n, key, rate, burst, then cost and longest wait ("": any) of each request
-- -> spent {booked, delay in seconds, booking}..., gone
local function spend()
    local n, key, rate, burst = tonumber(ARGV[5]), ARGV[6], tonumber(ARGV[7]), tonumber(ARGV[8])
    local session = session_of(ARGV[4])
    if not session then
        return 'gone'
    end
    local known = repeated(session, n, 'spend ' .. key)
    if known then
        return known
    end
    local before = arrival_at(key)
    local last = before
    local answer = {'spent'}
    for i = 9, #ARGV, 2 do
        local longest = tonumber(ARGV[i + 1])
        local arrival = math.max(now, last or now) + tonumber(ARGV[i]) / rate * 1e6
        local delay = (arrival - burst / rate * 1e6 - now) / 1e6
        if delay < 1e-6 then -- the time has no finer steps
            delay = 0
        end
        if longest and delay > longest then
            answer[#answer + 1] = {0, exact(delay), '0'}
        else
            last = arrival
            answer[#answer + 1] = {1, exact(delay), exact(arrival)}
        end
    end
    if last ~= before then
        set_arrival(key, before, last)
    end
    forget_past_rates()
    return remember(session, n, 'spend ' .. key, answer)
end

-- ARGV: session, n, key, cost, booking, rate -> ok, gone
local function refund()
    local n, key = tonumber(ARGV[5]), ARGV[6]
    local session = session_of(ARGV[4])
    if not session then
        return 'gone'
    end
    local known = repeated(session, n, 'spend ' .. key)
    if known then
        return known
    end
    local arrival = arrival_at(key)
    if arrival then
        local unspent = tonumber(ARGV[7]) / tonumber(ARGV[9]) * 1e6 - (arrival - tonumber(ARGV[8]))
        if unspent > 0 then
            set_arrival(key, arrival, math.max(0, arrival - unspent))
        end
    end
    return remember(session, n, 'spend ' .. key, 'ok')
end

-- barriers

local function participant_name(key, participant)
    return 'p:' .. both(key, participant)
end

local function arrival_place(key, party, participant)
    return 'b:' .. both(key, digits(party.ordinal)) .. participant
end

-- All who wait get an outcome; made by `outcome(place)`. Those who are not `but` are told.
local function conclude(key, barrier, outcome, but)
    local prefix = 'b:' .. both(key, '')
    for place, member in ipairs(under(prefix, barrier.arrived)) do
        local participant = string.sub(member, #prefix + 17)
        local name = participant_name(key, participant)
        local party = row(name)
        party.outcome = outcome(place - 1)
        leave(member)
        save(name, party)
        if participant ~= but then
            hint(party.process, key, participant, unpack(party.outcome))
        end
    end
    barrier.arrived = 0
end

local function shatter(key, barrier)
    barrier.broken = true
    conclude(key, barrier, function() return {'broken', barrier.generation} end)
end

local function depart(key, party, participant)
    local barrier = row('b:' .. key)
    leave(arrival_place(key, party, participant))
    barrier.arrived = barrier.arrived - 1
    if barrier.on_departure == 'break' then
        shatter(key, barrier)
    end
    save('b:' .. key, barrier)
end

-- The session of a participant has ended.
local function drop_arrival(_, name)
    local key, participant = parts(name)
    local party = row('p:' .. name)
    delete('p:' .. name)
    if not party.outcome then
        depart(key, party, participant)
    end
end

-- ARGV: session, key, participant, parties, on_departure -> waiting, tripped, broken, mismatch, gone
local function arrive()
    local key, participant, parties = ARGV[5], ARGV[6], tonumber(ARGV[7])
    local session = session_of(ARGV[4])
    if not session then
        return 'gone'
    end
    local barrier = row('b:' .. key) or {generation = 0, broken = false, arrived = 0}
    local name = participant_name(key, participant)
    local party = row(name)
    if party then
        return party.outcome or {'waiting', barrier.generation, ask_again_in()}
    elseif barrier.broken then
        return {'broken', barrier.generation}
    elseif barrier.arrived == 0 then
        barrier.parties, barrier.on_departure = parties, ARGV[8]
    elseif barrier.parties ~= parties then
        return {'mismatch', barrier.parties}
    end
    party = {
        process = session.process, ordinal = number('id'), outcome = false,
        thing = give(session.id, ARRIVAL, both(key, participant)),
    }
    save(name, party)
    enter(arrival_place(key, party, participant))
    barrier.arrived = barrier.arrived + 1
    local answer = {'waiting', barrier.generation, ask_again_in()}
    if barrier.arrived == parties then
        conclude(key, barrier, function(place) return {'tripped', barrier.generation, place} end, participant)
        answer = {'tripped', barrier.generation, parties - 1}
        barrier.generation = barrier.generation + 1
    end
    save('b:' .. key, barrier)
    return answer
end

-- ARGV: key, participant -> withdrawn, tripped, broken, unknown
local function withdraw()
    local key, participant = ARGV[4], ARGV[5]
    local party = row(participant_name(key, participant))
    if not party then
        return 'unknown'
    end
    leave(party.thing)
    delete(participant_name(key, participant))
    if party.outcome then
        return party.outcome
    end
    depart(key, party, participant)
    return 'withdrawn'
end

-- ARGV: key -> ok
local function reset_barrier()
    local barrier = row('b:' .. ARGV[4])
    if barrier then
        shatter(ARGV[4], barrier)
        barrier.broken, barrier.generation = false, barrier.generation + 1
        save('b:' .. ARGV[4], barrier)
    end
    return 'ok'
end

-- ARGV: key -> gathering
local function arrivals()
    local barrier = row('b:' .. ARGV[4]) or {parties = 0, generation = 0, arrived = 0}
    return {'gathering', barrier.parties, barrier.generation, barrier.arrived, barrier.broken and 1 or 0}
end

local operations = {
    spend = spend, refund = refund, arrive = arrive, withdraw = withdraw, reset_barrier = reset_barrier,
    arrivals = arrivals,
}
