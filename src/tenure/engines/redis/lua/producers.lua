-- Putting tasks, and the line of those who find the queue full.

-- The requests' arguments stand one behind the other; `next_argument` reads them.
local position = 8

local function next_argument()
    position = position + 1
    return ARGV[position]
end

-- -> {producer, wait, cursor, cursor_value, {payload, priority, delay, key, expires}...}
local function read_request()
    local request = {
        producer = next_argument(), wait = next_argument() == '1', cursor = next_argument(), value = next_argument(),
    }
    for i = 1, tonumber(next_argument()) do
        request[i] = {
            payload = next_argument(), priority = tonumber(next_argument()), delay = tonumber(next_argument()),
            keyed = next_argument() == '1', key = next_argument(), expires = tonumber(next_argument()),
        }
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

-- -> accepted, {id, 0 or 1 if it is a duplicate}...
local function accept(name, queue, request)
    local before, ready = next_due(name, queue), 0
    local answer = {'accepted'}
    for i, new in ipairs(request) do
        local twin = new.keyed and twin_of(name, new.key)
        if twin then
            answer[i + 1] = {twin, 1}
        else
            local id = number('task')
            local task = {
                priority = new.priority, key = new.keyed and new.key or nil, ready_at = now + new.delay,
                expires = new.expires and now + new.expires, attempts = 0, deliveries = 0,
            }
            if task.key then
                call('HSET', ROWS, 'K:' .. both(name, task.key), id)
            end
            if task.expires then
                enter(expiry_of(name, id, task))
            end
            line_up(name, queue, id, task)
            enter('u:' .. with_id(name, id))
            save_task(name, id, task)
            call('HSET', ROWS, 'Y:' .. with_id(name, id), new.payload)
            queue.tasks, queue.put = queue.tasks + 1, queue.put + 1
            ready = ready + (task.delayed and 0 or 1)
            answer[i + 1] = {id, 0}
        end
    end
    if request.cursor ~= '' then
        local cursors = row('C:' .. name) or {}
        cursors[request.cursor] = request.value
        save('C:' .. name, cursors)
    end
    offer_tasks(name, queue, ready)
    offer_sooner(name, queue, before)
    return answer
end

local function put_request(name, queue, session, request)
    local thing = both(name, request.producer)
    local place = row('n:' .. thing)
    if place and place.reserved then
        leave(place.thing)
        delete('n:' .. thing)
        queue.reserved = queue.reserved - place.count
        local answer = accept(name, queue, request)
        admit(name, queue)
        return answer
    elseif not place then
        if #request == 0 or (queue.producers == 0 and room(queue) >= count_new(name, request)) then
            return accept(name, queue, request)
        elseif not request.wait or #request > queue.size then
            return 'refused'
        end
        queue.ordinal, queue.producers = queue.ordinal + 1, queue.producers + 1
        place = {
            process = session.process, count = #request, ordinal = queue.ordinal,
            thing = give(session.id, PRODUCER, thing),
        }
        save('n:' .. thing, place)
        enter('n:' .. both(name, digits(place.ordinal)) .. request.producer)
    end
    local prefix = 'n:' .. both(name, '')
    local head = tonumber(string.sub(first(prefix), #prefix + 1, #prefix + 16))
    return {'queued', place.ordinal - head + 1, ask_again_in()}
end

-- ARGV: session, n, queue, number of requests, size, then the requests (see `read_request`)
-- -> put, an answer for each: accepted, queued, refused; gone
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
    for i = 1, tonumber(ARGV[7]) do
        answer[i + 1] = put_request(name, queue, session, read_request())
    end
    save_queue(name, queue)
    forget_outdated()
    return remember(session, n, 'put ' .. name, answer)
end

-- ARGV: queue, producer -> left, released, unknown
operations.leave = function()
    local thing = both(ARGV[4], ARGV[5])
    local place = row('n:' .. thing)
    if not place then
        return 'unknown'
    end
    leave(place.thing)
    return drop_producer(nil, thing)
end
