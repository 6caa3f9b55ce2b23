-- The operations on pools of resources: claims.lua has the keys. ARGV[3] is the operation.
local changes = require('changes')
local claims = require('claims')
local numbers = require('numbers')
local session_items = require('session_items')
local steps = require('steps')
local waits = require('waits')

if numbers.is_due then
    return 'more'
end

local operations = {}

-- ARGV: pool, resource, preference, revive (0 or 1), slots, then names and values of the metadata -> ok
function operations.add_resource(pool)
    local item = claims.read_resource(pool, ARGV[5])
    if not item then
        item = {name = ARGV[5], used = 0, slots = 0, claimed = 0}
        call('ZADD', P .. pool .. ':resources', 0, item.name)
        call('ZADD', P .. 'pools', 0, pool)
    end
    claims.update_resource(pool, item, {
        metadata = {unpack(ARGV, 9)}, preference = tonumber(ARGV[6]), slots = tonumber(ARGV[8]), removed = false,
        retired = ARGV[7] == '0' and item.retired or false,
    })
    return 'ok'
end

-- ARGV: pool, resource -> ok, unknown
function operations.remove_resource(pool)
    local item = claims.read_resource(pool, ARGV[5])
    if not item then
        return 'unknown'
    elseif item.claimed > 0 then
        claims.update_resource(pool, item, {removed = 1})
    else
        call('ZREM', P .. pool .. ':free', claims.free_place(item))
        claims.forget_resource(pool, item)
    end
    return 'ok'
end

-- ARGV: pool, session, holder, quarantine, wait, group, then names and values to match -> claimed, queued, refused, gone
function operations.claim(pool)
    local session, holder = ARGV[5], ARGV[6]
    if not session_items.process_of(session) then
        return 'gone'
    end
    local claimer = claims.read_claimer(pool, holder)
    if not claimer then
        local wait = ARGV[8] == '1'
        claimer = {
            holder = holder, session = session, quarantine = ARGV[7], where = {unpack(ARGV, 10)}, group = ARGV[9],
            looks = not wait,
        }
        local item = claims.best_free(pool, claimer, 0)
        if not (item or wait or steps.is_unfinished) then
            return 'refused'
        end
        session_items.attach(session, session_items.CLAIM, claims.claim_item(pool, holder))
        if item then
            local answer = claims.hand_over(pool, item, claimer)
            claims.add_to_free(pool, item)
            return answer
        end
        claims.join_pool_line(pool, claimer)
    elseif claimer.resource then
        return {'claimed', claimer.resource, claims.read_resource(pool, claimer.resource).metadata, claimer.token}
    elseif claimer.looks then
        claims.remove_claim(pool, holder)
        return 'refused'
    end
    return {'queued', call('ZCARD', P .. pool .. ':claiming'), waits.ask_again_in(claims.next_rested(pool))}
end

-- ARGV: pool, holder -> released, left, unknown
function operations.give_back(pool)
    return claims.remove_claim(pool, ARGV[5], false)
end

-- ARGV: pool, holder, token, cool-down ("": none), "=" and why it retires ("": it does not), "=" and then the metadata
-- ("": as it is) -> ok, refused
function operations.edit_claim(pool)
    local claimer = claims.read_claimer(pool, ARGV[5])
    if not claimer or claimer.token ~= tonumber(ARGV[6]) then
        return 'refused'
    end
    local item, fields = claims.read_resource(pool, claimer.resource), {}
    if ARGV[7] ~= '' then
        fields.rest_until = numbers.now + tonumber(ARGV[7])
    end
    if ARGV[8] ~= '' then
        fields.retired = sub(ARGV[8], 2)
    end
    if ARGV[9] ~= '' then
        fields.metadata = {unpack(ARGV, 10)}
    end
    claims.update_resource(pool, item, fields)
    return 'ok'
end

local answer = operations[ARGV[3]](ARGV[4])
changes.save_numbers()
return steps.is_unfinished and 'more' or answer
