-- The operations on pools of resources: claims.lua has the keys. ARGV[3] is the operation.
-- Reads: CLAIM, add_to_free, ask_again_in, attach, best_free, claim_item, forget_resource, free_place, hand_over,
--     is_unfinished, join_pool_line, next_rested, now, process_of, read_claimer, read_resource, remove_claim,
--     update_resource
-- Writes: operations

-- ARGV: pool, resource, preference, revive (0 or 1), slots, then names and values of the metadata -> ok
function operations.add_resource(pool)
    local item = read_resource(pool, ARGV[5])
    if not item then
        item = {name = ARGV[5], used = 0, slots = 0, claimed = 0}
        call('ZADD', P .. pool .. ':resources', 0, item.name)
        call('ZADD', P .. 'pools', 0, pool)
    end
    update_resource(pool, item, {
        metadata = {unpack(ARGV, 9)}, preference = tonumber(ARGV[6]), slots = tonumber(ARGV[8]), removed = false,
        retired = ARGV[7] == '0' and item.retired or false,
    })
    return 'ok'
end

-- ARGV: pool, resource -> ok, unknown
function operations.remove_resource(pool)
    local item = read_resource(pool, ARGV[5])
    if not item then
        return 'unknown'
    elseif item.claimed > 0 then
        update_resource(pool, item, {removed = 1})
    else
        call('ZREM', P .. pool .. ':free', free_place(item))
        forget_resource(pool, item)
    end
    return 'ok'
end

-- ARGV: pool, session, holder, quarantine, wait, group, then names and values to match -> claimed, queued, refused, gone
function operations.claim(pool)
    local session, holder = ARGV[5], ARGV[6]
    if not process_of(session) then
        return 'gone'
    end
    local claimer = read_claimer(pool, holder)
    if not claimer then
        local wait = ARGV[8] == '1'
        claimer = {
            holder = holder, session = session, quarantine = ARGV[7], where = {unpack(ARGV, 10)}, group = ARGV[9],
            looks = not wait,
        }
        local item = best_free(pool, claimer, 0)
        if not (item or wait or is_unfinished) then
            return 'refused'
        end
        attach(session, CLAIM, claim_item(pool, holder))
        if item then
            local answer = hand_over(pool, item, claimer)
            add_to_free(pool, item)
            return answer
        end
        join_pool_line(pool, claimer)
    elseif claimer.resource then
        return {'claimed', claimer.resource, read_resource(pool, claimer.resource).metadata, claimer.token}
    elseif claimer.looks then
        remove_claim(pool, holder)
        return 'refused'
    end
    return {'queued', call('ZCARD', P .. pool .. ':claiming'), ask_again_in(next_rested(pool))}
end

-- ARGV: pool, holder -> released, left, unknown
function operations.give_back(pool)
    return remove_claim(pool, ARGV[5], false)
end

-- ARGV: pool, holder, token, cool-down ("": none), "=" and why it retires ("": it does not), "=" and then the metadata
-- ("": as it is) -> ok, refused
function operations.edit_claim(pool)
    local claimer = read_claimer(pool, ARGV[5])
    if not claimer or claimer.token ~= tonumber(ARGV[6]) then
        return 'refused'
    end
    local item, fields = read_resource(pool, claimer.resource), {}
    if ARGV[7] ~= '' then
        fields.rest_until = now + tonumber(ARGV[7])
    end
    if ARGV[8] ~= '' then
        fields.retired = sub(ARGV[8], 2)
    end
    if ARGV[9] ~= '' then
        fields.metadata = {unpack(ARGV, 10)}
    end
    update_resource(pool, item, fields)
    return 'ok'
end
