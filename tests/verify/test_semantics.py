"""The meaning of ops over the fields."""

from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import pytest

from ugraph.ops import OPS, Kind, Op, register, unregister
from ugraph.terms import integer, iota, lit, make, read
from verify import semantics
from verify.field import P, Q
from verify.values import Float, Interpretation, UnsupportedError, infinite

TRIALS = 3
LEAVES = {"input", "iota", "extent", "ref"}


@pytest.fixture
def how() -> Interpretation:
    """Opaque functions and a root of unity."""
    return Interpretation(7, TRIALS)


def drawn(seed: int, n: int = 6) -> Float:
    rng = np.random.default_rng(seed)
    p, q = (rng.integers(1, m, (TRIALS, n), dtype=np.uint64) for m in (P, Q))
    return Float(p, q)


def number(value) -> Float:
    x = semantics.literal(value)
    return Float(*x.move(lambda a: a[None]).parts(), x.sign)


def same(x: Float, y: Float) -> bool:
    known = x.q is None or y.q is None or bool((x.q == y.q).all())
    return bool((x.p == y.p).all()) and known


MINUS, PLUS = number(float("-inf")), number(float("inf"))


def test_every_row_of_the_op_table_has_a_meaning():
    named = {op.field for op in OPS.values() if op.kind is Kind.MAP}
    assert named <= {*semantics.MEANINGS, "opaque"}
    leaves = {op.field for op in OPS.values() if op.kind is Kind.LEAF}
    assert leaves <= {*semantics.MEANINGS, *LEAVES}


def test_literals_are_exact():
    third = semantics.literal(Fraction(-1, 3))
    assert int(third.p[0]) * -3 % P == 1
    assert int(third.q[0]) * -3 % Q == 1
    assert third.sign == -1
    with pytest.raises(UnsupportedError):
        semantics.literal(Fraction(1, Q))


def test_exp_turns_sums_into_products(how):
    x, y = drawn(1), drawn(2)
    whole = semantics.exponential(semantics.sums((x, y)), how)
    parts = semantics.products(
        (semantics.exponential(x, how), semantics.exponential(y, how))
    )
    assert same(whole, parts)
    assert whole.q is None


def test_a_second_exponential_is_opaque_and_consistent(how):
    once = semantics.exponential(drawn(1), how)
    twice = semantics.exponential(once, how)
    assert same(twice, semantics.exponential(once, how))
    assert "exp of an exponential" in how.opaque


def test_logistic_and_tanh_are_made_of_exponentials(how):
    x = drawn(1)
    minus = semantics.products((number(Fraction(-1)), x))
    one = semantics.sums((semantics.logistic(x, how), semantics.logistic(minus, how)))
    assert (one.p == 1).all()
    twice = semantics.products((number(Fraction(2)), x))
    tanh = semantics.sums(
        (
            semantics.products((number(Fraction(2)), semantics.logistic(twice, how))),
            number(Fraction(-1)),
        )
    )
    assert same(tanh, semantics.tanh(x, how))


def test_infinities_add_and_multiply_as_they_should():
    x = drawn(1)
    assert (semantics.sums((x, MINUS)).inf == -1).all()
    assert semantics.sums((PLUS, MINUS)).bad.all()
    assert (semantics.products((number(Fraction(-1, 2)), MINUS)).inf == 1).all()
    assert (semantics.products((number(Fraction(1, 8)), MINUS)).inf == -1).all()
    assert semantics.products((x, MINUS)).bad.all()
    assert semantics.products((number(Fraction(0)), PLUS)).bad.all()


def test_exp_of_infinities(how):
    assert (semantics.exponential(MINUS, how).p == 0).all()
    assert not semantics.exponential(MINUS, how).inf.any()
    assert (semantics.exponential(PLUS, how).inf == 1).all()


def test_an_infinite_sum_is_infinite():
    x = semantics.choose(np.arange(6)[None] < 1, MINUS, drawn(1))
    total = semantics.fold("sum", x, (1,), Interpretation(0, TRIALS))
    assert (total.inf == -1).all()
    assert total.bad is None or not total.bad.any()


def test_the_inverse_of_zero_is_undefined(how):
    x = drawn(1)
    zero = semantics.sums((x, semantics.products((number(Fraction(-1)), x))))
    assert semantics.power(zero, Fraction(-1), how).bad.all()
    assert semantics.power(MINUS, Fraction(2), how).bad.all()
    assert (semantics.power(PLUS, Fraction(-1), how).p == 0).all()
    inverse = semantics.power(x, Fraction(-1), how)
    assert (semantics.products((x, inverse)).p == 1).all()


