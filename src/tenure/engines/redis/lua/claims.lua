-- Claims: a pool of named resources, matched by metadata, least recently used first, with a line of claimers.
--
-- A resource is a string `<name>:resource`, its name with % and : escaped: msgpack of {name, preference, used; slots, and how
-- many of them are claimed; token and session of the last claim, until it ends; rests; rest_until; retired, with the reason;
-- removed; metadata, a list of names and values}. Of the pool, `resources` is a sorted set of all names, `free` of the free
-- ones by preference and last use, `resting` of those that rest by the time when they may be claimed; `claiming` a
-- sorted set of waiting claimers in the order of the line, all with the score 0: the number and the order of coming
-- (`line` is the last), each as 16 digits, and the holder; `<group>:group`, its name escaped too, one of the holders of a
-- group by number; `claimers` a hash of holder -> quarantine, session, and the resource and the token that it has, or what
-- the metadata must have, number and order of coming, the group, and whether it only looks for a resource and will not wait,
-- as JSON. `pools`, `cooling` are sorted sets of the shard: all pools, all that rest; `unoffered` is a set of {pool, claimer,
-- number of free resources, or resource, place in the line} behind which comparing has to go on.
local changes = require('changes')
local numbers = require('numbers')
local session_items = require('session_items')
local shard = require('shard')
local steps = require('steps')

local claims = {}

local function escaped(name)
    return (string.gsub(name, '[%%:]', {['%'] = '%25', [':'] = '%3A'}))
end

local function resource_key(pool, resource)
    return P .. pool .. ':' .. escaped(resource) .. ':resource'
end

local function group_key(pool, group)
    return P .. pool .. ':' .. escaped(group) .. ':group'
end

function claims.claim_item(pool, holder)
    return 'claim ' .. pool .. '\255' .. holder
end

local function cooling_place(pool, resource)
    return pool .. '\255' .. resource
end

function claims.free_place(item)
    return format('%016d', item.used) .. item.name
end

function claims.read_resource(pool, resource)
    local packed = call('GET', resource_key(pool, resource))
    return packed and cmsgpack.unpack(packed)
end

function claims.is_full(item)
    return item.removed or item.claimed >= item.slots
end

local function is_free(item)
    return not (claims.is_full(item) or item.rests or item.retired)
end

-- Sets fields of a resource; those with the value false are removed.
local function change_resource(pool, item, fields)
    for field, value in pairs(fields) do
        item[field] = value or nil
    end
    call('SET', resource_key(pool, item.name), cmsgpack.pack(item))
end

local function matches(metadata, where)
    for i = 1, #where, 2 do
        local found = false
        for j = 1, #metadata, 2 do
            found = found or (metadata[j] == where[i] and metadata[j + 1] == where[i + 1])
        end
        if not found then
            return false
        end
    end
    return true
end

local function let_rest(pool, item)
    change_resource(pool, item, {rests = 1})
    call('ZADD', P .. pool .. ':resting', item.rest_until, item.name)
    call('ZADD', P .. 'cooling', item.rest_until, cooling_place(pool, item.name))
    changes.due_at(item.rest_until)
end

local function stop_resting(pool, item)
    change_resource(pool, item, {rests = false})
    call('ZREM', P .. pool .. ':resting', item.name)
    call('ZREM', P .. 'cooling', cooling_place(pool, item.name))
end

-- When the next resource of the pool has rested enough, if one rests.
function claims.next_rested(pool)
    return tonumber(call('ZRANGE', P .. pool .. ':resting', 0, 0, 'WITHSCORES')[2])
end

function claims.read_claimer(pool, holder)
    local text = call('HGET', P .. pool .. ':claimers', holder)
    if text then
        local claimer = {holder = holder}
        claimer.quarantine, claimer.session, claimer.where, claimer.place, claimer.group, claimer.looks =
            unpack(cjson.decode(text))
        if type(claimer.where) == 'string' then
            claimer.resource, claimer.token = claimer.where, tonumber(claimer.place)
        end
        return claimer
    end
