"""The rate limiter: what a process spends on the rates of the whole fleet."""
