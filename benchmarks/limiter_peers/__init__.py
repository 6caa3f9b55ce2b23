"""Rate limiters on Redis, ours and others', behind one interface; each runs in a process and an environment of its own.

`python -m benchmarks.limiter_peers.NAME SOCKET LOOP WORK COUNT` does one work and prints the result as JSON.
`python -m benchmarks limiters` makes the environments and runs them side by side.
"""
