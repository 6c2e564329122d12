"""Plain calls are written in place, others are not, and all can be found again."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mirage_jax import _compat
from mirage_jax.inline import callee, flatten, live

X = jnp.linspace(-1, 1, 12).reshape(3, 4)


def flat_of(f, *args):
    closed = jax.make_jaxpr(f)(*args)
    return closed, flatten(_compat.opened(closed))


def value(closed, flat, *args):
    """The flat program's results."""
    jaxpr = _compat.with_equations(closed, flat.outvars, flat.eqns)
    return jax.core.eval_jaxpr(_compat.opened(jaxpr), _compat.constants(jaxpr), *args)


def names(flat):
    return [e.primitive.name for e in flat.eqns]


@jax.jit
def inner(x, y):
    return jax.jit(jnp.tanh)(x) + y, y


def test_nested_calls_are_written_in_place():
    def f(x):
        a, b = inner(x, x * 2)
        return inner(a, b)[0], b

    closed, flat = flat_of(f, X)
    assert names(flat) == ["mul", "tanh", "add", "tanh", "add"]
    for mine, theirs in zip(value(closed, flat, X), f(X), strict=True):
        np.testing.assert_allclose(mine, theirs)


def test_variables_of_two_calls_of_one_function_differ():
    _, flat = flat_of(lambda x: inner(inner(x, x)[0], x)[0], X)
    bound = [v for e in flat.eqns for v in e.outvars]
    assert len(bound) == len(set(bound))


def test_where_each_call_began_and_ended_is_known():
    _, flat = flat_of(lambda x: inner(x * 2, x)[0], X)
    outer, nested = flat.calls
    assert (outer.start, outer.stop) == (1, 3)
    assert (nested.start, nested.stop) == (1, 2)
    assert outer.results[0] is flat.eqns[2].outvars[0]
    assert outer.eqn.invars[0] is flat.eqns[0].outvars[0]


def test_what_no_result_needs_is_not_live():
    def f(x):
        jnp.exp(x)
        jax.debug.print("{}", x[0, 0])
        return x * 2

    _, flat = flat_of(f, X)
    alive = [flat.eqns[i].primitive.name for i in sorted(flat.live)]
    assert "exp" not in alive
    assert any(n.startswith("debug") for n in alive)
    assert live(flat.eqns, flat.outvars) == flat.live


def one_call(f, *args):
    (eqn,) = _compat.opened(jax.make_jaxpr(f)(*args)).eqns
    return eqn


@pytest.mark.parametrize(
    "options",
    [
        {"donate_argnums": 0},
        {"out_shardings": jax.sharding.SingleDeviceSharding(jax.devices()[0])},
    ],
)
def test_calls_that_mean_more_than_their_body_stay(options):
    eqn = one_call(jax.jit(lambda x: x + 1, **options), X)
    assert callee(eqn) is None
    _, flat = flat_of(jax.jit(lambda x: x + 1, **options), X)
    assert names(flat) == [eqn.primitive.name]


def test_calls_with_effects_stay():
    def f(x):
        jax.debug.print("{}", x)
        return x

    assert callee(one_call(jax.jit(f), X)) is None


def test_loops_and_derivative_rules_are_no_plain_calls():
    def loop(x):
        return jax.lax.fori_loop(0, 3, lambda _, c: c * 2, x)

    for f in (loop, jax.checkpoint(jnp.tanh)):
        assert callee(one_call(f, X)) is None


def test_named_primitives_can_be_left_alone():
    closed = jax.make_jaxpr(lambda x: inner(x, x)[0])(X)
    (eqn,) = _compat.opened(closed).eqns
    flat = flatten(_compat.opened(closed), opaque=[eqn.primitive.name])
    assert [e.primitive.name for e in flat.eqns] == [eqn.primitive.name]
