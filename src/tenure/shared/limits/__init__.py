"""The rate limiter: the spendings of a process on rates that the whole fleet shares."""
