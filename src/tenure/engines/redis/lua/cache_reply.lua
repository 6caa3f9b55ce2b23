-- Keeps the answer `known` to a numbered operation.
local packed = cmsgpack.pack(about_session[2], n, now + 2 * ttl, known)
if ARGV[1] == '' then
    call('SET', ANSWER, packed, 'PX', math.ceil(ttl / 500))
else
    call('SET', ANSWER, packed)
end
