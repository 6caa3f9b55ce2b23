-- Claims: a pool of named resources, matched by metadata, least recently used first, with a line for those who wait.
-- ARGV[3] is the operation.
--
-- A resource is a hash `<name>:resource`, its name with % and : escaped, {preference, used; token, holder, session,
-- quarantine while claimed; rests; rest_until; retired, with the reason; removed; and "meta:" with a name for each field of
-- the metadata}. Of the pool, `resources` is a sorted set of all names, `free` of the free ones by preference and last use,
-- `resting` of those that rest by the time when they may be claimed; `claimed` a hash of holder -> resource; `claiming` a
-- sorted set of those who wait by their places (`line` is the last one given), `claimers` a hash of holder -> quarantine,
-- session and what the metadata must have. `pools`, `cooling` are sorted sets of the shard: all pools, all that rest.

local operations = {}
local NUMBERS = {preference = 1, used = 1, token = 1, quarantine = 1, rests = 1, rest_until = 1, removed = 1}

local function escaped(name)
    return (string.gsub(name, '[%%:]', {['%'] = '%25', [':'] = '%3A'}))
end

local function resource_key(pool, resource)
    return P .. pool .. ':' .. escaped(resource) .. ':resource'
end

local function claim_thing(pool, holder)
    return 'claim ' .. pool .. '\255' .. holder
end

local function cooling_place(pool, resource)
    return pool .. '\255' .. resource
end

local function free_place(item)
    return format('%016d', item.used) .. item.name
end

