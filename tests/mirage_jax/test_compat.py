"""What differs between versions of JAX is as this package says it is."""

import ast
import contextlib
import inspect
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import mirage_jax
from mirage_jax import _compat

X = jnp.ones((2, 3))


def test_jaxprs_open_and_close():
    table = jnp.arange(3.0)
    closed = jax.make_jaxpr(lambda x: x * table + 1)(X)
    body = _compat.opened(closed)
    assert len(_compat.constants(closed)) == len(body.constvars) == 1
    assert _compat.opened(body) is body
    again = _compat.closed(body, _compat.constants(closed))
    (result,) = jax.core.eval_jaxpr(_compat.opened(again), _compat.constants(again), X)
    np.testing.assert_allclose(result, X * table + 1)
    assert not _compat.is_high(closed)


def test_atoms():
    (eqn,) = _compat.opened(jax.make_jaxpr(lambda x: x + 2.0)(X)).eqns
    assert [_compat.is_literal(a) for a in eqn.invars] == [False, True]
    assert not _compat.is_drop(eqn.outvars[0])


def test_bodies_can_be_exchanged():
    for closed in (
        jax.make_jaxpr(lambda x: (x + 1, x * 2))(X),
        _compat.opened(jax.make_jaxpr(lambda x: (x + 1, x * 2))(X)),
    ):
        body = _compat.opened(closed)
        changed = _compat.with_equations(closed, body.outvars[1:], body.eqns[1:])
        assert type(changed) is type(closed)
        (result,) = jax.core.eval_jaxpr(_compat.opened(changed), (), X)
        np.testing.assert_allclose(result, X * 2)


def test_new_programs():
    body = _compat.opened(jax.make_jaxpr(lambda x: x + 1)(X))
    made = _compat.new_jaxpr(body.invars, body.outvars, body.eqns, "name")
    assert [a.shape for a in made.in_avals] == [(2, 3)]
    assert (
        jax.jit(jax.extend.core.jaxpr_as_fun(made))(X)[0].tolist() == (X + 1).tolist()
    )


def test_programs_inside_equations():
    closed = jax.make_jaxpr(
        lambda x: jax.lax.cond(x[0, 0] > 0, lambda: x, lambda: x * 2)
    )(X)
    inside = [len(_compat.sub_jaxprs(e)) for e in _compat.opened(closed).eqns]
    assert 2 in inside


def test_what_jit_takes():
    known = _compat.jit_parameters()
    assert {"static_argnums", "donate_argnames", "out_shardings"} <= set(known)
    assert "fun" not in known
    assert _compat.unspecified_sharding() is known["in_shardings"].default
    assert not callable(_compat.not_specified())


def test_a_context_is_seen_by_the_jit_cache():
    context = _compat.user_context("default")
    seen = []
    f = jax.jit(lambda x: [seen.append(context.value), x][1])
    for value in ("a", "b", "a"):
        with context(value):
            f(X)
    f(X)
    assert seen == ["a", "b", "default"]
    assert isinstance(context("c"), contextlib.AbstractContextManager)


def test_private_names_of_jax_are_used_nowhere():
    folder = Path(inspect.getfile(mirage_jax)).parent
    for path in folder.rglob("*.py"):
        tree = ast.parse(path.read_text())
        names = [
            n.module or "" for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)
        ]
        names += [
            a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names
        ]
        assert not [n for n in names if n.startswith("jax._")], path
