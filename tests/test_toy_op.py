"""An op added from outside goes through every stage: one row in the op table is all."""

from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mirage_jax
from ugraph.ops import Op, register, unregister

X = np.linspace(-2, 2, 16 * 256, dtype=np.float32).reshape(16, 256)
W = np.cos(np.arange(256 * 128, dtype=np.float32)).reshape(256, 128)


def rooted(x: jax.Array, w: jax.Array) -> jax.Array:
    """Cube roots of a product over sums of squares."""
    return jnp.cbrt((x / jnp.sum(x * x, axis=-1, keepdims=True)) @ w)


@pytest.fixture
def cube_root() -> Iterator[None]:
    """A row for cube roots, which the table has not."""
    register(Op(name="cbrt", emit="jnp.cbrt({0})", cost=8.0, primitives=("cbrt",)))
    mirage_jax.clear_caches()
    yield
    unregister("cbrt")
    mirage_jax.clear_caches()


def test_an_unknown_op_stays_with_xla() -> None:
    config = mirage_jax.Config(target="h200")
    report = mirage_jax.explain(rooted, X, W, config=config)
    assert any("cbrt" in s.what for s in report.skipped)
    assert not any("cbrt" in r.winner for r in report.regions)


@pytest.mark.usefixtures("cube_root")
def test_a_row_in_the_op_table_is_all_it_takes() -> None:
    config = mirage_jax.Config(target="h200", strict=True)
    report = mirage_jax.explain(rooted, X, W, config=config)
    (region,) = report.regions
    assert not report.skipped
    assert region.status == "winner", region.reason
    assert "jnp.cbrt(" in region.pallas
    assert region.certificate["opaque"] == ["cbrt"]
    ours = mirage_jax.jit(rooted, config=mirage_jax.Config(strict=True))(X, W)
    np.testing.assert_allclose(ours, jax.jit(rooted)(X, W), rtol=1e-3, atol=1e-4)
