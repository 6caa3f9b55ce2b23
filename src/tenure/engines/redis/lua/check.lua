-- Nothing is done while something is due: the client sends `sweep`, and then the operation again. If `due` was too early,
-- the sweep finds nothing.
-- Reads: shard

if shard[1] and shard[1] <= NOW then
    return 'more'
end
