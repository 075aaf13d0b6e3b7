"""Benchmarks of the embedded stack: each measures counts and ratios in one run, since machines are noisy."""