end

-- The claimer at the head of the line, and its number.
local function head_of_line(pool)
    local head = call('ZRANGE', P .. pool .. ':claiming', 0, 0)[1]
    return head and sub(head, 33), head and sub(head, 1, 16)
end

-- A claimer joins the line: behind the others of its group, and no sooner than the head.
function claims.join_pool_line(pool, claimer)
    local group, _, first = group_key(pool, claimer.group), head_of_line(pool)
    local last = call('ZRANGE', group, -1, -1, 'WITHSCORES')[2]
    local number = math.max(first or 0, last and last + 1 or 0)
    claimer.place = format('%016d%016d', number, call('INCR', P .. pool .. ':line'))
    call('ZADD', P .. pool .. ':claiming', 0, claimer.place .. claimer.holder)
    call('ZADD', group, number, claimer.holder)
    call('HSET', P .. pool .. ':claimers', claimer.holder,
        cjson.encode({claimer.quarantine, claimer.session, claimer.where, claimer.place, claimer.group, claimer.looks}))
end

-- While resources rest, one claimer must know when to ask: the head of the line.
local function hint_head(pool)
    local head = head_of_line(pool)
    if head and claims.next_rested(pool) then
        session_items.hint(session_items.process_of(claims.read_claimer(pool, head).session), pool, head, 'ask')
    end
end

local function tidy_pool(pool)
    if call('EXISTS', P .. pool .. ':resources') == 0 then
        call('ZREM', P .. 'pools', pool)
        if call('EXISTS', P .. pool .. ':claiming') == 0 then
            call('DEL', P .. pool .. ':line')
        end
    end
end

local function leave_pool_line(pool, claimer)
    call('ZREM', P .. pool .. ':claiming', claimer.place .. claimer.holder)
    call('ZREM', group_key(pool, claimer.group), claimer.holder)
    call('HDEL', P .. pool .. ':claimers', claimer.holder)
end

-- Lend a slot of a resource, which has then been used unless it was the last one.
function claims.hand_over(pool, item, claimer)
    change_resource(pool, item, {
        token = tonumber(numbers.new_token()), rest_until = false, session = claimer.session, claimed = item.claimed + 1,
    })
    if not claims.is_full(item) then
        numbers.id = numbers.id + 1
        change_resource(pool, item, {used = numbers.id})
    end
    call('HSET', P .. pool .. ':claimers', claimer.holder,
        cjson.encode({claimer.quarantine, claimer.session, item.name, shard.token}))
    return {'claimed', item.name, item.metadata, item.token}
end

function claims.add_to_free(pool, item)
    if not claims.is_full(item) then
        call('ZADD', P .. pool .. ':free', -item.preference, claims.free_place(item))
    end
end

local function serve_claimer(pool, item, claimer)
    leave_pool_line(pool, claimer)
    claims.hand_over(pool, item, claimer)
    local process = session_items.process_of(claimer.session)
    session_items.hint(process, pool, claimer.holder, 'claimed', item.name, item.metadata, shard.token)
end

-- The sweep goes on with a comparison before anything else is done.
local function go_on_later(...)
    call('SADD', P .. 'unoffered', cjson.encode({...}))
    changes.due_at(0)
    steps.is_unfinished = true
end

-- The best free resource that suits a claimer, among the 256 behind `from`. If there are more, the sweep goes on with them.
function claims.best_free(pool, claimer, from)
    for first = from, from + 192, 64 do
        local some = call('ZRANGE', P .. pool .. ':free', first, first + 63)
        for _, place in ipairs(some) do
            local item = claims.read_resource(pool, sub(place, 17))
            if matches(item.metadata, claimer.where) then
                call('ZREM', P .. pool .. ':free', place)
                return item
            end
        end
        if #some < 64 then
            return
        end
    end
    go_on_later(pool, claimer.holder, from + 256)
