"""Tests of pallas_codegen."""
