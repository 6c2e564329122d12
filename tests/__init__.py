"""Tests of Mirage for JAX."""
