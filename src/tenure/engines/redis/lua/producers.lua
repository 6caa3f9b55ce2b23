-- Putting tasks, and the line of those who find the queue full.

-- The requests' arguments stand one behind the other; `next_argument` reads them.
local position = 8

local function next_argument()
    position = position + 1
    return ARGV[position]
end

-- A task is its payload and "", or "+" and then the rest, if that is not all as usual.
-- -> {producer, wait, cursor, cursor_value, {payload, priority, delay, key, expires}...}
local function read_request()
    local request = {
        producer = next_argument(), wait = next_argument() == '1', cursor = next_argument(), value = next_argument(),
    }
    for i = 1, tonumber(next_argument()) do
        local task = {payload = next_argument(), delay = 0}
        if next_argument() == '+' then
            task.priority, task.delay = tonumber(next_argument()), tonumber(next_argument())
            task.keyed, task.key = next_argument() == '1', next_argument()
            task.expires = tonumber(next_argument())
        end
        request[i] = task
    end
    return request
end

local function twin_of(name, key)
    return tonumber(call('HGET', ROWS, 'K:' .. both(name, key)) or nil)
end

local function count_new(name, request)
    local seen, new = {}, 0
    for _, task in ipairs(request) do
        if not task.keyed then
            new = new + 1
        elseif not seen[task.key] and not twin_of(name, task.key) then
            seen[task.key] = true
            new = new + 1
        end
    end
    return new
end

local function put_task(name, queue, new)
    local id, short = digits(number('task')), #new.payload <= SHORT
    local task = {
        priority = new.priority ~= 0 and new.priority or nil, key = new.keyed and new.key or nil,
        ready_at = now + new.delay, expires = new.expires and now + new.expires,
        payload = short and new.payload or nil,
    }
    if task.key then
        -- at once: the next task may have the same
        call('HSET', ROWS, 'K:' .. both(name, task.key), id)
    end
    if task.expires then
        enter_soon(expiry_of(name, id, task))
    end
    local place, another = line_up(name, queue, id, task)
    enter_soon(place)
    if another then
        enter_soon(another)
    end
    enter_soon('u:' .. tag(name) .. id)
    set_soon('T:' .. tag(name) .. id, cmsgpack.pack(task))
    if not short then
        set_soon('Y:' .. tag(name) .. id, new.payload)
    end
    if queue.put == 0 then
        enter_soon('Q:' .. name)
    end
    queue.tasks, queue.put = queue.tasks + 1, queue.put + 1
    return task.delayed
end

-- Adds to the answer how many tasks there are, and for each its id, or {id} of the one whose duplicate it is.
local function accept(name, queue, request, answer)
    local before, ready, delayed = next_due(name, queue), 0, 0
    answer[#answer + 1] = #request
    for i, new in ipairs(request) do
        local twin = new.keyed and twin_of(name, new.key)
        if twin then
            answer[#answer + 1] = {twin}
        else
            if i % CAP == 0 then
                write()
            end
            if put_task(name, queue, new) then
                delayed = delayed + 1
            else
                ready = ready + 1
            end
            answer[#answer + 1] = last_number('task')
        end
    end
    if request.cursor ~= '' then
        local cursors = row('C:' .. name) or {}
        cursors[request.cursor] = request.value
        save('C:' .. name, cursors)
    end
    offer_tasks(name, queue, ready)
    if delayed > 0 then
        write() -- for what is due next to be seen
        offer_sooner(name, queue, before)
    end
end

-- Adds to the answer what `accept` does, 'refused', or {place in the line, ask again in}.
local function put_request(name, queue, session, request, answer)
    local place_name = both(name, request.producer)
    local place = queue.producers + queue.reserved > 0 and row('n:' .. place_name)
    if place and place.reserved then
        leave(place.thing)
        delete('n:' .. place_name)
        queue.reserved = queue.reserved - place.count
        accept(name, queue, request, answer)
        return admit(name, queue)
    elseif not place then
        if #request == 0 or (queue.producers == 0 and room(queue) >= count_new(name, request)) then
            return accept(name, queue, request, answer)
        elseif not request.wait or #request > queue.size then
            answer[#answer + 1] = 'refused'
            return
        end
        queue.ordinal, queue.producers = queue.ordinal + 1, queue.producers + 1
        place = {
            process = session.process, count = #request, ordinal = queue.ordinal,
            thing = give(session.id, PRODUCER, place_name),
        }
        save('n:' .. place_name, place)
        enter('n:' .. both(name, digits(place.ordinal)) .. request.producer)
    end
    local prefix = 'n:' .. both(name, '')
    local head = tonumber(string.sub(first(prefix), #prefix + 1, #prefix + 16))
    answer[#answer + 1] = {place.ordinal - head + 1, ask_again_in()}
end

-- ARGV: session, n, queue, number of requests, size, then the requests (see `read_request`)
-- -> put, the answers one behind the other (see `accept` and `put_request`); gone
operations.put = function()
    local session, n, name = session_of(ARGV[4]), tonumber(ARGV[5]), ARGV[6]
    if not session then
        return 'gone'
    end
    local known = repeated(session, n, 'put ' .. name)
    if known then
        return known
    end
    local queue = queue_of(name)
    queue.size = tonumber(ARGV[8])
    admit(name, queue)
    local answer = {'put'}
    for _ = 1, tonumber(ARGV[7]) do
        put_request(name, queue, session, read_request(), answer)
    end
    write()
    save_queue(name, queue)
    forget_outdated()
    return remember(session, n, 'put ' .. name, answer)
end

-- ARGV: queue, producer -> left, released, unknown
operations.leave = function()
    local place_name = both(ARGV[4], ARGV[5])
    local place = row('n:' .. place_name)
    if not place then
        return 'unknown'
    end
    leave(place.thing)
    return drop_producer(nil, place_name)
end
