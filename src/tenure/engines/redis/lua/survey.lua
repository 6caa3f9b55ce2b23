-- Looking around: the names of what there is of a kind, what a session has, and what the server says of itself.
--
-- There is no index of the keys that are held or of the pools: their members lie together, so one steps from the first
-- of a key to the first of the next. That costs nothing when something is acquired or given back.

-- At most `limit` names under a letter, of members that begin with letter, both(name, ...); and after which to go on.
local function step_through(letter, prefix, after, limit)
    local names, last = {}, after
    local from = after == '' and '[' .. letter or '(' .. letter .. both(after, '') .. '\255'
    for _ = 1, math.max(limit, CAP) do
        local member = call('ZRANGEBYLEX', ORDER, from, '(' .. letter .. '\255', 'LIMIT', 0, 1)[1]
        if not member then
            return names, ''
        elseif #names == limit then
            return names, last
        end
        last = parts(string.sub(member, 3))
        if string.sub(last, 1, #prefix) == prefix then
            names[#names + 1] = last
        end
        from = '(' .. letter .. both(last, '') .. '\255'
    end
    return names, last
end

local function keys_held(prefix, after, limit)
    return step_through('g:', prefix, after, limit)
end

local function pools(prefix, after, limit)
    return step_through('I:', prefix, after, limit)
end

local function queues(prefix, after, limit)
    local from = after == '' and '[Q:' .. prefix or '(Q:' .. after
    local names = call('ZRANGEBYLEX', ORDER, from, '(Q:' .. prefix .. '\255', 'LIMIT', 0, limit)
    for i, member in ipairs(names) do
        names[i] = string.sub(member, 3)
    end
    return names, #names == limit and names[limit] or ''
end

-- In the order of their ends: one that is renewed meanwhile comes again, none is missed.
local function sessions(prefix, after, limit)
    local names = {}
    local from = after == '' and '[E:' or '(E:' .. after
    local members = call('ZRANGEBYLEX', ORDER, from, '(E:\255', 'LIMIT', 0, limit)
    for _, member in ipairs(members) do
        local name = string.sub(member, 19)
        if string.sub(name, 1, #prefix) == prefix then
            names[#names + 1] = name
        end
    end
    return names, #members == limit and string.sub(members[limit], 3) or ''
end

local kinds = {holds = keys_held, pools = pools, queues = queues, sessions = sessions}

-- ARGV: kind, prefix, after, limit -> surveyed: names, after which to go on
local function survey()
    local names, last = kinds[ARGV[4]](ARGV[5], ARGV[6], tonumber(ARGV[7]))
    return {'surveyed', names, last}
end

-- The key and the name of a thing, whether it is held and not waited for, and its token, by family.
local function row_of(letter, has)
    return function(thing)
        local key, name = parts(thing)
        return key, name, has(row(letter .. thing), key)
    end
end

local tell = {
    [HOLD] = row_of('h:', function(hold) return hold.token > 0, hold.token end),
    [CLAIM] = row_of('c:', function(claim, pool)
        return claim.resource, claim.resource and row('i:' .. both(pool, claim.resource)).token
    end),
    [ARRIVAL] = row_of('p:', function(party) return party.outcome end),
    [PRODUCER] = row_of('n:', function(producer) return producer.reserved end),
    [TASK] = function(thing, token)
        local queue, id = parts(thing)
        return queue, format('%d %d', tonumber(id), tonumber(token)), true, tonumber(token)
    end,
    [TAKER] = function(thing) return thing, '', false end,
}

-- ARGV: session, after, limit -> inspected: its process, for each thing family, key, name, 1 if it is held, and its token,
-- and after which to go on; unknown
local function inspect()
    local session = session_of(ARGV[4])
    if not session then
        return 'unknown'
    end
    local answer, limit = {}, tonumber(ARGV[6])
    local prefix = 't:' .. session.id .. ':'
    local members = call('ZRANGEBYLEX', ORDER, '(' .. prefix .. ARGV[5], '(' .. prefix .. WATCH, 'LIMIT', 0, limit)
    for i, member in ipairs(members) do
        local place = string.sub(member, #prefix + 1)
        local family = tonumber(string.sub(place, 1, 1))
        local key, name, held, token = tell[family](string.sub(place, 18), string.sub(place, 2, 17))
        answer[i] = {family, key, name, held and 1 or 0, token or 0}
    end
    return {'inspected', session.process, answer, #members == limit and string.sub(members[limit], #prefix + 1) or ''}
end

-- -> examined: the time, and what INFO tells
local function examine()
    return {'examined', now, call('INFO')}
end

local operations = {survey = survey, inspect = inspect, examine = examine}
