"""Stages have all that those of `jax.jit` have, and the μGraphs besides."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mirage_jax
from mirage_jax import Config, config

X, W = jnp.linspace(-1, 1, 24).reshape(4, 6), jnp.linspace(0, 1, 30).reshape(6, 5)


def gated(x, w):
    return jax.nn.silu(x @ w) @ w.T


F = jax.jit(gated)


def public(stage):
    return {n for n in dir(stage) if not n.startswith("_")}


def test_each_stage_has_what_jaxs_has(winners):
    mine, theirs = mirage_jax.jit(gated), F
    for step in ("trace", "lower", "compile"):
        arguments = (X, W) if step == "trace" else ()
        mine = getattr(mine, step)(*arguments)
        theirs = getattr(theirs, step)(*arguments)
        assert all(hasattr(mine, n) for n in public(theirs) if hasattr(theirs, n))
        assert type(mine).__name__ == type(theirs).__name__


def test_tracing_searches_nothing(winners):
    f = mirage_jax.jit(gated)
    traced = f.trace(jax.ShapeDtypeStruct((4, 6), jnp.float32), W)
    assert str(traced.jaxpr) == str(F.trace(X, W).jaxpr)
    (region,) = traced.regions
    assert region.in_avals[0].shape == (4, 6)
    assert traced.out_info.shape == f.eval_shape(X, W).shape == (4, 6)
    lowered = traced.lower()
    assert "dot_general" in lowered.as_text("jaxpr")
    assert "sum[" in lowered.as_text("ugraph")
    assert "in0: f32[4, 6]" in lowered.as_text(dialect="ugraph")
    assert not winners.regions


def test_lowering_and_compiling_search(winners):
    lowered = mirage_jax.jit(gated).lower(X, W)
    assert not winners.regions
    assert "stablehlo" in lowered.as_text()
    assert len(winners.regions) == 1
    compiled = lowered.compile()
    np.testing.assert_allclose(compiled(X, W), gated(X, W), rtol=1e-5)
    assert compiled.as_text() == compiled.as_text("hlo")
    assert "HloModule" in compiled.as_text()
    assert compiled.as_text("ugraph").startswith("a plan for")
    assert compiled.as_text("pallas").startswith("# kernels for")
    with pytest.raises(ValueError, match="'hlo', 'ugraph' or 'pallas'"):
        compiled.as_text("ptx")
    report = compiled.report()
    assert (report.name, report.replaced) == ("gated", 1)
    assert len(winners.regions) == 1
    with pytest.raises(TypeError, match="compiled"):
        compiled(W, X)


def test_options_of_stages_are_passed_on(winners):
    lowered = mirage_jax.jit(gated).trace(X, W).lower(lowering_platforms=("cuda",))
    assert "stablehlo" in lowered.as_text(debug_info=True)
    compiled = (
        mirage_jax.jit(gated).lower(X, W).compile({"xla_cpu_enable_fast_math": False})
    )
    np.testing.assert_allclose(compiled(X, W), gated(X, W), rtol=1e-5)


def test_static_arguments(winners):
    f = mirage_jax.jit(lambda x, n: n * (x @ x.T), static_argnums=1)
    compiled = f.lower(X, 3).compile()
    np.testing.assert_allclose(compiled(X), 3 * (X @ X.T), rtol=1e-5)


def test_settings_are_those_of_the_trace(winners):
    f = mirage_jax.jit(gated, config=Config(seed=1))
    with config.use(Config(seed=2)):
        traced = f.trace(X, W)
    traced.lower().compile().report()
    assert {c.seed for c in winners.configs} == {2}


def test_a_region_that_is_not_lifted_says_so(winners, monkeypatch):
    lowered = mirage_jax.jit(gated).lower(X, W)
    assert lowered.traced.regions

    def fail(jaxpr):
        raise ZeroDivisionError("bug")

    monkeypatch.setattr("mirage_jax.stages.lift.lift", fail)
    assert "not lifted: ZeroDivisionError: bug" in lowered.as_text("ugraph")


def test_programs_that_are_left_alone_have_no_regions(winners):
    with jax.enable_x64(True):
        x = jnp.ones((2, 2), jnp.float64)
    traced = mirage_jax.jit(lambda x: x @ x).trace(X[:, :4])
    assert traced.regions
    assert traced.regions is traced.regions
    assert x.dtype == jnp.float64


def test_missing_attributes_are_errors_and_search_nothing(winners):
    traced = mirage_jax.jit(gated).trace(X, W)
    for stage in (traced, traced.lower()):
        with pytest.raises(AttributeError, match="no_such"):
            _ = stage.no_such
    assert not winners.regions
