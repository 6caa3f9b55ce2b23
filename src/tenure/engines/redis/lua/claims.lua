-- Claims: a pool of named resources, matched by metadata, least recently used first, with a line of claimers.
-- ARGV[3] is the operation.
--
-- A resource is a hash `<name>:resource`, its name with % and : escaped, {preference, used; token, holder, session,
-- quarantine while claimed; rests; rest_until; retired, with the reason; removed; metadata, a JSON array of names and
-- values}. Of the pool, `resources` is a sorted set of all names, `free` of the free ones by preference and last use,
-- `resting` of those that rest by the time when they may be claimed; `claimed` a hash of holder -> resource; `claiming` a
-- sorted set of waiting claimers in the order of the line, all with the score 0: the number and the order of coming (`line` is
-- the last), each as 16 digits, and the holder; `numbers` the same of each group: the group, then its numbers, counted
-- down from 1e15, and orders of coming; `claimers` a hash of holder -> quarantine, session, what the metadata must have, number and order of coming, and the
-- group, as JSON; `comparing` a hash of holder -> the last free resource that it has been compared
-- with, while it has not been with all of them. `pools`, `cooling` are sorted sets of the shard: all pools, all that rest.

local operations = {}
local NUMBERS = {preference = 1, used = 1, token = 1, quarantine = 1, rests = 1, rest_until = 1, removed = 1}

local function escaped(name)
    return (string.gsub(name, '[%%:]', {['%'] = '%25', [':'] = '%3A'}))
end

local function resource_key(pool, resource)
    return P .. pool .. ':' .. escaped(resource) .. ':resource'
end

local function claim_item(pool, holder)
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
    local item = {name = resource}
    for i = 1, #fields, 2 do
        item[fields[i]] = NUMBERS[fields[i]] and tonumber(fields[i + 1]) or fields[i + 1]
    end
    item.metadata = cjson.decode(item.metadata)
    return item
end

-- Sets fields of a resource; those with the value false are removed.
local function change_resource(pool, item, fields)
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
    item.metadata = {unpack(ARGV, from)}
    call('HSET', resource_key(pool, item.name), 'metadata', cjson.encode(item.metadata))
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

local function let_rest(pool, item)
    change_resource(pool, item, {rests = 1})
    call('ZADD', P .. pool .. ':resting', item.rest_until, item.name)
    call('ZADD', P .. 'cooling', item.rest_until, cooling_place(pool, item.name))
    due_at(item.rest_until)
end

local function stop_resting(pool, item)
    change_resource(pool, item, {rests = false})
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
        local quarantine, session, where, place, group = unpack(cjson.decode(text))
        return {holder = holder, quarantine = tonumber(quarantine), session = session, where = where, place = place, group = group}
    end
end

-- The claimer at the head of the line.
local function head_of_line(pool)
    local head = call('ZRANGEBYLEX', P .. pool .. ':claiming', '-', '+', 'LIMIT', 0, 1)[1]
    return head and sub(head, 33), head
end

-- What the members of a group in `numbers` begin with.
local function prefix_of(claimer)
    return string.gsub(claimer.group, '%z', '\0\1') .. '\0\0'
end

-- What stands for a claimer among those of its group: the last comes first.
local function place_in_group(claimer)
    return prefix_of(claimer) .. format('%016d', 1e15 - sub(claimer.place, 1, 16)) .. sub(claimer.place, 17)
end