local function read_resource(pool, resource)
    local fields = call('HGETALL', resource_key(pool, resource))
    if #fields == 0 then
        return
    end
    local item, names = {name = resource, metadata = {}}, {}
    for i = 1, #fields, 2 do
        if sub(fields[i], 1, 5) == 'meta:' then
            names[#names + 1] = sub(fields[i], 6)
            item[fields[i]] = fields[i + 1]
        else
            item[fields[i]] = NUMBERS[fields[i]] and tonumber(fields[i + 1]) or fields[i + 1]
        end
    end
    table.sort(names)
    for _, name in ipairs(names) do
        item.metadata[#item.metadata + 1] = name
        item.metadata[#item.metadata + 1] = item['meta:' .. name]
    end
    return item
end

-- Sets fields of a resource; those with the value false are removed.
local function change(pool, item, fields)
    local set, removed = {}, {}
    for field, value in pairs(fields) do
        if value == false then
            removed[#removed + 1] = field
        else
            set[#set + 1], set[#set + 2] = field, value
        end
        item[field] = value or nil
    end
    if #removed > 0 then
        call('HDEL', resource_key(pool, item.name), unpack(removed))
    end
    if #set > 0 then
        call('HSET', resource_key(pool, item.name), unpack(set))
    end
end

local function set_metadata(pool, item, from)
    for i = 1, #item.metadata, 2 do
        call('HDEL', resource_key(pool, item.name), 'meta:' .. item.metadata[i])
    end
    item.metadata = {}
    for i = from, #ARGV, 2 do
        call('HSET', resource_key(pool, item.name), 'meta:' .. ARGV[i], ARGV[i + 1])
        item.metadata[i - from + 1], item.metadata[i - from + 2] = ARGV[i], ARGV[i + 1]
    end
end

-- Does the metadata have all the fields of `where`?
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

local function rest(pool, item)
    change(pool, item, {rests = 1})
    call('ZADD', P .. pool .. ':resting', item.rest_until, item.name)
    call('ZADD', P .. 'cooling', item.rest_until, cooling_place(pool, item.name))
    due_at(item.rest_until)
end

local function stop_resting(pool, item)
    change(pool, item, {rests = false})
    call('ZREM', P .. pool .. ':resting', item.name)
    call('ZREM', P .. 'cooling', cooling_place(pool, item.name))
end

-- When the next resource of the pool has rested enough, if one rests.
local function next_rested(pool)
    return tonumber(call('ZRANGE', P .. pool .. ':resting', 0, 0, 'WITHSCORES')[2])
end

local function read_claimer(pool, holder)
    local text = call('HGET', P .. pool .. ':claimers', holder)
    if text then
        local quarantine, size, from = match(text, '^(%d+) (%d+) ()')
        size = tonumber(size)
        return {
            holder = holder, quarantine = tonumber(quarantine), session = sub(text, from, from + size - 1),
            where = cjson.decode(sub(text, from + size + 1)),
        }
    end
end

-- While resources rest, somebody who waits must know when to ask: the head of the line.
local function hint_head(pool)
    local head = call('ZRANGE', P .. pool .. ':claiming', 0, 0)[1]
    if head and next_rested(pool) then
        hint(process_of(read_claimer(pool, head).session), pool, head, 'ask')
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

-- Leave the place in the line; true for the head.
local function leave_line(pool, holder)
    local was_head = call('ZRANGE', P .. pool .. ':claiming', 0, 0)[1] == holder
    call('ZREM', P .. pool .. ':claiming', holder)
    call('HDEL', P .. pool .. ':claimers', holder)
    return was_head
end

local function hand_over(pool, item, claimer)
    change(pool, item, {
        token = tonumber(new_token()), rest_until = false, holder = claimer.holder, session = claimer.session,
        quarantine = claimer.quarantine,
    })
    call('HSET', P .. pool .. ':claimed', claimer.holder, item.name)
    return {'claimed', item.token, item.name, item.metadata}
end

-- Give a resource that is free to the first in the line whom it suits, or enter it among the free ones.
local function offer(pool, item)
    local from = 0
    repeat
        local some = call('ZRANGE', P .. pool .. ':claiming', from, from + 63)
        for _, holder in ipairs(some) do
            local claimer = read_claimer(pool, holder)
            if matches(item.metadata, claimer.where) then
                local was_head = leave_line(pool, holder)
                hand_over(pool, item, claimer)
                hint(process_of(claimer.session), pool, holder, 'claimed', token, item.name, unpack(item.metadata))
                if was_head then
                    hint_head(pool)
                end
                return
            end
        end
        from = from + 64
    until #some < 64
    call('ZADD', P .. pool .. ':free', -item.preference, free_place(item))
end

local function forget_resource(pool, item)
    if item.rests then
        stop_resting(pool, item)
    end
    call('ZREM', P .. pool .. ':resources', item.name)
    call('DEL', resource_key(pool, item.name))
    tidy_pool(pool)
end

-- A claimed resource is given back.
local function free(pool, item)
    call('HDEL', P .. pool .. ':claimed', item.holder)
    id = id + 1
    change(pool, item, {token = false, used = id, holder = false, session = false, quarantine = false})
    if item.removed then
        forget_resource(pool, item)
    elseif item.retired then
        return
    elseif (item.rest_until or 0) > now then
        local sooner = item.rest_until < (next_rested(pool) or math.huge)
        rest(pool, item)
        if sooner then
            hint_head(pool)
        end
    else
        offer(pool, item)
    end
end

-- The claimer gives back or leaves, or its session has ended; then the resource rests for the quarantine.
-- -> released, left, unknown
local function remove_claim(pool, holder, ended)
    local claimer = read_claimer(pool, holder)
    if claimer then
        take_from(claimer.session, claim_thing(pool, holder))
        if leave_line(pool, holder) then
            hint_head(pool)
        end
        tidy_pool(pool)
        return 'left'
    end
    local resource = call('HGET', P .. pool .. ':claimed', holder)
    if not resource then
        return 'unknown'
    end
    local item = read_resource(pool, resource)
    take_from(item.session, claim_thing(pool, holder))
    if ended and item.quarantine > 0 then
        change(pool, item, {rest_until = math.max(item.rest_until or 0, now + item.quarantine)})
    end
    free(pool, item)
    return 'released'
end

-- A resource has rested enough.
local function end_rest(pool, resource)
    local item = read_resource(pool, resource)
    if item then
        stop_resting(pool, item)
        offer(pool, item)
    end
    return item
end

-- ARGV: pool, resource, preference, revive (0 or 1), then names and values of the metadata -> ok
function operations.add(pool)
    local item = read_resource(pool, ARGV[5])
    if not item then
        item = {name = ARGV[5], used = 0, metadata = {}}
        call('ZADD', P .. pool .. ':resources', 0, item.name)
        call('ZADD', P .. 'pools', 0, pool)
    elseif not (item.token or item.rests or item.retired) then
        call('ZREM', P .. pool .. ':free', free_place(item))
    end
    change(pool, item, {
        preference = tonumber(ARGV[6]), used = item.used, removed = false,
        retired = ARGV[7] == '0' and item.retired or false,
    })
    set_metadata(pool, item, 8)
    if not (item.token or item.rests or item.retired) then
        offer(pool, item)
    end
    return 'ok'
end

-- ARGV: pool, resource -> ok, unknown
function operations.remove(pool)
    local item = read_resource(pool, ARGV[5])
    if not item then
        return 'unknown'
    elseif item.token then
        change(pool, item, {removed = 1})
    else
        call('ZREM', P .. pool .. ':free', free_place(item))
        forget_resource(pool, item)
    end
    return 'ok'
end

-- The best free resource that matches.
local function best(pool, where)
    local from = 0
    repeat
        local some = call('ZRANGE', P .. pool .. ':free', from, from + 63)
        for _, place in ipairs(some) do
            local item = read_resource(pool, sub(place, 17))
            if matches(item.metadata, where) then
                return item
            end
        end
        from = from + 64
    until #some < 64
end

-- ARGV: pool, session, holder, quarantine, wait, then names and values to match -> claimed, queued, refused, gone
function operations.claim(pool)
    local session, holder, CLAIMING = ARGV[5], ARGV[6], P .. pool .. ':claiming'
    if not process_of(session) then
        return 'gone'
    end
    local resource = call('HGET', P .. pool .. ':claimed', holder)
    if resource then
        local item = read_resource(pool, resource)
        return {'claimed', item.token, resource, item.metadata}
    end
    local place = tonumber(call('ZSCORE', CLAIMING, holder) or nil)
    if not place then
        local claimer = {holder = holder, session = session, quarantine = tonumber(ARGV[7]), where = {}}
        for i = 9, #ARGV do
            claimer.where[i - 8] = ARGV[i]
        end
        local item = best(pool, claimer.where)
        if not item and ARGV[8] == '0' then
            return 'refused'
        end
        place = call('INCR', P .. pool .. ':line')
        if item then
            call('ZREM', P .. pool .. ':free', free_place(item))
            give(session, CLAIM, claim_thing(pool, holder))
            return hand_over(pool, item, claimer)
        end
        give(session, CLAIM, claim_thing(pool, holder))
        call('ZADD', CLAIMING, place, holder)
        call('HSET', P .. pool .. ':claimers', holder,
            format('%d %d ', claimer.quarantine, #session) .. session .. ' ' .. cjson.encode(claimer.where))
    end
    local head = tonumber(call('ZRANGE', CLAIMING, 0, 0, 'WITHSCORES')[2])
    return {'queued', place - head + 1, ask_again_in(next_rested(pool))}
end

-- ARGV: pool, holder -> released, left, unknown
function operations.give_back(pool)
    return remove_claim(pool, ARGV[5], false)
end

-- ARGV: pool, holder, token, cool-down ("": none), retire (0 or 1), reason, change (0 or 1), then the metadata
-- -> ok, refused
function operations.edit(pool)
    local resource = call('HGET', P .. pool .. ':claimed', ARGV[5])
    local item = resource and read_resource(pool, resource)
    if not item or item.token ~= tonumber(ARGV[6]) then
        return 'refused'
    end
    if ARGV[7] ~= '' then
        change(pool, item, {rest_until = now + tonumber(ARGV[7])})
    end
    if ARGV[8] == '1' then
        change(pool, item, {retired = ARGV[9]})
    end
    if ARGV[10] == '1' then
        set_metadata(pool, item, 11)
    end
    return 'ok'
end

-- ARGV: pool -> resources
function operations.resources(pool)
    local answer = {}
    for _, resource in ipairs(call('ZRANGE', P .. pool .. ':resources', 0, -1)) do
        local item = read_resource(pool, resource)
        answer[#answer + 1] = {
            resource, item.metadata, item.preference,
            item.token and 'claimed' or item.retired and 'retired' or item.rests and 'resting' or 'free',
            item.session and process_of(item.session) or '', item.token or 0,
            item.rests and math.max(0, item.rest_until - now) or 0, item.retired or '',
        }
    end
    return {'resources', answer, call('ZCARD', P .. pool .. ':claiming')}
end
