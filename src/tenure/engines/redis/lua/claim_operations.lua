-- The operations on pools of resources: claims.lua has the keys. ARGV[3] is the operation.
-- Reads: CLAIM, add_to_free, ask_again_in, attach, claim_item, forget_resource, free_place, hand_over, hint_head,
--     join_pool_line, leave_pool_line, matches, next_rested, now, process_of, read_claim, read_claimer,
--     read_resource, remove_claim, serve_claimer, set_metadata, update_resource
-- Writes: operations

-- ARGV: pool, resource, preference, revive (0 or 1), slots, then names and values of the metadata -> ok
function operations.add_resource(pool)
    local item = read_resource(pool, ARGV[5])
    if not item then
        item = {name = ARGV[5], used = 0, slots = 0, claimed = 0}
        call('ZADD', P .. pool .. ':resources', 0, item.name)
        call('ZADD', P .. 'pools', 0, pool)
    end
    set_metadata(pool, item, 9)
    update_resource(pool, item, {
        preference = tonumber(ARGV[6]), used = item.used, removed = false, slots = tonumber(ARGV[8]), claimed = item.claimed,
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

-- The best free resource that matches, among the 256 behind `last`; or the last of these, if there are more.
local function best_free(pool, where, last)
    local FREE, from, seen = P .. pool .. ':free', 0, 0
    if last then
        -- it may be free no longer: what stands for it shows where it was
        local score, mark = match(last, '^(%S+) (.*)$')
        mark = mark .. '\0'
        local is_new = call('ZADD', FREE, 'NX', score, mark) == 1
        from = call('ZRANK', FREE, mark)
        if is_new then
            call('ZREM', FREE, mark)
        end
    end
    repeat
        local some = call('ZRANGE', FREE, from, from + 63)
        for _, place in ipairs(some) do
            local item = read_resource(pool, sub(place, 17))
            if matches(item.metadata, where) then
                return item
            end
        end
        from, seen = from + 64, seen + 64
        if seen == 256 and #some == 64 then
            return nil, call('ZSCORE', FREE, some[64]) .. ' ' .. some[64]
        end
    until #some < 64
end

-- The first claimer, before `place` if that is not nil, that is still being compared and that the resource suits.
local function first_comparing(pool, item, place)
    local comparing, first = call('HGETALL', P .. pool .. ':comparing')
    for i = 1, #comparing, 2 do
        local claimer = read_claimer(pool, comparing[i])
        if (not place or claimer.place < place) and matches(item.metadata, claimer.where) then
            first, place = claimer, claimer.place
        end
    end
    return first
end

local function lend(pool, item, claimer)
    local answer = hand_over(pool, item, claimer)
    add_to_free(pool, item)
    return answer
end

-- A claimer that is still being compared, see `best_free`, is in the line: it is offered what becomes free meanwhile.
--
-- ARGV: pool, session, holder, quarantine, wait, group, then names and values to match -> claimed, queued, refused, gone,
-- more
function operations.claim(pool)
    local session, holder = ARGV[5], ARGV[6]
    if not process_of(session) then
        return 'gone'
    end
    local claim = read_claim(pool, holder)
    if claim then
        return {'claimed', claim.resource, read_resource(pool, claim.resource).metadata, claim.token}
    end
    local waiting = read_claimer(pool, holder)
    local last = waiting and call('HGET', P .. pool .. ':comparing', holder)
    if not waiting or last then
        local claimer = waiting
            or {holder = holder, session = session, quarantine = tonumber(ARGV[7]), where = {unpack(ARGV, 10)}, group = ARGV[9]}
        local item, seen = best_free(pool, claimer.where, last)
        local other = item and first_comparing(pool, item, claimer.place)
        if item then
            call('ZREM', P .. pool .. ':free', free_place(item))
        end
        if other then
            local was_head = serve_claimer(pool, item, other)
            add_to_free(pool, item)
            if was_head then
                hint_head(pool)
            end
            return 'more'
        elseif not item and not seen and ARGV[8] == '0' then
            if waiting then
                remove_claim(pool, holder)
            end
            return 'refused'
        elseif item and waiting then
            if leave_pool_line(pool, claimer) then
                hint_head(pool)
            end
            return lend(pool, item, claimer)
        elseif not waiting then
            attach(session, CLAIM, claim_item(pool, holder))
            if item then
                return lend(pool, item, claimer)
            end
            join_pool_line(pool, claimer)
        end
        if seen then
            call('HSET', P .. pool .. ':comparing', holder, seen)
            return 'more'
        end
        call('HDEL', P .. pool .. ':comparing', holder)
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
    local claim = read_claim(pool, ARGV[5])
    if not claim or claim.token ~= tonumber(ARGV[6]) then
        return 'refused'
    end
    local item, fields = read_resource(pool, claim.resource), {}
    if ARGV[7] ~= '' then
        fields.rest_until = now + tonumber(ARGV[7])
    end
    if ARGV[8] ~= '' then
        fields.retired = sub(ARGV[8], 2)
    end
    if ARGV[9] ~= '' then
        set_metadata(pool, item, 10)
    end
    update_resource(pool, item, fields)
    return 'ok'
end
