-- Nothing is done while something is due: the client sends `sweep`, and then the operation again. If `due` was too early,
-- the sweep finds nothing.

if state[1] and state[1] <= NOW then
    return 'more'
end