-- A claimer joins the line: behind the others of its group, and no sooner than the head.
local function join_line(pool, claimer)
    local _, head = head_of_line(pool)
    local prefix, number = prefix_of(claimer), head and tonumber(sub(head, 1, 16)) or 0
    local last = call('ZRANGEBYLEX', P .. pool .. ':numbers', '[' .. prefix, '(' .. sub(prefix, 1, -2) .. '\1', 'LIMIT', 0, 1)[1]
    if last then
        number = math.max(number, 1e15 - sub(last, #prefix + 1, #prefix + 16) + 1)
    end
    claimer.place = format('%016d%016d', number, call('INCR', P .. pool .. ':line'))
    call('ZADD', P .. pool .. ':claiming', 0, claimer.place .. claimer.holder)
    call('ZADD', P .. pool .. ':numbers', 0, place_in_group(claimer))
    call('HSET', P .. pool .. ':claimers', claimer.holder,
        cjson.encode({claimer.quarantine, claimer.session, claimer.where, claimer.place, claimer.group}))
end

-- While resources rest, one claimer must know when to ask: the head of the line.
local function hint_head(pool)
    local head = head_of_line(pool)
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
local function leave_line(pool, claimer)
    local was_head = head_of_line(pool) == claimer.holder
    call('ZREM', P .. pool .. ':claiming', claimer.place .. claimer.holder)
    call('ZREM', P .. pool .. ':numbers', place_in_group(claimer))
    call('HDEL', P .. pool .. ':claimers', claimer.holder)
    call('HDEL', P .. pool .. ':comparing', claimer.holder)
    return was_head
end

local function hand_over(pool, item, claimer)
    change_resource(pool, item, {
        token = tonumber(new_token()), rest_until = false, holder = claimer.holder, session = claimer.session,
        quarantine = claimer.quarantine,
    })
    call('HSET', P .. pool .. ':claimed', claimer.holder, item.name)
    return {'claimed', item.name, item.metadata, item.token}
end

-- Hand a resource over to a waiting claimer.
local function serve_claimer(pool, item, claimer)
    local was_head = leave_line(pool, claimer)
    hand_over(pool, item, claimer)
    hint(process_of(claimer.session), pool, claimer.holder, 'claimed', item.name, item.metadata, token)
    if was_head then
        hint_head(pool)
    end
end

-- Hand a free resource over to the first claimer in the line that it suits, or add it to the free ones. Of a long line 256
-- are compared at a time, from the place `after`; the sweep goes on before anything else is done.
local function offer_resource(pool, item, after)
    for _ = 1, 4 do
        local some = call('ZRANGEBYLEX', P .. pool .. ':claiming', after, '+', 'LIMIT', 0, 64)
        for _, member in ipairs(some) do
            local claimer = read_claimer(pool, sub(member, 33))
            if matches(item.metadata, claimer.where) then
                return serve_claimer(pool, item, claimer)
            end
            after = '(' .. member
        end
        if #some < 64 then
            call('ZADD', P .. pool .. ':free', -item.preference, free_place(item))
            return
        end
    end
    call('SADD', P .. 'unoffered', cjson.encode({pool, item.name, after}))
    due_at(0)
    unfinished = true
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
local function free_resource(pool, item)
    call('HDEL', P .. pool .. ':claimed', item.holder)
    id = id + 1
    change_resource(pool, item, {token = false, used = id, holder = false, session = false, quarantine = false})
    if item.removed then
        forget_resource(pool, item)
    elseif item.retired then
        return
    elseif (item.rest_until or 0) > now then
        local sooner = item.rest_until < (next_rested(pool) or math.huge)
        let_rest(pool, item)
        if sooner then
            hint_head(pool)
        end
    else
        offer_resource(pool, item, '-')
    end
end

-- The claimer gives back or leaves, or its session has ended; then the resource rests for the quarantine.
-- -> released, left, unknown
local function remove_claim(pool, holder, ended)
    local claimer = read_claimer(pool, holder)
    if claimer then
        detach(claimer.session, claim_item(pool, holder))
        if leave_line(pool, claimer) then
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
    detach(item.session, claim_item(pool, holder))
    if ended and item.quarantine > 0 then
        change_resource(pool, item, {rest_until = math.max(item.rest_until or 0, now + item.quarantine)})
    end
    free_resource(pool, item)
    return 'released'
end

-- A resource has rested enough.
local function end_rest(pool, resource)
    local item = read_resource(pool, resource)
    if item then
        stop_resting(pool, item)
        offer_resource(pool, item, '-')
    end
    return item
end

-- ARGV: pool, resource, preference, revive (0 or 1), then names and values of the metadata -> ok
function operations.add(pool)
    local item = read_resource(pool, ARGV[5])
    if not item then
        item = {name = ARGV[5], used = 0}
        call('ZADD', P .. pool .. ':resources', 0, item.name)
        call('ZADD', P .. 'pools', 0, pool)
    elseif not (item.token or item.rests or item.retired) then
        call('ZREM', P .. pool .. ':free', free_place(item))
    end
    change_resource(pool, item, {
        preference = tonumber(ARGV[6]), used = item.used, removed = false,
        retired = ARGV[7] == '0' and item.retired or false,
    })
    set_metadata(pool, item, 8)
    if not (item.token or item.rests or item.retired) then
        offer_resource(pool, item, '-')
    end
    return 'ok'
end

-- ARGV: pool, resource -> ok, unknown
function operations.remove(pool)
    local item = read_resource(pool, ARGV[5])
    if not item then
        return 'unknown'
    elseif item.token then
        change_resource(pool, item, {removed = 1})
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

-- A claimer that is still being compared, see `best_free`, is in the line: it is offered what becomes free meanwhile.
--
-- ARGV: pool, session, holder, quarantine, wait, group, then names and values to match -> claimed, queued, refused, gone, more
function operations.claim(pool)
    local session, holder = ARGV[5], ARGV[6]
    if not process_of(session) then
        return 'gone'
    end
    local resource = call('HGET', P .. pool .. ':claimed', holder)
    if resource then
        local item = read_resource(pool, resource)
        return {'claimed', resource, item.metadata, item.token}
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
            serve_claimer(pool, item, other)
            return 'more'
        elseif not item and not seen and ARGV[8] == '0' then
            if waiting then
                remove_claim(pool, holder)
            end
            return 'refused'
        elseif item and waiting then
            if leave_line(pool, claimer) then
                hint_head(pool)
            end
            return hand_over(pool, item, claimer)
        elseif not waiting then
            attach(session, CLAIM, claim_item(pool, holder))
            if item then
                return hand_over(pool, item, claimer)
            end
            join_line(pool, claimer)
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
function operations.edit(pool)
    local resource = call('HGET', P .. pool .. ':claimed', ARGV[5])
    local item = resource and read_resource(pool, resource)
    if not item or item.token ~= tonumber(ARGV[6]) then
        return 'refused'
    end
    if ARGV[7] ~= '' then
        change_resource(pool, item, {rest_until = now + tonumber(ARGV[7])})
    end
    if ARGV[8] ~= '' then
        change_resource(pool, item, {retired = sub(ARGV[8], 2)})
    end
    if ARGV[9] ~= '' then
        set_metadata(pool, item, 10)
    end
    return 'ok'
end

-- ARGV: pool, after -> resources: a page, how many wait, the last name if there are more
function operations.resources(pool)
    local answer, after = {}, ARGV[5] == '' and '-' or '(' .. ARGV[5]
    local names = call('ZRANGEBYLEX', P .. pool .. ':resources', after, '+', 'LIMIT', 0, 257)
    local more = #names == 257 and names[256] or ''
    names[257] = nil
    for _, resource in ipairs(names) do
        local item = read_resource(pool, resource)
        answer[#answer + 1] = {
            resource, item.metadata, item.preference,
            item.token and 'claimed' or item.retired and 'retired' or item.rests and 'resting' or 'free',
            item.session and process_of(item.session) or '', item.token or 0,
            item.rests and math.max(0, item.rest_until - now) or 0, item.retired or '',
        }
    end
    return {'resources', answer, call('ZCARD', P .. pool .. ':claiming'), more}
end
