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

-- Whether a thing is held, and not waited for, by family.
local has = {
    [HOLD] = function(name) return row('h:' .. name).token > 0 end,
    [CLAIM] = function(name) return row('c:' .. name).resource end,
    [ARRIVAL] = function(name) return row('p:' .. name).outcome end,
    [PRODUCER] = function(name) return row('n:' .. name).reserved end,
    [TASK] = function() return true end,
    [TAKER] = function() return false end,
}

-- ARGV: session, limit -> inspected: its process, and for each thing family, key, how many it has and waits for; unknown
local function inspect()
    local session = session_of(ARGV[4])
    if not session then
        return 'unknown'
    end
    local answer = {}
    for family = HOLD, TAKER do
        local prefix = 't:' .. session.id .. ':' .. family
        local by_key = {}
        for _, member in ipairs(under(prefix, tonumber(ARGV[5]))) do
            local name = string.sub(member, #prefix + 17)
            local key = name
            if family ~= TAKER then
                key = parts(name)
            end
            if not by_key[key] then
                by_key[key] = {family, key, 0, 0}
                answer[#answer + 1] = by_key[key]
            end
            local place = has[family](name) and 3 or 4
            by_key[key][place] = by_key[key][place] + 1
        end
    end
    return {'inspected', session.process, answer}
end

-- -> examined: the time, and what INFO tells
local function examine()
    return {'examined', now, call('INFO')}
end

local operations = {survey = survey, inspect = inspect, examine = examine}
