"""A function lifted, evaluated in float64, and compared with itself."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from mirage_jax.lift import lift
from tests.ugraph.evaluator import evaluate_program
from ugraph.program import Program, axes_shape
from ugraph.terms import Access, Reduction

F32, BF16, F16 = jnp.float32, jnp.bfloat16, jnp.float16


def well_formed(program: Program) -> None:
    """Every label has an extent of two or more, and no label is without a use."""
    sizes = program.sizes
    used = {f for o in program.outputs for axis in o.axes for f in axis}
    for t in program.terms:
        used |= set(t.labels)
        if isinstance(t.attr, Reduction):
            used |= set(t.attr.labels)
            assert set(t.attr.labels) <= set(t.args[0].labels)
        if isinstance(t.attr, Access):
            tensor = next(x for x in program.inputs if x.name == t.attr.tensor)
            assert axes_shape(t.attr.axes, sizes) == tensor.shape
            named = [f for axis in t.attr.axes for f in axis if isinstance(f, str)]
            assert len(named) == len(set(named))
    assert used == set(sizes)
    assert all(n >= 2 for n in sizes.values())
    assert all(t in program.terms for t, _ in program.roundings)


def array(i: int, shape: tuple[int, ...], dtype=F32):
    values = np.random.default_rng(i).normal(size=shape)
    return jnp.asarray(values > 0 if dtype is bool else values, dtype)


def lifted(f, *args) -> Program:
    return lift(jax.make_jaxpr(f)(*args))


def check(f: Callable, *args, tolerance: float = 2e-4) -> Program:
    """Lifts `f` and asserts that the program computes what `f` does."""
    program = lifted(f, *args)
    well_formed(program)
    assert str(program)
    named = {t.name: np.asarray(x) for t, x in zip(program.inputs, args, strict=True)}
    outputs = evaluate_program(program, named)
    expected = [np.asarray(x) for x in jax.tree.leaves(f(*args))]
    for mine, theirs in zip(outputs.values(), expected, strict=True):
        assert mine.shape == theirs.shape
        np.testing.assert_allclose(
            mine.astype(float), theirs.astype(float), rtol=tolerance, atol=tolerance
        )
    return program
