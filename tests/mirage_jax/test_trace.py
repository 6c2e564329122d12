"""Traced calls are evaluated to the same trees, from any kind of argument."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mirage_jax.trace import evaluate, name_of, trace, trace_jitted

X = jnp.linspace(-1, 1, 12).reshape(3, 4)


def again(f, *args, **kwargs):
    program = trace(f, args, kwargs)
    return program.finish(evaluate(program.jaxpr, program.args))


def test_names():
    class Model:
        def __call__(self, x):
            return x

    assert name_of(lambda: 0) == "<lambda>"
    assert name_of(Model()) == "Model"
    assert name_of(functools.partial(sum)) == "partial"


def test_trees_and_what_is_no_array():
    def f(tree, n, *, mode):
        x = tree["x"] * n
        return {"x": x, "mode": mode, "pair": (x.sum(), None), "n": n}

    result = again(f, {"x": X}, 3, mode="fast")
    np.testing.assert_allclose(result["x"], 3 * X, rtol=1e-6)
    assert (result["mode"], result["n"], result["pair"][1]) == ("fast", 3, None)


def test_numpy_arrays_and_shapes_are_arrays():
    program = trace(lambda x: x + 1, [np.ones(3, np.float32)], {})
    assert program.jaxpr.in_avals[0].shape == (3,)
    shape = jax.ShapeDtypeStruct((5,), jnp.float32)
    assert trace(lambda x: x + 1, [shape], {}).jaxpr.out_avals[0].shape == (5,)


def test_axis_names_are_in_scope():
    def f(x):
        return jax.lax.psum(x, "i")

    result = jax.vmap(lambda x: again(f, x), axis_name="i")(X)
    np.testing.assert_allclose(result, jnp.broadcast_to(X.sum(0), X.shape), rtol=1e-6)


def test_what_a_function_closes_over():
    result = jax.jit(lambda x, y: again(lambda a: a + y, x))(X, 2 * X)
    np.testing.assert_allclose(result, 3 * X, rtol=1e-6)


def test_through_jaxs_own_cache():
    count = []

    @functools.partial(jax.jit, static_argnames="n")
    def f(tree, n):
        count.append(n)
        return {"y": tree["x"] * n}

    @functools.partial(jax.jit, static_argnames="n")
    def outer(tree, n):
        program = trace_jitted(f, "f", (tree,), {"n": n})
        return program.finish(evaluate(program.jaxpr, program.args))

    for n in (2, 3, 2):
        np.testing.assert_allclose(outer({"x": X}, n=n)["y"], n * X, rtol=1e-6)
    assert count == [2, 3]


def test_a_jitted_function_that_closes_over_a_tracer():
    @jax.jit
    def outer(x, y):
        inner = jax.jit(lambda a: (a + y).sum())
        program = trace_jitted(inner, "inner", (x,), {})
        return program.finish(evaluate(program.jaxpr, program.args))

    np.testing.assert_allclose(outer(X, X), 2 * X.sum(), atol=1e-5)


def test_errors_are_the_functions():
    with pytest.raises(KeyError, match="mine"):
        trace({}.__getitem__, ["mine"], {})
