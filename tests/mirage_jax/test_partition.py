"""Regions are convex, cover what they should, and are cut where least crosses."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mirage_jax import _compat, lift, partition
from mirage_jax.inline import flatten
from mirage_jax.partition import MOST_HEAVY, variables, weight

X, W = jnp.ones((4, 6)), jnp.ones((6, 6))


def parts_of(f, *args, judge=lambda group: {}):
    flat = flatten(_compat.opened(jax.make_jaxpr(f)(*args)))
    return flat, partition.partition(flat, lift.refusal, judge)


def names(flat, positions):
    return [flat.eqns[i].primitive.name for i in positions]


def assert_sound(flat, parts):
    """Every live equation has one place, and every group is convex."""
    owned = [i for g in parts.groups for i in g.owned]
    assert len(owned) == len(set(owned))
    assert not set(owned) & (set(parts.refused) | set(parts.light))
    producer = {v: i for i, e in enumerate(flat.eqns) for v in e.outvars}
    for group in parts.groups:
        reads = {v for i in group.members for v in variables(flat.eqns[i].invars)}
        made = {v for i in group.members for v in flat.eqns[i].outvars}
        assert set(group.invars) == reads - made
        assert set(group.outvars) <= {
            v for i in group.owned for v in flat.eqns[i].outvars
        }
        outside, stack = set(), [producer[v] for v in group.invars if v in producer]
        while stack:
            i = stack.pop()
            assert i not in group.owned, "a path leaves the region and comes back"
            if i not in outside:
                outside.add(i)
                feeds = variables(flat.eqns[i].invars)
                stack += [producer[v] for v in feeds if v in producer]


def test_all_of_a_liftable_program_is_one_group():
    flat, parts = parts_of(lambda x, w: jax.nn.silu(x @ w) @ w.T, X, W)
    (group,) = parts.groups
    assert_sound(flat, parts)
    assert len(group.owned) == len(flat.live)
    assert not parts.refused


def test_a_refused_equation_is_around_not_inside():
    def f(x, w):
        y = x @ w
        z = jnp.sort(y, axis=0)
        return (z + y) @ w, y.sum()

    flat, parts = parts_of(f, X, W)
    assert_sound(flat, parts)
    assert names(flat, parts.refused) == ["sort"]
    assert len(parts.groups) == 2
    assert "sort" in parts.refused[next(iter(parts.refused))]


def test_elementwise_work_alone_is_left_to_xla():
    flat, parts = parts_of(lambda x: jnp.tanh(x) * 2 + x, X)
    assert parts.groups == ()
    assert names(flat, parts.light) == ["tanh", "mul", "add"]


def test_elementwise_work_joins_who_reads_it():
    def f(x, w):
        return jnp.sort(x, axis=0) @ w, jnp.tanh(x[:, :6]) @ w

    flat, parts = parts_of(f, X, W)
    assert_sound(flat, parts)
    assert not parts.light


def test_what_is_cheap_is_computed_by_every_reader():
    def f(x, b, w):
        wide = jnp.broadcast_to(b, x.shape)
        return jnp.sort((x + wide) @ w, axis=0) @ w + wide[:, :6]

    flat, parts = parts_of(f, X, jnp.ones(6), W)
    assert_sound(flat, parts)
    assert len(parts.groups) == 2
    assert all("broadcast_in_dim" in names(flat, g.copied) for g in parts.groups)


def test_large_programs_are_cut_between_layers():
    def f(x, ws):
        for a, b in ws:
            x = x + jax.nn.silu(x @ a) @ b
        return x

    ws = [(W, W)] * 12
    flat, parts = parts_of(f, X, ws)
    assert_sound(flat, parts)
    heavy = [sum(weight(flat.eqns[i]) for i in g.owned) for g in parts.groups]
    assert sum(heavy) == 24
    assert max(heavy) <= MOST_HEAVY
    assert {len(g.outvars) for g in parts.groups} == {1}


@pytest.mark.parametrize("layers", [5, 24])
def test_equal_layers_make_equal_regions(layers):
    def f(x, ws):
        for a, b in ws:
            scale = jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6)
            x = x + jax.nn.silu((x * scale) @ a) @ b
        return x

    flat, parts = parts_of(f, X, [(W, W)] * layers)
    assert_sound(flat, parts)
    assert len(parts.groups) == layers
    assert len({tuple(names(flat, g.members)) for g in parts.groups}) == 1
    assert {(len(g.invars), len(g.outvars)) for g in parts.groups} == {(3, 1)}


def test_a_judge_can_refuse_more():
    def judge(group):
        found = [i for i in group.owned if flat_eqns[i].primitive.name == "tanh"]
        return dict.fromkeys(found, "not today")

    def f(x, w):
        return jnp.tanh(x @ w) @ w

    flat_eqns = flatten(_compat.opened(jax.make_jaxpr(f)(X, W))).eqns
    flat, parts = parts_of(f, X, W, judge=judge)
    assert_sound(flat, parts)
    assert parts.refused == {1: "not today"}
    assert len(parts.groups) == 2


def test_effects_and_types_keep_equations_out():
    def f(x, w):
        jax.debug.print("{}", x[0, 0])
        return x @ w, jnp.arange(3).sum()

    _, parts = parts_of(f, X, W)
    assert any("side effects" in why for why in parts.refused.values())


def test_weights():
    eqns = _compat.opened(
        jax.make_jaxpr(
            lambda x: (
                jax.lax.reduce_precision(x, 8, 7),
                x.sum(),
                x @ x.T,
                jnp.exp(x),
                jax.nn.softmax(x),
            )
        )(X)
    ).eqns
    by_name = {e.primitive.name: weight(e) for e in eqns}
    assert by_name["reduce_precision"] == 0
    assert by_name["reduce_sum"] == by_name["dot_general"] == 1
    assert by_name["exp"] == 0


STEPS = (
    lambda x, y: x @ y,
    lambda x, y: jnp.tanh(x) + y,
    lambda x, y: x - y.max(0, keepdims=True),
    lambda x, y: jnp.sort(x, axis=0) * y,
    lambda x, y: jnp.where(x > 0, x, y.T),
    lambda x, y: jax.nn.softmax(x @ y, axis=-1),
    lambda x, y: jnp.broadcast_to(x[:1], x.shape) * y[0, 0],
)


@pytest.mark.parametrize("seed", range(12))
def test_random_programs_are_cut_soundly(seed):
    random = np.random.default_rng(seed)
    steps = random.integers(0, len(STEPS), 12)

    def f(*arrays):
        values = list(arrays)
        picks = np.random.default_rng(seed).integers(0, 10**6, (len(steps), 2))
        for step, (i, j) in zip(steps, picks, strict=True):
            x, y = values[i % len(values)], values[j % len(values)]
            values.append(STEPS[step](x, y))
        return values[-1], values[-3]

    flat, parts = parts_of(f, W, W * 2)
    assert_sound(flat, parts)
    covered = {i for g in parts.groups for i in g.members}
    rest = set(parts.refused) | set(parts.light)
    cheap = flat.live - covered - rest
    assert all(not weight(flat.eqns[i]) for i in cheap)
