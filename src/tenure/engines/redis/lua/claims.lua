-- Claims: a pool of named resources, matched by metadata, least recently used first, with a line for those who wait.
--
-- A row "i:" pool, resource -> the resource {metadata, preference, used, rests, rest_until, holder, process, session,
-- thing, quarantine, token, retired, removed}, `metadata` an array of names and values; a row "c:" pool, holder -> a
-- claim {resource} or a wish {session, process, where, quarantine, ordinal, thing}. Members "I:" pool, resource for all,
-- "F:" pool, preference, use, resource for the free ones, "c:" pool, ordinal, holder for those who wait. A row "P:" pool
-- -> {ordinal, waiting}. Of one that rests: "D:" time, "r", pool, resource, and "N:" pool, time, resource.

local HIGHEST = 2 ^ 52

local function item_name(pool, resource)
    return 'i:' .. both(pool, resource)
end

local function free_place(pool, item, resource)
    return 'F:' .. both(pool, digits(HIGHEST - item.preference)) .. digits(item.used) .. resource
end

local function wish_name(pool, holder)
    return 'c:' .. both(pool, holder)
end

local function wish_place(pool, wish, holder)
    return 'c:' .. both(pool, digits(wish.ordinal)) .. holder
end

local function rest(pool, item, resource)
    item.rests = true
    enter(due(item.rest_until, 'r', both(pool, resource)))
    enter('N:' .. both(pool, digits(item.rest_until)) .. resource)
end

local function stop_resting(pool, item, resource)
    item.rests = false
    leave(due(item.rest_until, 'r', both(pool, resource)))
    leave('N:' .. both(pool, digits(item.rest_until)) .. resource)
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

local function pool_row(pool)
    return row('P:' .. pool) or {ordinal = 0, waiting = 0}
end

