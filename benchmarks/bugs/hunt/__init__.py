"""Scenarios that show no bug in current releases of packages with many users: `python -m benchmarks.bugs hunt`."""
