-- The orders of the tasks of a queue, as they are listed and moved.
local endings = require('endings')
local numbers = require('numbers')
local order = require('order')
local takers = require('takers')

local task_lists = {}

task_lists.MOST = 1024 -- how many records are read for a page, those that have expired included

-- The id of a task as its key has it: 14 hexadecimal digits, which take less memory than 16 decimal ones.
function task_lists.digits(number)
    return format('%014x', number)
end

-- Visit the ids in the list of a state above a seq, in order, until `visit` says true -> the last seq, if there may be more
function task_lists.walk_endings(queue, state, after, visit)
    local list, checked = queue.key .. ':' .. state, 0
    for _, number in ipairs(call('ZRANGEBYSCORE', list, math.floor((after + 1) / endings.PART), '+inf')) do
        local part = list .. ':' .. number
        repeat
            local some = call('ZRANGEBYSCORE', part, format('(%d', after), '+inf', 'WITHSCORES', 'LIMIT', 0, 64)
            for i = 1, #some, 2 do
                after, checked = tonumber(some[i + 1]), checked + 1
                if visit(some[i], after) or checked == task_lists.MOST then
                    return after
                end
            end
        until #some < 128
    end
end

function task_lists.place_of(key, score, member)
    local place = call('ZRANK', key, member)
    if place and tonumber(call('ZSCORE', key, member)) == tonumber(score) then
        return place + 1
    elseif place then
        return place
    end
    call('ZADD', key, score, member)
    place = call('ZRANK', key, member)
    call('ZREM', key, member)
    return place
end

function task_lists.page_from(key, start, limit)
    return call('ZRANGE', key, start, start + limit - 1, 'WITHSCORES')
end

-- Whether a task stands behind another in the order, which is the group, priority (negated), since when, and id. The
-- names of groups are compared by their bytes: `<` follows the locale of the server.
local function is_behind(one, other)
    local its, others = one[4], other[4]
    for i = 1, its == others and 0 or math.min(#its, #others) do
        local a, b = string.byte(its, i), string.byte(others, i)
        if a ~= b then
            return a > b
        end
    end
    for i = 1, 3 do
        local a, b = i == 1 and #its or one[i - 1], i == 1 and #others or other[i - 1]
        if a ~= b then
            return a > b
        end
    end
    return one[3] > other[3]
end

-- The first tasks that wait behind a place in the order, {priority, since, id, group} -> some of them, in order; nil
-- while too many delayed ones are due and not yet ready
function task_lists.waiting(queue, place, limit)
    local due_ids = call('ZRANGEBYSCORE', queue.key .. ':delayed', '-inf', numbers.now, 'WITHSCORES', 'LIMIT', 0, 257)
    if #due_ids == 514 then
        order.promote(queue, 256)
        takers.offer_tasks(queue, takers.newly_takeable)
        takers.newly_takeable = 0
        return
    end
    local found = {}
    local function add_task(priority, since, task_id, group)
        local one = {priority, since, task_id, group}
        if not place or is_behind(one, place) then
            found[#found + 1] = one
        end
    end
    for i = 1, #due_ids, 2 do
        local fields = call('HMGET', queue.key .. ':' .. due_ids[i], 'priority', 'group')
        add_task(-tonumber(fields[1] or 0), tonumber(due_ids[i + 1]), due_ids[i], fields[2] or '')
    end
    local priority, since, task_id = unpack(place or {})
    local in_plain = not place or place[4] == ''
    if in_plain and queue.ranked > 0 then
        local start = place and task_lists.place_of(queue.key .. ':ranked', priority, format('%016d', since) .. task_id) or 0
        local some = task_lists.page_from(queue.key .. ':ranked', start, limit)
        for i = 1, #some, 2 do
            add_task(tonumber(some[i + 1]), tonumber(sub(some[i], 1, 16)), sub(some[i], 17), '')
        end
    end
    if in_plain and (not place or priority <= 0) then
        local start = priority == 0 and task_lists.place_of(queue.key .. ':ready', since, task_id) or 0
        local some = task_lists.page_from(queue.key .. ':ready', start, limit)
        for i = 1, #some, 2 do
            add_task(0, tonumber(some[i + 1]), some[i], '')
        end
    end
    if queue.grouped > 0 then
        local groups = require('groups')
        local from = '-'
        if not in_plain then
            local its_place = groups.rank_of(-priority) .. format('%016d', since) .. task_id
            from = '(' .. groups.prefix_of(place[4]) .. its_place
        end
        for _, member in ipairs(call('ZRANGEBYLEX', queue.key .. ':turns', from, '+', 'LIMIT', 0, limit)) do
            local group, rest = groups.split_member(member)
            add_task(-groups.priority_of(sub(rest, 1, 16)), tonumber(sub(rest, 17, 32)), sub(rest, 33), group)
        end
    end
    table.sort(found, function(one, other) return is_behind(other, one) end)
    for i = #found, limit + 1, -1 do
        found[i] = nil
    end
    return found
end

return task_lists
