"""A model checker for the scripts of Redis.

It tries all that three clients of the real scripts can do and suffer, in every order, in set time. A script is atomic,
so a run is a word of steps: the server applies what a client has sent, and the reply arrives or is lost (then it is
sent again), or the hints are lost; a client leaves, cancels, closes, or crashes (what it has sent may still be
applied, now or later); an undoing arrives a second time; time passes, and the session of one expires. Replies and
hints that arrive are taken in at once: to believe as early as possible is the worst that can happen. What is not in
the way of things is a fault, and a run has so many of them.

All words are tried, level by level, so that the one that is told is a shortest one. A world that was seen is not
visited again, and the scripts are asked once for what they make of a state.

`tests/engines/test_redis_interleavings.py` runs it.
"""
