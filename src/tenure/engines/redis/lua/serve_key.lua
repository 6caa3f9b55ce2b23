-- Serves the line of a key after something else than the departure of a holder: it was cut short, or resized.
-- Reads: serve_line
local function serve_key(key)
    local found = call('HMGET', P .. key .. ':holders', 'capacity', 'used', 'waiting', 'fixed', 'watched')
    if found[1] then
        serve_line(key, {
            capacity = tonumber(found[1]), used = tonumber(found[2] or 0), waiting = tonumber(found[3] or 0),
            fixed = found[4], watched = found[5], may_be_large = true, gone = {},
        })
    end
end
