-- Holds: weighted capacity with a line, the one algorithm under locks, semaphores, read-write locks and elections.
--
-- A row "l:" key -> the line {capacity, fixed, used, ordinal, held, waiting}; a row "h:" key, holder -> the hold
-- {session, process, weight, value, ordinal, since, token, thing}; members "g:" key, number, holder for those who hold,
-- in the order of their grants, and "q:" key, ordinal, holder for those who wait.

local function hold_name(key, holder)
    return 'h:' .. both(key, holder)
end

local function granted_place(key, hold, holder)
    return 'g:' .. both(key, digits(hold.ordinal)) .. holder
end

local function waiting_place(key, hold, holder)
    return 'q:' .. both(key, digits(hold.ordinal)) .. holder
end

local function holds_changed(key)
    fire('hold' .. key, key, '', 'changed')
end

local function save_line(key, line)
    if line.held == 0 and line.waiting == 0 and not line.fixed then
        delete('l:' .. key)
    else
        save('l:' .. key, line)
    end
end

-- The holder of the first place in the line, and its ordinal.
local function head_of(key)
    local prefix = 'q:' .. both(key, '')
    local member = first(prefix)
    return string.sub(member, #prefix + 17), tonumber(string.sub(member, #prefix + 1, #prefix + 16))
end

local function stand(key, holder)
    local hold = row(hold_name(key, holder))
    if not hold then
        return 'unknown'
    elseif hold.token > 0 then
        return {'granted', hold.token}
    end
    local _, ordinal = head_of(key)
    return {'queued', hold.ordinal - ordinal + 1, ask_again_in()}
end

-- The hold gets the token; its ordinal is from now on the number of its grant.
local function grant(key, line, hold, holder)
    hold.token, hold.since, hold.ordinal = new_token(), now, number('id')
    line.used, line.held = line.used + hold.weight, line.held + 1
    enter(granted_place(key, hold, holder))
    save(hold_name(key, holder), hold)
    holds_changed(key)
end

-- Grant to the head of the line for as long as it fits; keep the line.
local function serve(key, line)
    while line.waiting > 0 do
        local holder = head_of(key)
        local hold = row(hold_name(key, holder))
        local too_big = hold.weight > line.capacity
        if not too_big and line.used + hold.weight > line.capacity then
            break
        end
        if not step() then
            enter(due(0, 'l', key))
            break
        end
        leave(waiting_place(key, hold, holder))
        line.waiting = line.waiting - 1
        if too_big then
            leave(hold.thing)
            delete(hold_name(key, holder))
            hint(hold.process, key, holder, 'ask')
        else
            grant(key, line, hold, holder)
            hint(hold.process, key, holder, 'granted', string.format('%.0f', hold.token))
        end
    end
    save_line(key, line)
end

local function remove(key, holder)
    local line, hold = row('l:' .. key), row(hold_name(key, holder))
    if not hold then
        return 'unknown'
    end
    leave(hold.thing)
    delete(hold_name(key, holder))
    if hold.token > 0 then
        leave(granted_place(key, hold, holder))
        line.used, line.held = line.used - hold.weight, line.held - 1
        holds_changed(key)
    else
        leave(waiting_place(key, hold, holder))
        line.waiting = line.waiting - 1
    end
    serve(key, line)
    return hold.token > 0 and 'released' or 'left'
end

-- The session that held or waited has ended.
local function drop_hold(_, name)
    remove(parts(name))
end

-- The serving of a line was cut short.
local function go_on_serving(key)
    local line = row('l:' .. key)
    if line then
        serve(key, line)
    end
end

-- ARGV: session, key, holder, capacity, weight, value, wait -> granted, queued, refused, mismatch, gone
local function acquire()
    local key, holder, capacity, weight = ARGV[5], ARGV[6], tonumber(ARGV[7]), tonumber(ARGV[8])
    local session = session_of(ARGV[4])
    if not session then
        return 'gone'
    end
    local line = row('l:' .. key)
    if line then
        local known = stand(key, holder)
        if known ~= 'unknown' then
            return known
        end
    else
        line = {capacity = capacity, fixed = false, used = 0, ordinal = 0, held = 0, waiting = 0}
    end
    if line.capacity ~= capacity then
        return {'mismatch', line.capacity}
    end
    local fits = line.waiting == 0 and line.used + weight <= capacity
    if not fits and ARGV[10] == '0' then
        save_line(key, line)
        return 'refused'
    end
    line.ordinal = line.ordinal + 1
    local hold = {
        session = session.name, process = session.process, weight = weight, value = ARGV[9],
        ordinal = line.ordinal, since = now, token = 0, thing = give(session.id, HOLD, both(key, holder)),
    }
    if fits then
        grant(key, line, hold, holder)
        save_line(key, line)
        return {'granted', hold.token}
    end
    line.waiting = line.waiting + 1
    enter(waiting_place(key, hold, holder))
    save(hold_name(key, holder), hold)
    save_line(key, line)
    return stand(key, holder)
end

-- ARGV: session, key, holder, ... -> asked, gone
local function ask()
    if not session_of(ARGV[4]) then
        return 'gone'
    end
    local answer = {'asked'}
    for i = 6, #ARGV do
        answer[#answer + 1] = stand(ARGV[5], ARGV[i])
    end
    return answer
end

-- ARGV: key, holder -> released, left, unknown
local function release()
    return remove(ARGV[4], ARGV[5])
end

-- ARGV: key, holder, token, value -> ok, refused
local function set_value()
    local name = hold_name(ARGV[4], ARGV[5])
    local hold = row(name)
    if not hold or hold.token == 0 or hold.token ~= tonumber(ARGV[6]) then
        return 'refused'
    end
    hold.value = ARGV[7]
    save(name, hold)
    holds_changed(ARGV[4])
    return 'ok'
end

-- ARGV: key, capacity -> ok
local function resize()
    local key, capacity = ARGV[4], tonumber(ARGV[5])
    local line = row('l:' .. key) or {used = 0, ordinal = 0, held = 0, waiting = 0}
    line.capacity, line.fixed = capacity, true
    serve(key, line)
    return 'ok'
end

local function shown(key, letter, limit)
    local prefix = letter .. both(key, '')
    local holders = {}
    for i, member in ipairs(under(prefix, limit)) do
        local holder = string.sub(member, #prefix + 17)
        local hold = row(hold_name(key, holder))
        holders[i] = {hold.process, holder, hold.token, hold.weight, hold.value, ago(hold.since)}
    end
    return holders
end

-- ARGV: key, limit, session that watches ("": none) -> holdings, gone
local function holders()
    local key, limit = ARGV[4], tonumber(ARGV[5])
    if ARGV[6] ~= '' then
        local session = session_of(ARGV[6])
        if not session then
            return 'gone'
        end
        watch(session, 'hold' .. key)
    end
    local line = row('l:' .. key)
    if not line then
        return {'holdings', 0, 0, {}, {}}
    end
    return {'holdings', line.capacity, line.used, shown(key, 'g:', limit), shown(key, 'q:', limit)}
end

local operations = {
    acquire = acquire, ask = ask, release = release, set_value = set_value, resize = resize, holders = holders,
}
