"""Run this first: two ops through every stage, in seconds."""

import jax
import jax.numpy as jnp
import numpy as np

import mirage_jax

X = np.linspace(-1, 1, 32 * 64, dtype=np.float32).reshape(32, 64)
W = np.cos(np.arange(64 * 128, dtype=np.float32)).reshape(64, 128)


def scaled(x: jax.Array, w: jax.Array) -> jax.Array:
    """A product, its rows over sums of squares."""
    return (x / jnp.sum(x * x, axis=-1, keepdims=True)) @ w


def test_a_function_goes_through_every_stage() -> None:
    config = mirage_jax.Config(target="h200", strict=True)
    report = mirage_jax.explain(scaled, X, W, config=config)
    (region,) = report.regions
    assert region.status == "winner", region.reason
    assert set(region.stage_s) >= {"lift", "search", "emit", "verify", "numerics"}
    assert "block graph" in region.winner
    assert "pl.pallas_call" in region.pallas
    assert region.certificate["bound"] <= config.failure_probability


def test_the_result_is_that_of_jax_jit() -> None:
    ours = mirage_jax.jit(scaled)(X, W)
    np.testing.assert_allclose(ours, jax.jit(scaled)(X, W), rtol=1e-4, atol=1e-6)
