"""Abstract expressions: the normal form's laws, and being a part of another."""

from fractions import Fraction

from hypothesis import given

from tests.ugraph.programs import load
from tests.ugraph.strategies import terms
from ugraph.abstract import expression, is_part
from ugraph.ops import OPS
from ugraph.terms import (
    Term,
    add,
    divide,
    exp,
    finite,
    lit,
    mul,
    power,
    reduce,
    subterms,
)

X, Y, Z = load("x", "ab"), load("y", "bc"), load("z", "c")


@given(terms, terms, terms)
def test_sums_and_products_commute_and_associate(a: Term, b: Term, c: Term) -> None:
    assert expression(add(a, add(b, c))) == expression(add(add(c, b), a))
    assert expression(mul(a, mul(b, c))) == expression(mul(mul(c, b), a))


@given(terms, terms, terms)
def test_products_distribute_over_sums(a: Term, b: Term, c: Term) -> None:
    assert expression(mul(a, add(b, c))) == expression(add(mul(a, b), mul(a, c)))


@given(terms)
def test_a_term_is_a_part_of_itself_and_of_its_multiples(term: Term) -> None:
    assert is_part(expression(term), expression(term))
    assert is_part(expression(term), expression(mul(term, Z)))
    assert is_part(expression(term), expression(add(term, X)))


@given(terms)
def test_operands_of_linear_ops_are_parts(term: Term) -> None:
    for t in subterms(term):
        if OPS[t.op].abstract in ("add", "mul", "sum"):
            for a in t.args:
                assert is_part(expression(a), expression(t))


def test_division_moves_through_products() -> None:
    assert expression(divide(mul(X, Y), Z)) == expression(mul(X, divide(Y, Z)))


def test_reductions_nest_in_any_order() -> None:
    inner = reduce("sum", reduce("sum", mul(X, Y), ("a",)), ("b",))
    assert expression(inner) == expression(reduce("sum", mul(X, Y), ("a", "b")))


def test_maxima_nest_in_any_order() -> None:
    inner = reduce("max", reduce("max", X, ("a",)), ("b",))
    assert expression(inner) == expression(reduce("max", X, ("a", "b")))
    assert expression(inner) != expression(reduce("min", X, ("a", "b")))


def test_inverses_of_products_are_products_of_inverses() -> None:
    total = reduce("sum", Y, ("b",))
    for n in (-1, -2, 3, 40):
        product = power(mul(X, total), n)
        assert expression(product) == expression(mul(power(X, n), power(total, n)))
    pulled = power(mul(Z, reduce("sum", X, ("a",))), -1)
    inside = power(reduce("sum", mul(Z, X), ("a",)), -1)
    assert expression(pulled) == expression(inside)
    shared = power(add(mul(X, Y), mul(X, Z)), -1)
    assert expression(shared) == expression(mul(power(X, -1), power(add(Y, Z), -1)))


def test_nothing_cancels() -> None:
    assert expression(divide(X, X)) != expression(lit(1))
    assert not is_part(expression(Y), expression(X))


def test_opaque_functions_are_told_apart() -> None:
    assert expression(exp(X)) != expression(exp(Y))
    assert expression(reduce("max", X, ("a",))) != expression(reduce("max", X, ("b",)))
    assert expression(power(X, Fraction(1, 2))) != expression(power(X, Fraction(1, 3)))
    assert expression(finite(X)) == expression(X)


def test_a_product_too_large_to_expand_is_opaque() -> None:
    wide = add(*(load(f"t{i}", "ab") for i in range(20)))
    (monomial,) = expression(mul(wide, wide))
    assert monomial.numerator[0].startswith("mul")
