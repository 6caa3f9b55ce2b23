-- Barriers: all participants go on together, or none does.
--
-- `barrier` is a hash {parties, on_departure, generation, broken, keep, born}, `arrived` a sorted set of participants in
-- the order in which they came, `participants` a hash of participant -> its session, and the outcome once there is one, as
-- JSON. A barrier without a party that waits or has an outcome is forgotten at the time `keep`, unless it is broken.
-- Reads: detach, hint, now, process_of

local function arrival_item(key, participant)
    return 'arrival ' .. key .. '\255' .. participant
end

-- -> the session, and the outcome: {"tripped", generation, place}, {"broken", generation}; nil while it waits
local function read_participant(text)
    return unpack(cjson.decode(text))
end

local function read_barrier(key)
    local found = call('HMGET', P .. key .. ':barrier', 'parties', 'on_departure', 'generation', 'broken', 'keep', 'born')
    local broken = found[4] == '1'
    local arrived = call('ZCARD', P .. key .. ':arrived')
    local keep_until = tonumber(found[5] or 0)
    local idle = arrived == 0 and not broken and call('EXISTS', P .. key .. ':participants') == 0
    if not found[1] or idle and keep_until <= now then
        return {generation = 0, arrived = 0, keep = 0}
    end
    return {
        parties = tonumber(found[1]), on_departure = found[2], generation = tonumber(found[3]), broken = broken,
        arrived = arrived, keep = keep_until, born = found[6] or '0',
    }
end

local function save_barrier(key, barrier)
    local BARRIER = P .. key .. ':barrier'
    call('HSET', BARRIER, 'parties', barrier.parties, 'on_departure', barrier.on_departure,
        'generation', barrier.generation, 'keep', barrier.keep, 'born', barrier.born, 'broken', barrier.broken and 1 or 0)
    if barrier.arrived > 0 or barrier.broken or call('EXISTS', P .. key .. ':participants') == 1 then
        call('PERSIST', BARRIER)
    elseif ARGV[1] == '' then
        call('PEXPIREAT', BARRIER, math.ceil(barrier.keep / 1000))
    end
end

-- Give everyone that waits the outcome, and hint them all except `but`.
local function conclude_generation(key, barrier, but, outcome, generation)
    for place, participant in ipairs(call('ZRANGE', P .. key .. ':arrived', 0, -1)) do
        local session = read_participant(call('HGET', P .. key .. ':participants', participant))
        local its_place = outcome == 'tripped' and place - 1 or nil
        call('HSET', P .. key .. ':participants', participant, cjson.encode({session, {outcome, generation, its_place}}))
        if participant ~= but then
            hint(process_of(session), key, participant, outcome, generation, its_place)
        end
    end
    call('DEL', P .. key .. ':arrived')
    barrier.arrived = 0
end

local function break_barrier(key, barrier)
    barrier.broken = true
    conclude_generation(key, barrier, nil, 'broken', barrier.generation)
end

-- -> withdrawn, or the outcome; unknown
local function remove_participant(key, participant)
    local text = call('HGET', P .. key .. ':participants', participant)
    if not text then
        return 'unknown'
    end
    local session, outcome = read_participant(text)
    detach(session, arrival_item(key, participant))
    call('HDEL', P .. key .. ':participants', participant)
    local barrier = read_barrier(key)
    if not outcome then
        call('ZREM', P .. key .. ':arrived', participant)
        barrier.arrived = barrier.arrived - 1
        if barrier.on_departure == 'break' then
            break_barrier(key, barrier)
        end
    end
    if barrier.parties then
        save_barrier(key, barrier)
    else
        call('DEL', P .. key .. ':barrier')
    end
    return outcome or 'withdrawn'
end
