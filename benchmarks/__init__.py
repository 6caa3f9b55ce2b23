"""Measurements side by side with peers: `python -m benchmarks [names] [--smoke] [--json FILE]`."""
