-- The operations on barriers: barriers.lua has the keys. ARGV[3] is the operation.
-- Reads: ARRIVAL, arrival_item, ask_again_in, attach, break_barrier, conclude_generation, id, new_token, now,
--     read_barrier, read_participant, remove_participant, save_barrier
-- Writes: operations

-- ARGV: key, session, participant, parties, on_departure -> waiting, tripped, broken, mismatch, gone
function operations.arrive(key)
    local session, participant, parties = ARGV[5], ARGV[6], tonumber(ARGV[7])
    local ttl = call('HGET', P .. session .. ':session', 'ttl')
    if not ttl then
        return 'gone'
    end
    local text, barrier = call('HGET', P .. key .. ':participants', participant), read_barrier(key)
    if text then
        local _, outcome = read_participant(text)
        return outcome or {'waiting', barrier.generation, ask_again_in(), barrier.born}
    elseif barrier.broken then
        return {'broken', barrier.generation}
    elseif barrier.arrived == 0 then
        barrier.parties, barrier.on_departure = parties, ARGV[8]
    elseif barrier.parties ~= parties then
        return {'mismatch', barrier.parties}
    end
    attach(session, ARRIVAL, arrival_item(key, participant))
    call('ZADD', P .. key .. ':arrived', id, participant)
    call('HSET', P .. key .. ':participants', participant, cjson.encode({session}))
    barrier.arrived, barrier.keep = barrier.arrived + 1, math.max(barrier.keep, now + 2 * ttl)
    barrier.born = barrier.born or new_token()
    local answer = {'waiting', barrier.generation, ask_again_in(), barrier.born}
    if barrier.arrived == parties then
        conclude_generation(key, barrier, participant, 'tripped', barrier.generation)
        answer = {'tripped', barrier.generation, parties - 1}
        barrier.generation = barrier.generation + 1
    end
    save_barrier(key, barrier)
    return answer
end

-- ARGV: key, participant -> withdrawn, tripped, broken, unknown
function operations.withdraw(key)
    return remove_participant(key, ARGV[5])
end

-- ARGV: key, parties -> ok
function operations.reset_barrier(key)
    local barrier, parties = read_barrier(key), tonumber(ARGV[5])
    if parties > 0 and not barrier.parties then
        barrier.parties, barrier.on_departure, barrier.born = parties, 'break', new_token()
    end
    if barrier.parties then
        break_barrier(key, barrier)
        if parties == 0 then
            barrier.broken, barrier.generation = false, barrier.generation + 1
        end
        save_barrier(key, barrier)
    end
    return 'ok'
end
