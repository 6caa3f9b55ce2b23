"""Known bugs of other libraries, found again by `tenure.testing`: `python -m benchmarks.bugs [names] [--runs N]`."""
