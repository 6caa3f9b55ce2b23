-- Reads a page of an index. ARGV[3] is the index; then come the object, the end of the page before ("": none), how many rows
-- are wanted, to what the index is narrowed, and the session that watches ("": none).
-- -> the index, its rows, where to go on ("": nowhere), and what more is said of the object; gone
local changes = require('changes')
local claims = require('claims')
local indexes = require('indexes')
local numbers = require('numbers')
local session_items = require('session_items')
local steps = require('steps')
require('survey')
require('task_pages')

if numbers.is_due then
    return 'more'
end

local function shown(HOLDERS, holder, about)
    local its_token, since, weight, session = match(about, '^(%d+) (%d+) (%d+) (.*)$')
    local value = call('HGET', HOLDERS, '=' .. holder) or ''
    local process, age = session_items.process_of(session), math.max(0, numbers.now - since)
    return {process, holder, tonumber(its_token), tonumber(weight), value, age}
end

-- Those that hold and those that wait; the capacity, and the weight of the holders.
function indexes.by_name.holders(key)
    local HOLDERS, limit, rows, last, more = P .. key .. ':holders', tonumber(ARGV[6]), {}, '', false
    local waits, from = match(ARGV[5], '^([01]) (%d+)$')
    if ARGV[8] ~= '' then
        session_items.subscribe_once(ARGV[8], HOLDERS, 'watch')
    end
    local function add(holder, about, place)
        if #rows == limit then
            more = true
        else
            rows[#rows + 1], last = shown(HOLDERS, holder, about), place
        end
    end
    local function list(suffix, behind)
        local left = limit + 1 - #rows
        return call('ZRANGEBYSCORE', P .. key .. suffix, '(' .. (behind or 0), '+inf', 'WITHSCORES', 'LIMIT', 0, left)
    end
    local found = call('HMGET', HOLDERS, 'capacity', 'used', 'holder', 'meeting')
    local used = tonumber(found[2] or 0)
    if waits ~= '1' and found[3] then
        -- the only holder stands in no set
        local about = used > 0 and call('HGET', HOLDERS, '@' .. found[3])
        local its_token = about and match(about, '^%d+')
        if about and tonumber(its_token) > tonumber(from or 0) then
            add(found[3], about, '0 ' .. its_token)
        end
    elseif waits ~= '1' then
        local held = list(':held', from)
        for i = 1, #held, 2 do
            add(held[i], call('HGET', HOLDERS, '@' .. held[i]), '0 ' .. held[i + 1])
        end
    end
    local waiters = list(':waiting', waits == '1' and from)
    for i = 1, #waiters, 2 do
        add(waiters[i], call('GET', P .. key .. ':waiter:' .. waiters[i]), '1 ' .. waiters[i + 1])
    end
    return {'holders', rows, more and last or '', tonumber(found[1] or 0), used, found[4] or '0'}
end

function indexes.by_name.resources(pool)
    local rows, limit, after = {}, tonumber(ARGV[6]), ARGV[5] == '' and '-' or '(' .. ARGV[5]
    local names = call('ZRANGEBYLEX', P .. pool .. ':resources', after, '+', 'LIMIT', 0, limit + 1)
    for i = 1, math.min(#names, limit) do
        local item = claims.read_resource(pool, names[i])
        rows[i] = {
            names[i], item.metadata, item.preference,
            claims.is_full(item) and 'claimed' or item.retired and 'retired' or item.rests and 'resting' or 'free',
            item.session and session_items.process_of(item.session) or '', item.token or 0,
            item.rests and math.max(0, item.rest_until - numbers.now) or 0, item.retired or '', item.slots, item.claimed,
        }
    end
    return {'resources', rows, #names > limit and names[limit] or '', call('ZCARD', P .. pool .. ':claiming')}
end

-- Held off and held in seconds, the bookings of each limit, and when the last caller that waits is due; `rates.lua` has the
-- key.
function indexes.by_name.limiter(key)
    local stored, debts = call('GET', P .. key .. ':limiter'), {}
    local state = stored and cmsgpack.unpack(stored)
    if not state or state[1] <= numbers.now then
        state = {0, 0, 0, 0}
    end
    local held_until, held, last_due = state[2], state[3], state[4]
    local time = math.max(numbers.now, held_until) - held
    for place = 5, #state, 7 do
        if state[place + 1] > time then
            debts[#debts + 1] = {state[place], format('%.17g', (state[place + 1] - time) / 1e6 * state[place + 2])}
        end
    end
    local waits = last_due > time + 1 and last_due + held - numbers.now or 0
    return {'limiter', {{
        format('%.17g', math.max(0, held_until - numbers.now) / 1e6), format('%.17g', held / 1e6), debts,
        format('%.17g', waits / 1e6),
    }}, ''}
end

if ARGV[8] ~= '' and not session_items.process_of(ARGV[8]) then
    return 'gone'
end
local answer = indexes.by_name[ARGV[3]](ARGV[4])
changes.save_numbers()
return steps.is_unfinished and 'more' or answer
