"""The primitive is the winner where it may be, and the original everywhere else."""

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest

from mirage_jax import MirageWarning, outcomes
from mirage_jax.config import Config
from mirage_jax.primitive import original, region_p
from mirage_jax.region import Region
from mirage_jax.report import Outcome

X, W = jnp.linspace(-1, 2, 24).reshape(4, 6), jnp.linspace(0, 1, 30).reshape(6, 5)


def function(x, w):
    return jax.nn.relu(x @ w), (x * 2).sum()


JAXPR = jax.make_jaxpr(function)(X, W)


def bound(outcome, jaxpr=JAXPR):
    return lambda *args: region_p.bind(*args, jaxpr=jaxpr, outcome=outcome)


def off_by_one(platform="cpu", again=None):
    """An outcome whose results tell that they are not the original's."""

    def call(x, w):
        return [r + 1 for r in function(x, w)]

    return Outcome("key", platform, call, again=again)


KEPT = Outcome("key")


def assert_is(results, off):
    for mine, theirs in zip(results, function(X, W), strict=True):
        np.testing.assert_allclose(mine, theirs + off, rtol=1e-6)


def test_alone_and_jitted():
    assert_is(bound(KEPT)(X, W), 0)
    assert_is(bound(off_by_one())(X, W), 1)
    assert_is(jax.jit(bound(off_by_one()))(X, W), 1)
    assert_is(original(JAXPR)(X, W), 0)


def test_other_platforms_run_the_original():
    assert_is(bound(off_by_one("cuda"))(X, W), 0)
    exported = jax.export.export(
        jax.jit(bound(off_by_one("cuda"))), platforms=("cpu", "cuda")
    )(X, W)
    assert_is(exported.call(X, W), 0)
    only = jax.export.export(jax.jit(bound(off_by_one())), platforms=("cpu",))(X, W)
    assert_is(only.call(X, W), 1)


def test_a_winner_that_does_not_lower_costs_a_warning():
    def broken(x, w):
        raise NotImplementedError("no such instruction")

    outcome = Outcome("key", "cpu", broken)
    with pytest.warns(MirageWarning, match="does not lower.*no such instruction"):
        results = jax.jit(bound(outcome))(X, W)
    assert_is(results, 0)


def test_values_are_the_winners_and_slopes_the_originals():
    f = bound(off_by_one())
    direction = jnp.ones_like(X)
    values, slopes = jax.jvp(lambda x: f(x, W), (X,), (direction,))
    _, theirs = jax.jvp(lambda x: function(x, W), (X,), (direction,))
    assert_is(values, 1)
    for a, b in zip(slopes, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)
    g = jax.grad(lambda x, w: f(x, w)[0].sum(), (0, 1))(X, W)
    h = jax.grad(lambda x, w: function(x, w)[0].sum(), (0, 1))(X, W)
    for a, b in zip(g, h, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_custom_derivative_rules_inside_are_kept():
    @jax.custom_jvp
    def odd(x):
        return (x * x).sum(-1)

    odd.defjvp(lambda p, t: (odd(*p), 7 * t[0].sum(-1)))
    jaxpr = jax.make_jaxpr(odd)(X)
    slope = jax.grad(lambda x: bound(KEPT, jaxpr)(x)[0].sum())(X)
    np.testing.assert_array_equal(slope, np.full(X.shape, 7.0))


def test_booleans_have_no_slopes():
    keep = X > 0
    jaxpr = jax.make_jaxpr(lambda m, x: (jnp.where(m, x, 0).sum(), m))(keep, X)
    value, slope = jax.value_and_grad(lambda x: bound(KEPT, jaxpr)(keep, x)[0])(X)
    np.testing.assert_allclose(value, X[keep].sum(), rtol=1e-6)
    np.testing.assert_array_equal(slope, keep.astype(float))


def test_transposition():
    jaxpr = jax.make_jaxpr(lambda x, w: (x @ w, w * 2))(X, W)
    cotangent = jnp.ones((4, 5))
    (mine,) = jax.linear_transpose(lambda x: bound(KEPT, jaxpr)(x, W)[0], X)(cotangent)
    np.testing.assert_allclose(mine, cotangent @ W.T, rtol=1e-6)


def test_batching_runs_the_original_or_plans_again():
    xs = jnp.stack([X, 2 * X])
    expected = jax.vmap(function, (0, None))(xs, W)
    plain = jax.vmap(bound(off_by_one()), (0, None))(xs, W)
    for a, b in zip(plain, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)
    given = []

    def again(jaxpr):
        given.append(jaxpr)
        return Outcome(
            "wider", "cpu", lambda *args: [r + 2 for r in original(jaxpr)(*args)]
        )

    planned = jax.vmap(bound(off_by_one(again=again)), (0, None))(xs, W)
    for a, b in zip(planned, expected, strict=True):
        np.testing.assert_allclose(a, b + 2, rtol=1e-6)
    assert [a.shape for a in given[0].in_avals] == [(2, 4, 6), (6, 5)]
    left = jax.vmap(bound(off_by_one(again=lambda _: KEPT)), (0, None))(xs, W)
    for a, b in zip(left, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_winners_of_the_pipeline_are_planned_again_when_batched(winners):
    jaxpr = jax.make_jaxpr(lambda x, w: (x @ w,))(X, W)
    outcome = outcomes.outcome_of(Region(jaxpr), Config())
    xs = jnp.stack([X, 2 * X])
    (result,) = jax.jit(jax.vmap(bound(outcome, jaxpr), (0, None)))(xs, W)
    np.testing.assert_allclose(result, xs @ W, rtol=1e-5)
    assert [r.in_avals[0].shape for r in winners.regions] == [(4, 6), (2, 4, 6)]
    assert winners.traced == 1


def test_where_xla_divides_arrays_the_original_runs():
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:2]), ("d",))
    P = jax.sharding.PartitionSpec
    x = jax.device_put(X, jax.sharding.NamedSharding(mesh, P("d")))
    assert_is(jax.jit(bound(off_by_one()))(x, W), 0)
    part = jax.make_jaxpr(lambda x, w: x @ w)(X[:2], W)
    one_more = Outcome("key", "cpu", lambda x, w: [x @ w + 1])
    local = jax.shard_map(
        lambda x, w: bound(one_more, part)(x, w)[0],
        mesh=mesh,
        in_specs=(P("d"), P()),
        out_specs=P("d"),
    )
    np.testing.assert_allclose(jax.jit(local)(X, W), X @ W + 1, rtol=1e-6)
