"""Tests of the JAX-facing package."""