end

-- Lend the slots of a resource to the first claimers in the line that it suits, and add it to the free ones if any is left.
-- Of a long line 256 are compared at a time, from the place `after`.
local function offer_resource(pool, item, after)
    local has_served, is_last = false, false
    for _ = 1, 4 do
        local some = call('ZRANGEBYLEX', P .. pool .. ':claiming', after, '+', 'LIMIT', 0, 64)
        for _, member in ipairs(some) do
            if claims.is_full(item) then
                break
            end
            local claimer = claims.read_claimer(pool, sub(member, 33))
            if matches(item.metadata, claimer.where) then
                serve_claimer(pool, item, claimer)
                has_served = true
            end
            after = '(' .. member
        end
        is_last = #some < 64 or claims.is_full(item)
        if is_last then
            break
        end
    end
    if has_served then
        hint_head(pool)
    end
    if is_last then
        claims.add_to_free(pool, item)
        return
    end
    go_on_later(pool, item.name, after)
end

-- Go on with a comparison that was put off.
function claims.compare_on(pool, name, behind)
    if type(behind) == 'string' then
        return offer_resource(pool, claims.read_resource(pool, name), behind)
    end
    local claimer = claims.read_claimer(pool, name)
    local item = claimer and claims.best_free(pool, claimer, behind)
    if item then
        serve_claimer(pool, item, claimer)
        claims.add_to_free(pool, item)
        hint_head(pool)
    end
end

-- Change a resource: it is full, retired, rests, or goes to the claimers in the line.
function claims.update_resource(pool, item, fields)
    local rest_until = fields.rest_until or item.rest_until or 0
    local soonest = rest_until > numbers.now and (claims.next_rested(pool) or math.huge)
    if item.rests then
        stop_resting(pool, item)
    elseif is_free(item) then
        call('ZREM', P .. pool .. ':free', claims.free_place(item))
    end
    change_resource(pool, item, fields)
    if claims.is_full(item) then
        return
    elseif item.retired then
        change_resource(pool, item, {rest_until = false})
    elseif soonest then
        let_rest(pool, item)
        if rest_until < soonest then
            hint_head(pool)
        end
    else
        offer_resource(pool, item, '-')
    end
end

function claims.forget_resource(pool, item)
    if item.rests then
        stop_resting(pool, item)
    end
    call('ZREM', P .. pool .. ':resources', item.name)
    call('DEL', resource_key(pool, item.name))
    tidy_pool(pool)
end

-- The claimer gives back or leaves, or its session has ended; then the resource rests for the quarantine.
-- -> released, left, unknown
function claims.remove_claim(pool, holder, ended)
    local claimer = claims.read_claimer(pool, holder)
    if not claimer then
        return 'unknown'
    end
    session_items.detach(claimer.session, claims.claim_item(pool, holder))
    if not claimer.resource then
        leave_pool_line(pool, claimer)
        hint_head(pool)
        tidy_pool(pool)
        return 'left'
    end
    local item = claims.read_resource(pool, claimer.resource)
    call('HDEL', P .. pool .. ':claimers', holder)
    if item.removed and item.claimed == 1 then
        claims.forget_resource(pool, item)
        return 'released'
    end
    numbers.id = numbers.id + 1
    local fields = {used = numbers.id, claimed = item.claimed - 1}
    if item.token == claimer.token then
        fields.token, fields.session = false, false
    end
    if ended and tonumber(claimer.quarantine) > 0 then
        fields.rest_until = math.max(item.rest_until or 0, numbers.now + claimer.quarantine)
    end
    claims.update_resource(pool, item, fields)
    return 'released'
end

function claims.end_rest(pool, resource)
    local item = claims.read_resource(pool, resource)
    if item then
        stop_resting(pool, item)
        offer_resource(pool, item, '-')
    end
    return item
end

return claims
