-- Looking around: the names of what there is of a kind, what a session has, and what the server says of itself. ARGV is that
-- of `scan.lua`.
local claims = require('claims')
local indexes = require('indexes')
local numbers = require('numbers')
local session_items = require('session_items')
local steps = require('steps')

local survey = {}

local function starts_with(text, prefix)
    return sub(text, 1, #prefix) == prefix
end

-- The sessions or limiters behind a place, which is an expiry and a name. One with a later expiry comes again, none is missed.
local function expiring_after(set, after, limit)
    local time, name = match(after, '^(%S+) (.*)$')
    local start = 0
    if name then
        local place = call('ZRANK', P .. set, name)
        local score = place and call('ZSCORE', P .. set, name)
        start = score == time and place + 1 or call('ZCOUNT', P .. set, '-inf', '(' .. time)
    end
    local found = call('ZRANGE', P .. set, start, start + limit - 1, 'WITHSCORES')
    return found, #found == 2 * limit and found[#found] .. ' ' .. found[#found - 1] or ''
end

local function sessions(prefix, after, limit)
    local found, last = expiring_after('sessions', after, limit)
    local names = {}
    for i = 1, #found, 2 do
        if starts_with(found[i], prefix) then
            names[#names + 1] = found[i]
        end
    end
    return names, last
end

-- `rates.lua` has the list: a limiter whose hold has ended stays in it for a while.
local function limiters(prefix, after, limit)
    local found, last = expiring_after('limiters', after, limit)
    local names = {}
    for i = 1, #found, 2 do
        local state = starts_with(found[i], prefix) and call('GET', P .. found[i] .. ':limiter')
        state = state and cmsgpack.unpack(state)
        if state and math.max(state[2], state[4] + state[3]) > numbers.now + 1 then
            names[#names + 1] = found[i]
        end
    end
    return names, last
end

local function pools(prefix, after, limit)
    local names = call('ZRANGEBYLEX', P .. 'pools', after == '' and '[' .. prefix or '(' .. after, '+', 'LIMIT', 0, limit)
    local more = #names == limit and names[limit] or ''
    while #names > 0 and not starts_with(names[#names], prefix) do
        names[#names], more = nil, ''
    end
    return names, more
end

-- The parts of the list of queues, one after the other; `after` is the number of the part and a name in it.
local function queues(prefix, after, limit)
    local number, name = match(after, '^(%d+) (.*)$')
    number = tonumber(number or 0)
    local names, checked = {}, 0
    while number < 256 do
        local part = P .. format('queues:%02x', number)
        local start = 0
        if name then
            local place = call('ZRANK', part, name)
            start = place and place + 1 or 0
            name = nil
        end
        local found = call('ZRANGE', part, start, start + limit - 1, 'WITHSCORES')
        for i = 1, #found, 2 do
            if #names == limit or checked == 4 * steps.most then
                return names, number .. ' ' .. (found[i - 2] or '')
            end
            checked = checked + 1
            if starts_with(found[i], prefix) and tonumber(found[i + 1]) > numbers.now then
                names[#names + 1] = found[i]
            end
        end
        if #found == 2 * limit then
            return names, number .. ' ' .. found[#found - 1]
        end
        number = number + 1
    end
    return names, ''
end

-- The keys that the sessions hold, one session after the other; a key that several hold comes several times. `after` is the
-- place of a session, behind the place in its items from which to go on, or "-" if it is done.
local function holds(prefix, after, limit)
    local from, place = match(after, '^(%S+) (.*)$')
    local names, checked = {}, 0
    while true do
        local session = from ~= '-' and place and match(place, '^%S+ (.*)$')
        if not session then
            local found = expiring_after('sessions', place or '', 1)
            if #found == 0 then
                return names, ''
            end
            session, place, from = found[1], found[2] .. ' ' .. found[1], 0
        end
        local left = limit - checked
        local items = call('ZRANGEBYSCORE', P .. session .. ':items', '(' .. from, 1e15, 'WITHSCORES', 'LIMIT', 0, left)
        for i = 1, #items, 2 do
            local of, holder = match(items[i], '^hold (.*)\255(.*)$')
            local key = sub(of, #P + 1, -#':holders' - 1)
            if starts_with(key, prefix) and call('HEXISTS', of, '@' .. holder) == 1 then
                names[#names + 1] = key
            end
        end
        if #items == 2 * left then
            return names, items[#items] .. ' ' .. place
        end
        checked, from = checked + #items / 2 + 1, '-'
        if checked >= limit then
            return names, '- ' .. place
        end
    end
end

for kind, names in pairs({holds = holds, limiters = limiters, pools = pools, queues = queues, sessions = sessions}) do
    indexes.by_name[kind] = function()
        local found, last = names(ARGV[7], ARGV[5], tonumber(ARGV[6]))
        return {kind, found, last}
    end
end

-- The key and the name of an item, whether it is held and not waited for, and its token, by family.
local shows = {}

function shows.hold(key, name)
    local text = call('HGET', P .. key .. ':holders', '@' .. name)
    return text, text and tonumber(match(text, '^%d+'))
end

function shows.claim(pool, name)
    local claimer = claims.read_claimer(pool, name)
    return claimer and claimer.resource, claimer and claimer.token
end

function shows.producer(name, producer)
    return match(call('HGET', P .. name .. ':producers', producer), '^%d+ 1')
end

local FAMILIES = {
    hold = 'holds', claim = 'claims', producer = 'producers', tasks = 'tasks', taker = 'takers',
}

-- Of each item the family, key, name, 1 if it is held, and its token; then the process of the session. To go on, the place
-- in the items of the session, and for tasks the last token. unknown
function indexes.by_name.session(session)
    local process = session_items.process_of(session)
    if not process then
        return 'unknown'
    end
    local answer, limit = {}, tonumber(ARGV[6])
    local place, last_token = match(ARGV[5], '^(%S+) ?(%d*)$')
    local from = (last_token or '') ~= '' and place or '(' .. (place or 0)
    local items = call('ZRANGEBYSCORE', P .. session .. ':items', from, '(6e15', 'WITHSCORES', 'LIMIT', 0, limit)
    for i = 1, #items, 2 do
        local item, family = items[i], match(items[i], '^%a+')
        if family == 'tasks' then
            local queue = sub(item, 7)
            local above = '(' .. ((last_token or '') ~= '' and last_token or 0)
            local leases = call('ZRANGEBYSCORE', P .. session .. ' ' .. queue .. ':leases', above, '+inf', 'WITHSCORES',
                'LIMIT', 0, limit - #answer)
            for j = 1, #leases, 2 do
                local its_token = tonumber(leases[j + 1])
                answer[#answer + 1] = {FAMILIES.tasks, queue, format('%d %d', tonumber(leases[j], 16), its_token), 1, its_token}
            end
            if #answer == limit then
                return {'session', answer, items[i + 1] .. ' ' .. (leases[#leases] or last_token or 0), process}
            end
        else
            local key, name, held, its_token
            if family == 'taker' then
                key, name = sub(item, 7), ''
            else
                key, name = match(item, '^%a+ (.*)\255(.*)$')
                if family == 'hold' then
                    key = sub(key, #P + 1, -#':holders' - 1)
                end
                held, its_token = shows[family](key, name)
            end
            answer[#answer + 1] = {FAMILIES[family], key, name, held and 1 or 0, its_token or 0}
            if #answer == limit then
                return {'session', answer, items[i + 1], process}
            end
        end
        last_token = nil
    end
    return {'session', answer, #items == 2 * limit and items[#items] or '', process}
end

-- The time, what INFO says, how much cannot be read.
function indexes.by_name.health()
    return {'health', {{numbers.now, call('INFO'), call('SCARD', P .. 'unreadable')}}, ''}
end

return survey
