"""What programs look like that were lifted, and what cannot be lifted."""

import time
from fractions import Fraction

import jax
import jax.numpy as jnp
import pytest

from mirage_jax.lift import LiftError, boundary_refusal, lift
from tests.mirage_jax.lifting import BF16, F16, F32, array, check, lifted
from ugraph.terms import Access, Fixed, Reduction, mul, read, reduce, subterms


def test_custom_derivative_rules_lift_their_primal():
    @jax.custom_vjp
    def double(x):
        return 2 * x

    double.defvjp(lambda x: (2 * x, None), lambda _, g: (3 * g,))
    check(lambda x: double(jax.jit(double)(x)) + jax.nn.relu(x), array(0, (3, 4)))


def test_boolean_inputs_and_outputs():
    program = check(
        lambda x, m: (jnp.where(m, x, -jnp.inf), (x > 0) & ~m, m.astype(F32)),
        array(0, (3, 4)),
        array(1, (3, 4), bool),
    )
    assert [t.dtype for t in program.inputs] == ["f32", "bool"]
    assert [o.tensor.dtype for o in program.outputs] == ["f32", "bool", "f32"]


def test_labels_belong_to_uses():
    program = lifted(lambda x: x @ x.T, array(0, (4, 6)))
    assert program.extents == (("a", 4), ("a1", 4), ("b", 6))
    (store,) = program.outputs
    assert store.axes == (("a",), ("a1",))
    rows, columns = read("in0", (("a",), ("b",))), read("in0", (("a1",), ("b",)))
    assert store.term is reduce("sum", mul(rows, columns), ("b",))


def test_one_loop_label_for_maximum_sum_and_contraction():
    program = lifted(lambda x: jax.nn.softmax(x @ x.T) @ x, array(0, (5, 4)))
    bound = {
        (t.op, t.attr.labels) for t in program.terms if isinstance(t.attr, Reduction)
    }
    assert bound == {("sum", ("a1",)), ("max", ("a1",)), ("sum", ("b",))}


def test_two_contractions_over_one_axis_share_the_label():
    shapes = [(3, 4), (4, 6), (4, 6), (6, 4)]
    program = lifted(
        lambda x, a, b, c: (jax.nn.silu(x @ a) * (x @ b)) @ c,
        *(array(0, s) for s in shapes),
    )
    bound = {t.attr.labels for t in program.terms if isinstance(t.attr, Reduction)}
    assert sorted(program.sizes[x] for (x,) in bound) == [4, 6]


def test_half_of_an_axis_is_an_index_held_fixed():
    program = lifted(lambda x: x[:, 3:] * 2, array(0, (2, 6)))
    (access,) = {t.attr for t in program.terms if isinstance(t.attr, Access)}
    assert access.axes == (("a",), (Fixed(1, 2), "b"))


def test_a_piece_of_what_was_laid_side_by_side_is_that_piece():
    program = lifted(
        lambda x, y: jnp.concatenate([x, y], 1)[:, 4:],
        array(0, (3, 4)),
        array(1, (3, 4)),
    )
    assert program.outputs[0].term.attr == Access("in1", (("a",), ("b",)))


def test_quotients_by_constants_are_exact_products():
    (store,) = lifted(lambda x: x / 3.0, array(0, (3,))).outputs
    assert Fraction(1, 3) in {t.attr for t in subterms(store.term)}


def test_a_maximum_with_minus_infinity_is_no_op():
    program = lifted(lambda x: jnp.max(x, -1, initial=-jnp.inf), array(0, (3, 4)))
    assert [t.op for t in program.terms] == ["input", "max"]


@pytest.mark.parametrize("dtype", [BF16, F16])
def test_roundings_are_noted_in_order(dtype):
    def f(x, w):
        y = (x.astype(F32) * 2).astype(dtype)
        return jnp.dot(y, w).astype(F32) + 1

    args = array(0, (4, 6), dtype), array(1, (6, 2), dtype)
    program = check(f, *args, tolerance=0.1)
    short = {BF16: "bf16", F16: "f16"}[dtype]
    assert [(t.op, d) for t, d in program.roundings] == [("mul", short), ("sum", short)]


