"""From terms to Python expressions."""

from collections import Counter
from fractions import Fraction

import jax
import numpy as np
import pytest

from pallas_codegen import EmitError
from pallas_codegen.expressions import (
    Value,
    Writer,
    align,
    bare,
    count_uses,
    literal,
    shape_text,
    wrapped,
)
from pallas_codegen.layout import Layout
from pallas_codegen.naming import Namer
from ugraph.terms import (
    Access,
    Reduction,
    Term,
    add,
    divide,
    exp,
    extent,
    integer,
    lit,
    make,
    mul,
    neg,
    power,
    read,
    ref,
)

X, Y = read("x", (("a",), ("b",))), read("y", (("b",),))


class Plain(Writer):
    """A writer for which tensors are variables."""

    def load(self, term: Term, access: Access) -> Value:
        return Value(access.tensor, self.layout.axes(term.labels), "f32")

    def reduction(self, term: Term, attr: Reduction) -> Value:
        raise EmitError("none here")

    def index(self, label: str) -> Value:
        return Value(label, (label,), "i32")


def written(term: Term) -> str:
    """The text of a term."""
    sizes = {"a": 2, "b": 3}
    layout = Layout(("a", "b"), sizes, sizes, sizes)
    return Plain(layout, Namer(), Counter({term: 1})).value(term).text


@pytest.mark.parametrize(
    ("term", "text"),
    [
        (add(X, Y), ["x + y", "y + x"]),
        (add(X, neg(Y)), ["x - y"]),
        (neg(Y), ["-y"]),
        (divide(X, Y), ["x / y"]),
        (power(Y, -1), ["1.0 / y"]),
        (power(Y, 2), ["y * y"]),
        (power(Y, 3), ["jax.lax.integer_pow(y, 3)"]),
        (power(Y, Fraction(1, 2)), ["jnp.sqrt(y)"]),
        (power(Y, Fraction(-1, 2)), ["jax.lax.rsqrt(y)"]),
        (power(Y, Fraction(1, 4)), ["y ** 0.25"]),
        (exp(add(X, Y)), ["jnp.exp(x + y)", "jnp.exp(y + x)"]),
        (make("lt", (make("iota", (), "a"), integer(1))), ["a < 1"]),
        (extent("b"), ["3"]),
        (make("to_float", (integer(3),)), ["float(3)"]),
        (lit(float("-inf")), ["-jnp.inf"]),
        (mul(lit(Fraction(1, 2)), make("to_float", (make("iota", (), "b"),))), None),
    ],
    ids=str,
)
def test_how_an_op_reads(term: Term, text: list[str] | None) -> None:
    got = written(term)
    assert got in text if text else "b.astype(jnp.float32)" in got


def test_a_value_used_twice_is_a_variable() -> None:
    shared = exp(X)
    root = add(shared, mul(shared, Y))
    sizes = {"a": 2, "b": 3}
    writer = Plain(
        Layout(("a", "b"), sizes, sizes, sizes), Namer(), count_uses((root,))
    )
    value = writer.value(root)
    assert writer.lines == ["exp = jnp.exp(x)"]
    assert value.text.count("exp") == 2


def test_an_accumulator_that_is_not_here_is_an_error() -> None:
    with pytest.raises(EmitError, match="acc0 is not defined here"):
        written(exp(ref("acc0", ("a",))))


def test_axes_are_inserted() -> None:
    assert align("v", ("a",), ("a", "b")) == "v[:, None]"
    assert align("v", ("b",), ("a", "b")) == "v"
    assert align("v", ("b",), ("a", "b"), full=True) == "v[None, :]"
    assert align("v", ("a", "c"), ("a", "b", "c")) == "v[:, None, :]"
    assert align("v", (), ("a",)) == "v"


def test_shapes_and_literals_are_python() -> None:
    assert eval(shape_text((3,))) == (3,)
    assert eval(shape_text((3, 4))) == (3, 4)
    assert eval(literal(lit(Fraction(1, 3))).text) == 1 / 3
    assert literal(integer(-2)).operand == "(-2)"


def test_parentheses_around_all_are_dropped() -> None:
    assert bare("(a + b)") == "a + b"
    assert bare("(a) + (b)") == "(a) + (b)"


def test_long_calls_are_broken_at_commas_outside_strings() -> None:
    line = 'v = jnp.einsum("ab,bc->ac", left_operand_of_it, right_operand_of_it, x=1)'
    assert wrapped(line, 100) == [line]
    assert wrapped(line, 60) == [
        "v = jnp.einsum(",
        '    "ab,bc->ac",',
        "    left_operand_of_it,",
        "    right_operand_of_it,",
        "    x=1,",
        ")",
    ]
    assert wrapped("f(a, b) + 1", 5) == ["f(a, b) + 1"]


def test_a_half_is_widened_for_arithmetic() -> None:
    class Half(Plain):
        def load(self, term: Term, access: Access) -> Value:
            return Value(access.tensor, self.layout.axes(term.labels), "bf16")

    sizes = {"a": 2, "b": 3}
    layout = Layout(("a", "b"), sizes, sizes, sizes)
    writer = Half(layout, Namer(), count_uses((exp(X),)))
    namespace = {"jnp": jax.numpy, "x": jax.numpy.ones((2, 3), jax.numpy.bfloat16)}
    text = writer.value(exp(X)).text
    exec("\n".join(writer.lines), namespace)
    assert np.asarray(eval(text, namespace)).dtype == np.float32
