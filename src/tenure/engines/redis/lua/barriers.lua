-- Barriers: all go on together, or nobody does. ARGV[3] is the operation.
--
-- `barrier` is a hash {parties, on_departure, generation, broken, keep}, `arrived` a sorted set of participants in the order in
-- which they came, `parties` a hash of participant -> the length of the name of its session, that name, and the outcome
-- ("": it waits). A barrier at which nobody waits or has an outcome is forgotten at the time `keep`, unless it is broken.

local operations = {}

local function party_thing(key, participant)
    return 'arrival ' .. key .. '\255' .. participant
end

local function read_party(text)
    local size, from = match(text, '^(%d+) ()')
    size = tonumber(size)
    return sub(text, from, from + size - 1), sub(text, from + size + 1)
end

local function read_barrier(key)
    local found = call('HMGET', P .. key .. ':barrier', 'parties', 'on_departure', 'generation', 'broken', 'keep')
    local arrived = call('ZCARD', P .. key .. ':arrived')
    local keep_until = tonumber(found[5] or 0)
    local idle = arrived == 0 and not found[4] and call('EXISTS', P .. key .. ':parties') == 0
    if not found[1] or idle and keep_until <= now then
        return {generation = 0, arrived = 0, keep = 0}
    end
    return {
        parties = tonumber(found[1]), on_departure = found[2], generation = tonumber(found[3]), broken = found[4],
        arrived = arrived, keep = keep_until,
    }
end

local function save_barrier(key, barrier)
    local BARRIER = P .. key .. ':barrier'
    call('HSET', BARRIER, 'parties', barrier.parties, 'on_departure', barrier.on_departure,
        'generation', barrier.generation, 'keep', barrier.keep)
    if barrier.broken then
        call('HSET', BARRIER, 'broken', 1)
    else
        call('HDEL', BARRIER, 'broken')
    end
    if barrier.arrived > 0 or barrier.broken or call('EXISTS', P .. key .. ':parties') == 1 then
        call('PERSIST', BARRIER)
    elseif ARGV[1] == '' then
        call('PEXPIREAT', BARRIER, math.ceil(barrier.keep / 1000))
    end
end

-- All who wait get the outcome. Those who are not `but` are hinted.
local function conclude(key, barrier, but, outcome, generation)
    for place, participant in ipairs(call('ZRANGE', P .. key .. ':arrived', 0, -1)) do
        local session = read_party(call('HGET', P .. key .. ':parties', participant))
        local text = format(outcome == 'tripped' and 'tripped %d %d' or 'broken %d', generation, place - 1)
        call('HSET', P .. key .. ':parties', participant, #session .. ' ' .. session .. ' ' .. text)
        if participant ~= but then
            hint(process_of(session), key, participant, outcome, generation, outcome == 'tripped' and place - 1 or nil)
        end
    end
    call('DEL', P .. key .. ':arrived')
    barrier.arrived = 0
end

local function shatter(key, barrier)
    barrier.broken = true
    conclude(key, barrier, nil, 'broken', barrier.generation)
end

-- -> withdrawn, or the outcome; unknown
local function remove_party(key, participant)
    local text = call('HGET', P .. key .. ':parties', participant)
    if not text then
        return 'unknown'
    end
    local session, outcome = read_party(text)
    take_from(session, party_thing(key, participant))
    call('HDEL', P .. key .. ':parties', participant)
    local barrier = read_barrier(key)
    if outcome == '' then
        call('ZREM', P .. key .. ':arrived', participant)
        barrier.arrived = barrier.arrived - 1
        if barrier.on_departure == 'break' then
            shatter(key, barrier)
        end
    end
    if barrier.parties then
        save_barrier(key, barrier)
    else
        call('DEL', P .. key .. ':barrier')
    end
    return outcome == '' and 'withdrawn' or outcome
end

local function words(outcome)
    local word, generation, place = match(outcome, '^(%a+) ?(%d*) ?(%d*)$')
    return generation == '' and word or {word, tonumber(generation), tonumber(place)}
end

-- ARGV: key, session, participant, parties, on_departure -> waiting, tripped, broken, mismatch, gone
function operations.arrive(key)
    local session, participant, parties = ARGV[5], ARGV[6], tonumber(ARGV[7])
    local ttl = call('HGET', P .. session .. ':session', 'ttl')
    if not ttl then
        return 'gone'
    end
    local text, barrier = call('HGET', P .. key .. ':parties', participant), read_barrier(key)
    if text then
        local _, outcome = read_party(text)
        return outcome ~= '' and words(outcome) or {'waiting', barrier.generation, ask_again_in()}
    elseif barrier.broken then
        return {'broken', barrier.generation}
    elseif barrier.arrived == 0 then
        barrier.parties, barrier.on_departure = parties, ARGV[8]
    elseif barrier.parties ~= parties then
        return {'mismatch', barrier.parties}
    end
    give(session, ARRIVAL, party_thing(key, participant))
    call('ZADD', P .. key .. ':arrived', id, participant)
    call('HSET', P .. key .. ':parties', participant, #session .. ' ' .. session .. ' ')
    barrier.arrived, barrier.keep = barrier.arrived + 1, math.max(barrier.keep, now + 2 * ttl)
    local answer = {'waiting', barrier.generation, ask_again_in()}
    if barrier.arrived == parties then
        conclude(key, barrier, participant, 'tripped', barrier.generation)
        answer = {'tripped', barrier.generation, parties - 1}
        barrier.generation = barrier.generation + 1
    end
    save_barrier(key, barrier)
    return answer
end

-- ARGV: key, participant -> withdrawn, tripped, broken, unknown
function operations.withdraw(key)
    return words(remove_party(key, ARGV[5]))
end

-- ARGV: key -> ok
function operations.reset(key)
    local barrier = read_barrier(key)
    if barrier.parties then
        shatter(key, barrier)
        barrier.broken, barrier.generation = false, barrier.generation + 1
        save_barrier(key, barrier)
    end
    return 'ok'
end

-- ARGV: key -> gathering
function operations.arrivals(key)
    local barrier = read_barrier(key)
    return {'gathering', barrier.parties or 0, barrier.generation, barrier.arrived, barrier.broken and 1 or 0}
end
