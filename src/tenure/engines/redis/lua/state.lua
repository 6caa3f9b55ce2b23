-- What all scripts share: rows, the order, sessions, hints, watches, numbered answers and the step budget.

-- rows

local function row(name)
    local packed = call('HGET', ROWS, name)
    return packed and cmsgpack.unpack(packed)
end

local function save(name, value)
    call('HSET', ROWS, name, cmsgpack.pack(value))
end

local function delete(...)
    call('HDEL', ROWS, ...)
end

-- the order: numbers have 16 digits, so that bytes sort as numbers do

local format = string.format
local now_in_digits = format('%016d', now)

local function digits(number)
    return number == now and now_in_digits or format('%016d', number)
end

local function enter(member, another)
    if another then
        call('ZADD', ORDER, '0', member, '0', another)
    else
        call('ZADD', ORDER, '0', member)
    end
end

local function leave(...)
    call('ZREM', ORDER, ...)
end

-- The first members with this prefix, at most `limit`; no name has a byte 255, since names are UTF-8.
local function under(prefix, limit)
    return call('ZRANGEBYLEX', ORDER, '[' .. prefix, '(' .. prefix .. '\255', 'LIMIT', 0, limit)
end

-- Visit what follows the prefix in each member above `after`, in order, until `visit` says true.
local function walk(prefix, after, visit)
    after = prefix .. after
    repeat
        local some = call('ZRANGEBYLEX', ORDER, '(' .. after, '(' .. prefix .. '\255', 'LIMIT', 0, 64)
        for _, member in ipairs(some) do
            after = member
            if visit(string.sub(member, #prefix + 1)) then
                return
            end
        end
    until #some < 64
end

local function first(prefix)
    return under(prefix, 1)[1]
end

-- Two names as one, and the two again.
local function both(one, other)
    return #one .. ':' .. one .. other
end

local function parts(text)
    local size, from = string.match(text, '^(%d+):()')
    return string.sub(text, from, from + size - 1), string.sub(text, from + size)
end

-- numbers, each higher than the last of its name; written back once, by `keep_numbers`, after `at_the_end` was done

local numbers, numbers_read = {}, {}

local function last_number(name)
    local last = numbers[name] or numbers_read[name]
    if not last then
        -- tonumber() and "%d", because Lua's own conversion rounds to 14 digits
        last = tonumber(call('HGET', ROWS, '#' .. name) or 0)
        numbers_read[name] = last
    end
    return last
end

local function number(name)
    numbers[name] = last_number(name) + 1
    return numbers[name]
end

local function new_token()
    numbers.token = math.max(last_number('token') + 1, now)
    return numbers.token
end

local at_the_end = {} -- functions

local function keep_numbers()
    for _, act in ipairs(at_the_end) do
        act()
    end
    local fields = {}
    for name, last in pairs(numbers) do
        fields[#fields + 1] = '#' .. name
        fields[#fields + 1] = format('%d', last)
    end
    if #fields > 0 then
        call('HSET', ROWS, unpack(fields))
    end
end

-- time

local soonest -- when the first session expires

local function look_for_the_soonest()
    local member = first('E:')
    soonest = member and tonumber(string.sub(member, 3, 18))
end

-- Microseconds until the earliest moment at which asking again could help, -1 for never.
local function ask_again_in(due)
    local earliest = math.min(soonest or math.huge, due or math.huge)
    return earliest == math.huge and -1 or math.max(0, earliest - now)
end

local function ago(time)
    return math.max(0, now - time)
end

-- A member under "D:" asks for clearing up at a time: "D:" time, a letter for the kind, its name.
local function due(time, kind, name)
    return 'D:' .. digits(time) .. kind .. name
end

local function something_is_due()
    -- mostly nothing lies before the first session
    local member = call('ZRANGEBYLEX', ORDER, '[D:', '(E;', 'LIMIT', 0, 1)[1]
    local time = member and tonumber(string.sub(member, 3, 18))
    if member and string.sub(member, 1, 1) == 'E' then
        soonest = time
    else
        look_for_the_soonest()
    end
    return (time and time <= now) or (soonest and soonest <= now)
end

-- the step budget

local CAP = tonumber(ARGV[2])
local steps_left = CAP
local unfinished = false

local function step()
    if steps_left > 0 then
        steps_left = steps_left - 1
        return true
    end
    unfinished = true
    return false
end

-- hints: on a cluster, whose tags begin with 1, they need not go to all of its nodes, from 7.0 on

local sharded = redis.REDIS_VERSION_NUM and ROWS ~= 'tenure:{0}:rows'

local function hint(process, key, name, ...)
    local text = cjson.encode({key, name, ...})
    if sharded then
        call('SPUBLISH', string.sub(ROWS, 1, -5) .. process, text)
    else
        call('PUBLISH', 'tenure:' .. process, text)
    end
end

-- sessions; `id` is a number that is never used again, digits

local function session_of(name)
    return row('s:' .. name)
end

-- The families of things, in the order in which an ending session gives them up.
local HOLD, CLAIM, ARRIVAL, PRODUCER, TASK, TAKER, WATCH, ANSWER = 0, 1, 2, 3, 4, 5, 6, 7

-- Note that a session has something, in the order in which it came; gives the member that `leave` takes back.
local function give(session_id, family, name)
    local member = 't:' .. session_id .. ':' .. family .. digits(number('id')) .. name
    enter(member)
    return member
end

-- watches: one-shot requests to be hinted, by topic

-- A row "w:" topic, session -> {process, thing, member}, a member "w:" topic, number, session. How many there are is
-- counted by the kind of the topic, its first four letters: what nobody watches shall cost nothing.

local function watches(topic)
    return 'watches ' .. string.sub(topic, 1, 4)
end

local function watch(session, topic)
    local name = both(topic, session.name)
    if not row('w:' .. name) then
        local member = 'w:' .. both(topic, digits(number('id'))) .. session.name
        number(watches(topic))
        enter(member)
        save('w:' .. name, {process = session.process, thing = give(session.id, WATCH, name), member = member})
    end
end

local function unwatch(name)
    local known = row('w:' .. name)
    leave(known.member)
    delete('w:' .. name)
    numbers[watches(parts(name))] = last_number(watches(parts(name))) - 1
    return known
end

local function fire(topic, key, name, notice)
    if last_number(watches(topic)) == 0 then
        return
    end
    walk('w:' .. both(topic, ''), '', function(place)
        local known = unwatch(both(topic, string.sub(place, 17)))
        leave(known.thing)
        hint(known.process, key, name, notice)
    end)
end

-- numbered answers

local function repeated(session, n, name)
    local known = row('a:' .. session.id .. ':' .. name)
    return known and known[1] == n and known[2]
end

local function remember(session, n, name, answer)
    local key = 'a:' .. session.id .. ':' .. name
    if call('HEXISTS', ROWS, key) == 0 then
        enter('t:' .. session.id .. ':' .. ANSWER .. digits(0) .. name)
    end
    save(key, {n, answer})
    return answer
end