def test_roots_are_functions_with_whole_powers(how):
    x = drawn(1)
    root = semantics.power(x, Fraction(1, 2), how)
    inverse = semantics.power(x, Fraction(-1, 2), how)
    assert (semantics.products((root, inverse)).p == 1).all()
    other = semantics.power(drawn(2), Fraction(1, 2), how)
    assert not (root.p == other.p).any()


def test_a_running_maximum_is_the_maximum(how):
    x = semantics.choose(np.arange(6)[None] % 3 == 0, MINUS, drawn(1))
    for name in ("max", "min"):
        whole = semantics.fold(name, x, (1,), how)
        parts = [
            semantics.fold(name, x.move(lambda a, s=s: a[:, s]), (1,), how)
            for s in (slice(0, 1), slice(1, 4), slice(4, 6))
        ]
        running = parts[0]
        for p in parts[1:]:
            running = semantics.extreme(running, p, how, largest=name == "max")
        assert (infinite(whole) == infinite(running)).all()
        assert same(whole, running) or name == "min"
    assert not semantics.fold("max", x, (1,), how).inf.any()
    assert (semantics.fold("min", x, (1,), how).inf == -1).all()


def test_the_largest_is_not_the_smallest(how):
    x = drawn(1)
    largest = semantics.fold("max", x, (1,), how)
    assert not same(largest, semantics.fold("min", x, (1,), how))
    assert (largest.p[:, None] == x.p).any(axis=1).all()


def test_comparisons_of_floats_are_one_random_relation(how):
    x, y = drawn(1, 400), drawn(2, 400)
    less = semantics.compare("lt", x, y, how)
    assert (less == semantics.compare("gt", y, x, how)).all()
    assert 0.3 < less.mean() < 0.7
    equal = semantics.compare("eq", x, y, how)
    assert (equal == semantics.compare("eq", y, x, how)).all()
    assert (equal != semantics.compare("ne", x, y, how)).all()


def test_comparisons_of_positions_are_concrete(how):
    x, y = np.array([[1, 2, 3]]), np.array([[2]])
    assert semantics.compare("ge", x, y, how).tolist() == [[False, True, True]]


def test_what_is_not_selected_may_be_undefined():
    undefined = semantics.sums((PLUS, MINUS))
    first = np.array([[True, False]])
    chosen = semantics.choose(first, drawn(1, 2), undefined)
    assert (
        chosen.bad.tolist() == [[False, True]] * TRIALS
        or (chosen.bad == np.array([[False, True]])).all()
    )


def test_finite_takes_minus_infinity_to_zero():
    assert not semantics.finite(MINUS).inf.any()
    assert (semantics.finite(MINUS).p == 0).all()
    assert (semantics.finite(PLUS).inf == 1).all()


@pytest.fixture
def toys() -> Iterator[None]:
    """Ops that only a test knows."""
    register(Op(name="toy", arity=2, commutative=True))
    register(Op(name="toy_bool", yields="bool"))
    register(Op(name="toy_lost", field="nowhere"))
    yield
    for name in ("toy", "toy_bool", "toy_lost"):
        unregister(name)


@pytest.mark.usefixtures("toys")
def test_an_op_from_outside_is_an_opaque_function(how):
    x, y = drawn(1), drawn(2)
    term = make("toy", (read("x", (("a",),)), read("y", (("a",),))))
    one = semantics.apply(term, (x, y), how)
    assert same(one, semantics.apply(term, (y, x), how))
    assert not same(one, semantics.apply(term, (x, x), how))
    truth = make("toy_bool", (read("x", (("a",),)),))
    assert semantics.apply(truth, (x,), how).dtype == np.bool_
    assert list(how.opaque) == ["toy", "toy_bool"]


@pytest.mark.usefixtures("toys")
def test_a_meaning_that_does_not_exist_is_unsupported(how):
    term = make("toy_lost", (read("x", (("a",),)),))
    with pytest.raises(UnsupportedError, match="nowhere"):
        semantics.apply(term, (drawn(1),), how)


def test_integers_become_exact_floats(how):
    value = semantics.apply(
        make("to_float", (iota("a"),)), (np.array([[-2, 0, 5]]),), how
    )
    assert value.p.tolist() == [[P - 2, 0, 5]]
    assert integer(3).attr == 3
    assert lit(0.5).attr == Fraction(1, 2)