-- When the next resource of the pool has rested enough, if one rests.
local function next_rested(pool)
    local prefix = 'N:' .. both(pool, '')
    local member = first(prefix)
    return member and tonumber(string.sub(member, #prefix + 1, #prefix + 16))
end

-- While resources rest, somebody who waits must know when to ask: the head of the line.
local function tell_head(pool)
    local prefix = 'c:' .. both(pool, '')
    local head = first(prefix)
    if head and next_rested(pool) then
        local holder = string.sub(head, #prefix + 17)
        hint(row(wish_name(pool, holder)).process, pool, holder, 'ask')
    end
end

-- Leave the place in the line; true for the head.
local function step_out(pool, state, wish, holder)
    local place = wish_place(pool, wish, holder)
    local was_head = first('c:' .. both(pool, '')) == place
    leave(place)
    state.waiting = state.waiting - 1
    save('P:' .. pool, state)
    return was_head
end

-- The resource, claimed; its row and that of the claim are saved.
local function serve_claim(pool, item, resource, wish, holder)
    item.token, item.rest_until, item.holder = new_token(), 0, holder
    item.process, item.session, item.thing, item.quarantine = wish.process, wish.session, wish.thing, wish.quarantine
    save(item_name(pool, resource), item)
    save(wish_name(pool, holder), {resource = resource})
    return {'claimed', item.token, resource, item.metadata}
end

-- Give a resource that is free to the first in the line whom it suits, or enter it among the free ones.
local function offer(pool, item, resource)
    local state = pool_row(pool)
    local taken = false
    if state.waiting > 0 then
        walk('c:' .. both(pool, ''), '', function(place)
            local holder = string.sub(place, 17)
            local wish = row(wish_name(pool, holder))
            if not matches(item.metadata, wish.where) then
                return false
            end
            local was_head = step_out(pool, state, wish, holder)
            serve_claim(pool, item, resource, wish, holder)
            hint(wish.process, pool, holder, 'claimed',
                string.format('%.0f', item.token), resource, unpack(item.metadata))
            if was_head then
                tell_head(pool)
            end
            taken = true
            return true
        end)
    end
    if taken then
        return
    end
    enter(free_place(pool, item, resource))
    save(item_name(pool, resource), item)
end

local function forget_item(pool, item, resource)
    if item.rests then
        stop_resting(pool, item, resource)
    end
    leave('I:' .. both(pool, resource))
    delete(item_name(pool, resource))
end

-- A claimed resource is given back.
local function free(pool, item, resource)
    delete(wish_name(pool, item.holder))
    item.token, item.used = 0, number('use')
    item.holder, item.process, item.session, item.thing, item.quarantine = nil, nil, nil, nil, nil
    if item.removed then
        forget_item(pool, item, resource)
    elseif item.retired then
        save(item_name(pool, resource), item)
    elseif item.rest_until > now then
        local sooner = item.rest_until < (next_rested(pool) or math.huge)
        rest(pool, item, resource)
        save(item_name(pool, resource), item)
        if sooner then
            tell_head(pool)
        end
    else
        offer(pool, item, resource)
    end
end

local function drop_wish(pool, wish, holder)
    local was_head = step_out(pool, pool_row(pool), wish, holder)
    delete(wish_name(pool, holder))
    if was_head then
        tell_head(pool)
    end
end

-- The session of a claimer or waiter has ended.
local function drop_claim(_, name)
    local pool, holder = parts(name)
    local wish = row('c:' .. name)
    if not wish.resource then
        return drop_wish(pool, wish, holder)
    end
    local item = row(item_name(pool, wish.resource))
    if item.quarantine > 0 then
        item.rest_until = math.max(item.rest_until, now + item.quarantine)
    end
    free(pool, item, wish.resource)
end

-- A resource has rested enough.
local function end_rest(name)
    local pool, resource = parts(name)
    local item = row('i:' .. name)
    stop_resting(pool, item, resource)
    offer(pool, item, resource)
end

-- ARGV: pool, resource, preference, then names and values of the metadata -> ok
local function add_resource()
    local pool, resource = ARGV[4], ARGV[5]
    local item = row(item_name(pool, resource))
    if not item then
        item = {used = 0, rests = false, rest_until = 0, token = 0}
        enter('I:' .. both(pool, resource))
    elseif item.token == 0 and not item.rests and not item.retired then
        leave(free_place(pool, item, resource))
    end
    item.preference, item.metadata, item.retired, item.removed = tonumber(ARGV[6]), {}, nil, nil
    for i = 7, #ARGV do
        item.metadata[i - 6] = ARGV[i]
    end
    if item.token == 0 and not item.rests then
        offer(pool, item, resource)
    else
        save(item_name(pool, resource), item)
    end
    return 'ok'
end

-- ARGV: pool, resource -> ok, unknown
local function remove_resource()
    local pool, resource = ARGV[4], ARGV[5]
    local item = row(item_name(pool, resource))
    if not item then
        return 'unknown'
    end
    if item.token > 0 then
        item.removed = true
        save(item_name(pool, resource), item)
    else
        if not item.rests and not item.retired then
            leave(free_place(pool, item, resource))
        end
        forget_item(pool, item, resource)
    end
    return 'ok'
end

-- The best free resource that matches.
local function best(pool, where)
    local item, resource
    walk('F:' .. both(pool, ''), '', function(place)
        local name = string.sub(place, 33)
        local one = row(item_name(pool, name))
        if matches(one.metadata, where) then
            item, resource = one, name
            return true
        end
    end)
    return item, resource
end

-- ARGV: session, pool, holder, quarantine, wait, then names and values to match -> claimed, queued, refused, gone
local function claim()
    local pool, holder = ARGV[5], ARGV[6]
    local session = session_of(ARGV[4])
    if not session then
        return 'gone'
    end
    local state = pool_row(pool)
    local wish = row(wish_name(pool, holder))
    if wish and wish.resource then
        local item = row(item_name(pool, wish.resource))
        return {'claimed', item.token, wish.resource, item.metadata}
    elseif not wish then
        local where = {}
        for i = 9, #ARGV do
            where[i - 8] = ARGV[i]
        end
        local item, resource = best(pool, where)
        if not item and ARGV[8] == '0' then
            return 'refused'
        end
        state.ordinal = state.ordinal + 1
        wish = {
            session = session.name, process = session.process, where = where, ordinal = state.ordinal,
            quarantine = tonumber(ARGV[7]), thing = give(session.id, CLAIM, both(pool, holder)),
        }
        if item then
            leave(free_place(pool, item, resource))
            save('P:' .. pool, state)
            return serve_claim(pool, item, resource, wish, holder)
        end
        state.waiting = state.waiting + 1
        save('P:' .. pool, state)
        save(wish_name(pool, holder), wish)
        enter(wish_place(pool, wish, holder))
    end
    local prefix = 'c:' .. both(pool, '')
    local head = tonumber(string.sub(first(prefix), #prefix + 1, #prefix + 16))
    return {'queued', wish.ordinal - head + 1, ask_again_in(next_rested(pool))}
end

-- ARGV: pool, holder -> released, left, unknown
local function give_back()
    local pool, holder = ARGV[4], ARGV[5]
    local wish = row(wish_name(pool, holder))
    if not wish then
        return 'unknown'
    elseif not wish.resource then
        leave(wish.thing)
        drop_wish(pool, wish, holder)
        return 'left'
    end
    local item = row(item_name(pool, wish.resource))
    leave(item.thing)
    free(pool, item, wish.resource)
    return 'released'
end

-- ARGV: pool, holder, token, cool-down ("": none), retire (0 or 1), reason, change (0 or 1), then the metadata
-- -> ok, refused
local function edit_claim()
    local pool, holder = ARGV[4], ARGV[5]
    local wish = row(wish_name(pool, holder))
    local item = wish and wish.resource and row(item_name(pool, wish.resource))
    if not item or item.token ~= tonumber(ARGV[6]) then
        return 'refused'
    end
    if ARGV[7] ~= '' then
        item.rest_until = now + tonumber(ARGV[7])
    end
    if ARGV[8] == '1' then
        item.retired = ARGV[9]
    end
    if ARGV[10] == '1' then
        item.metadata = {}
        for i = 11, #ARGV do
            item.metadata[i - 10] = ARGV[i]
        end
    end
    save(item_name(pool, wish.resource), item)
    return 'ok'
end

-- ARGV: pool -> resources
local function resources()
    local pool = ARGV[4]
    local answer = {}
    walk('I:' .. both(pool, ''), '', function(resource)
        local item = row(item_name(pool, resource))
        local state = item.token > 0 and 'claimed' or item.retired and 'retired' or item.rests and 'resting' or 'free'
        answer[#answer + 1] = {
            resource, item.metadata, item.preference, state, item.process or '', item.token,
            item.rests and math.max(0, item.rest_until - now) or 0, item.retired or '',
        }
    end)
    return {'resources', answer, pool_row(pool).waiting}
end

local operations = {
    add = add_resource, remove = remove_resource, claim = claim, give_back = give_back, edit = edit_claim,
    resources = resources,
}
