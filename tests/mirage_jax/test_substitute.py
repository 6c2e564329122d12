"""Programs with regions replaced compute what they did, whatever was replaced."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mirage_jax import _compat
from mirage_jax.config import Config
from mirage_jax.report import Outcome
from mirage_jax.substitute import optimize_jaxpr
from mirage_jax.trace import evaluate
from tests.mirage_jax.test_sites import BODIES, layer

X, W = jnp.linspace(-1, 1, 24).reshape(4, 6), jnp.linspace(0, 1, 36).reshape(6, 6)


def run(f, *args):
    """Asserts that the substituted program is right; what became of it."""
    jaxpr = jax.make_jaxpr(f)(*args)
    result = optimize_jaxpr(jaxpr, Config(strict=True))
    mine = evaluate(result.jaxpr, jax.tree.leaves(args))
    theirs = map(jnp.asarray, jax.tree.leaves(f(*args)))
    for a, b in zip(mine, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-5)
        assert a.dtype == b.dtype
    return jaxpr, result


def names(jaxpr):
    return [e.primitive.name for e in _compat.opened(jaxpr).eqns]


def test_one_region(winners):
    _, result = run(lambda x: layer(x), X)
    assert names(result.jaxpr) == ["mirage_region"]
    assert [r.status for r in result.reports] == ["winner"]


def test_nothing_won_is_the_very_same_program(monkeypatch):
    monkeypatch.setattr(
        "mirage_jax.outcomes.pipeline.optimize_region",
        lambda region, config: Outcome(region.key),
    )
    for f in (layer, BODIES["/scan"]):
        jaxpr, result = run(f, X)
        assert result.jaxpr is jaxpr
        assert result.reports


@pytest.mark.parametrize("path", BODIES)
def test_bodies(winners, path):
    jaxpr, result = run(BODIES[path], X)
    assert str(result.jaxpr).count("mirage_region") >= 1
    assert result.jaxpr is not jaxpr
    assert _compat.opened(result.jaxpr).invars == _compat.opened(jaxpr).invars


def test_regions_around_what_is_refused(winners):
    def f(x):
        y = x @ W
        z = jnp.sort(y, axis=0)
        return (z + y) @ W, y.sum(), jnp.cumsum(z @ W, axis=0)

    _, result = run(f, X)
    assert names(result.jaxpr).count("mirage_region") == len(result.reports)
    assert "sort" in str(result.jaxpr)
    assert "cumsum" in str(result.jaxpr)


def test_equal_regions_are_optimized_once(winners):
    def f(x, ws):
        for w in ws:
            x = jnp.sort(jax.nn.silu(x @ w) @ w.T, axis=0)
        return x

    _, result = run(f, X, [W, W * 2, W * 3])
    assert len(winners.regions) == 1
    assert len(result.reports) == 3
    assert [r.index for r in result.reports] == [0, 1, 2]
    assert len({id(o) for o in result.outcomes}) == 1


def test_effects_keep_their_order(winners):
    said = []

    def f(x):
        jax.debug.callback(
            lambda v: said.append(("a", float(v))), x[0, 0], ordered=True
        )
        y = x @ W
        jax.debug.callback(
            lambda v: said.append(("b", float(v))), y[0, 0], ordered=True
        )
        z = (y @ W).sum()
        jax.debug.callback(lambda v: said.append(("c", float(v))), z, ordered=True)
        return z

    jaxpr = jax.make_jaxpr(f)(X)
    result = optimize_jaxpr(jaxpr, Config(strict=True))
    assert "mirage_region" in names(result.jaxpr)
    evaluate(result.jaxpr, [X])
    jax.effects_barrier()
    assert [name for name, _ in said] == ["a", "b", "c"]


def test_calls_of_which_nothing_was_replaced_are_put_back(winners):
    @jax.jit
    def untouched(x):
        return jnp.sort(x, axis=0) + 1

    @jax.jit
    def half(x, w):
        return jnp.sort(x @ w, axis=0)

    _, result = run(lambda x, w: untouched(half(x, w)), X, W)
    called = [e.params.get("name") for e in _compat.opened(result.jaxpr).eqns]
    assert called == [None, "sort", "untouched"]
    assert "mirage_region" in names(result.jaxpr)


def test_calls_that_close_over_arrays_are_optimized_inside(winners):
    table = jnp.linspace(0, 1, 36).reshape(6, 6)
    half = jax.jit(lambda x: jnp.sort(x @ table, axis=0))
    _, result = run(lambda x: half(x) + 1, X)
    assert str(result.jaxpr).count("mirage_region") == 1


def test_a_call_is_not_put_back_where_an_argument_is_gone(winners):
    """Arguments that only dead code of the call reads are not computed any more."""

    @jax.jit
    def second(x, y):
        return jnp.sort(x, axis=0), y * 2

    def f(x):
        y = jnp.tanh(x @ W)
        return second(x, y)[0], y.sum()

    _, result = run(f, X)
    assert "mirage_region" in names(result.jaxpr)


def test_results_that_are_inputs_literals_or_repeated(winners):
    def f(x, y):
        z = x @ W
        return x, z, z, 3.0, y, (z * 2).sum()

    _, result = run(f, X, jnp.arange(3))
    assert "mirage_region" in names(result.jaxpr)


def test_constants_stay_bound(winners):
    table = jnp.linspace(0, 1, 36).reshape(6, 6)
    _, result = run(lambda x: jnp.sort(x @ table, axis=0) @ table, X)
    assert len(_compat.constants(result.jaxpr)) == 1


def test_gradients_of_what_was_substituted(winners):
    def f(x):
        return jnp.sort(layer(x), axis=0).sum()

    jaxpr = jax.make_jaxpr(f)(X)
    result = optimize_jaxpr(jaxpr, Config(strict=True))
    mine = jax.grad(lambda x: evaluate(result.jaxpr, [x])[0])(X)
    np.testing.assert_allclose(mine, jax.grad(f)(X), rtol=1e-4)


STEPS = (
    lambda x, y: x @ y / 6,
    lambda x, y: jnp.tanh(x) + y,
    lambda x, y: x - y.max(0, keepdims=True),
    lambda x, y: jnp.sort(x, axis=0) * y,
    lambda x, y: jnp.where(x > 0, x, y.T),
    jax.jit(lambda x, y: jax.nn.softmax(x @ y, axis=-1)),
    jax.jit(lambda x, y: jnp.sort(y, axis=1) + 0 * x),
    lambda x, y: jax.lax.scan(lambda c, r: (c + r @ y, c), x[0], x)[1],
    lambda x, y: jax.lax.cond(x[0, 0] > 0, lambda: x @ y, lambda: y),
)


@pytest.mark.parametrize("seed", range(8))
def test_random_programs(winners, seed):
    random = np.random.default_rng(seed)
    steps, picks = random.integers(0, len(STEPS), 10), random.integers(0, 99, (10, 2))

    def f(*arrays):
        values = list(arrays)
        for step, (i, j) in zip(steps, picks, strict=True):
            x, y = values[i % len(values)], values[j % len(values)]
            values.append(STEPS[step](x, y))
        return values[-1], values[-4], values[-2].sum()

    _, result = run(f, W, W.T - 0.5)
    assert result.reports or result.skipped
