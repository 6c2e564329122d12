"""Benchmarks as absl binaries: `python -m mirage_jax.benchmarks.kernels --help`."""
