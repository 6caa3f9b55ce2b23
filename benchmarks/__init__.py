"""Measurements side by side with peers: `python -m benchmarks [names] [--quick] [--report DIR]`."""
