"""Tests of ugraph."""
