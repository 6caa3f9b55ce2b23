local function detach(session, item)
    call('ZREM', P .. session .. ':items', item)
end
