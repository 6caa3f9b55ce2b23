local function take_from(session, thing)
    call('ZREM', P .. session .. ':things', thing)
end