def contraction_dtypes(f, *args) -> list[str]:
    program = lifted(f, *args)
    return [t.attr.dtype for t in program.terms if isinstance(t.attr, Reduction)]


def test_the_dtype_in_which_a_contraction_multiplies():
    x, w = array(0, (4, 6), BF16), array(1, (6, 2), BF16)
    half, full = array(1, (6, 2), F16), array(1, (6, 2))
    highest = jax.lax.Precision.HIGHEST
    assert contraction_dtypes(jnp.dot, x, w) == ["bf16"]
    assert contraction_dtypes(lambda a, b: a.astype(F16) @ b, x, half) == ["f16"]
    assert contraction_dtypes(lambda a, b: a.astype(F32) @ b, x, full) == ["f32"]
    widened = contraction_dtypes(lambda a, b: a.astype(F32) @ b.astype(F32).T, x, w.T)
    assert widened == ["bf16"]
    exact = contraction_dtypes(
        lambda a, b: jnp.dot(a, b, precision=highest), x.astype(F32), full
    )
    assert exact == ["f32"]
    accumulated = lifted(lambda a, b: jnp.dot(a, b, preferred_element_type=F32), x, w)
    assert accumulated.roundings == ()
    assert contraction_dtypes(lambda a: a.sum(0), x) == ["f32"]


def test_unused_inputs_stay_inputs():
    program = lifted(
        lambda x, y, z: x + z, array(0, (3,)), array(1, (2,)), array(2, (3,))
    )
    assert [t.name for t in program.inputs] == ["in0", "in1", "in2"]


def test_what_no_output_needs_is_not_looked_at():
    def f(x):
        jnp.sort(x)
        return x + 1

    assert check(f, array(0, (3,)))


def deep(x, depth):
    for i in range(depth):
        x = jnp.maximum(x, float(i) / 1e4)
    return x


def test_deep_programs_need_no_deep_stack():
    program = lifted(lambda x: deep(x, 140), array(0, (3,)))
    assert str(program).count("maximum") == 140


def test_the_equation_that_makes_a_program_too_deep_is_named():
    with pytest.raises(LiftError, match="depend on each other") as caught:
        lifted(lambda x: deep(x, 2000), array(0, (3,)))
    assert caught.value.equation == 149


def test_factors_that_have_no_common_refinement_are_refused():
    with pytest.raises(LiftError, match=r"`add`.*factored both as") as caught:
        lifted(lambda x: jnp.repeat(x, 2, 0) + jnp.tile(x, (2, 1)), array(0, (3, 4)))
    assert caught.value.equation == 3


def test_roles_of_one_array_do_not_multiply_without_bound():
    def f(x):
        for _ in range(12):
            x = x @ x / 3
        return x

    program = check(f, array(0, (3, 3)) / 3)
    assert len(program.terms) < 400


def test_lifting_is_deterministic_and_fast():
    jaxpr = jax.make_jaxpr(
        lambda x, w: jax.nn.softmax((x @ w) @ (x @ w).T, axis=-1) @ x
    )(array(0, (8, 6)), array(1, (6, 6)))
    first = lift(jaxpr)
    start = time.perf_counter()
    second = lift(jaxpr)
    assert time.perf_counter() - start < 0.05
    assert first == second
    assert first.key == second.key


def test_what_crosses_a_boundary():
    shape = jax.ShapeDtypeStruct
    assert boundary_refusal(shape((2, 3), BF16)) is None
    assert boundary_refusal(shape((), bool)) is None
    assert "i32" in str(boundary_refusal(shape((2,), jnp.int32)))
    assert "empty" in str(boundary_refusal(shape((0, 2), F32)))
