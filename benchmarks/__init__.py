"""The speed that the project promises, measured side by side in one run: `python -m benchmarks`, or `make bench`."""
