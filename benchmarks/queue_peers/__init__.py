"""Work queues on Redis, ours and others', behind one interface; each runs in a process and an environment of its own.

`python -m benchmarks.queue_peers.NAME SOCKET LOOP WORK COUNT` does one work and prints what came out as JSON.
`python -m benchmarks redis_queue` makes the environments and runs them side by side.
"""
