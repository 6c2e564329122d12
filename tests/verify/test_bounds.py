"""Degrees, the condition of Theorem A, and how many tests are run."""

from fractions import Fraction

import numpy as np
import pytest

from tests.ugraph.programs import (
    attention,
    gated,
    layer_norm,
    load,
    matmul,
    norm_linear,
    program,
    softmax,
    softmax_of,
)
from tests.verify.zoo import projected_attention, self_attention, tiled
from ugraph.graph import baseline
from ugraph.program import Program
from ugraph.terms import divide, exp, iota, lit, make, mul, reduce
from verify import bounds, independence
from verify.degrees import Degree, Linear, Units, units_of
from verify.field import P, Q


def bound_of(made: Program, probability: float = 1e-9, **facts) -> bounds.Bound:
    return bounds.bound(made, baseline(made), probability, **facts)


def test_degrees_of_quotients():
    x, y = Degree(1, 0), Degree(2, 3)
    assert x.plus(y) == Degree(4, 3)
    assert x.times(y) == Degree(3, 3)
    assert y.power(-2) == Degree(6, 4)
    assert Degree(1, 1).repeated(3) == Degree(3, 3)
    assert x.either(y) == Degree(2, 3)


def test_a_matrix_product_has_degree_two():
    found = bound_of(matmul(2, 3, 4))
    assert found.theorem == "Schwartz-Zippel"
    assert found.degree == 2
    assert found.per_test == 2 / P


@pytest.mark.parametrize("make_program", [layer_norm, norm_linear])
def test_programs_without_exponentials_need_two_tests(make_program):
    found = bound_of(make_program(2, 3))
    assert found.exponentials == 0
    assert found.total < 1e-9
    assert found.counted >= bounds.LEAST_COUNTED


def test_independent_exponents_are_theorem_a():
    for made in (softmax(2, 3), attention(2, 2, 3, 3), gated(2, 3, 3)):
        found = bound_of(made)
        assert found.theorem == "Theorem A"
        assert found.per_test == found.degree / Q
        assert found.total <= 1e-9
        assert not found.why


def test_where_something_is_chosen_more_tests_are_run_than_counted():
    found = bound_of(softmax(2, 3))
    assert found.tests >= bounds.LEAST_TESTS_WITH_CHOICES > found.counted


def test_a_loop_raises_the_degree():
    made = softmax(4, 9)
    degrees = {
        bounds.bound(made, plan, 1e-9).degree for plan in tiled(made, ragged=False)
    }
    assert len(degrees) > 1


def test_exponents_of_one_tensor_with_itself_fall_back():
    found = bound_of(self_attention(3, 4))
    assert found.theorem == "Theorem 2"
    assert "uniform" in found.why
    assert found.tests > bounds.LEAST_TESTS_WITH_CHOICES
    k, d = found.exponentials, found.degree
    assert found.per_test == min(1, 8 * d * k**4 / Q + Q ** (-1 / k**2))


def test_what_was_found_out_elsewhere_is_said():
    assert bound_of(softmax(2, 3), why="as seen").why == "as seen"


def test_weights_make_projected_exponents_uniform_where_there_is_room():
    roomy = projected_attention(3, 8, 7)
    assert bound_of(roomy).theorem == "Theorem A"
    cramped = projected_attention(6, 2, 2)
    assert bound_of(cramped).theorem == "Theorem 2"


def test_coefficients_share_a_unit():
    forms = [
        Linear(Fraction(1), frozenset({Fraction(3, 8), Fraction(1, 2)})),
        Linear(Fraction(1), frozenset({Fraction(1, 4)})),
    ]
    assert units_of(forms) == Units(Fraction(1, 8))
    assert units_of([]) == Units()


def test_a_scale_on_all_exponents_costs_nothing():
    def scaled(scale: Fraction) -> Program:
        weights, total = softmax_of(mul(lit(scale), load("x", "bd")), "d")
        out = divide(weights, total)
        return program({"b": 2, "d": 3}, {"x": "bd"}, {"o": ("bd", out)}, "f32")

    assert bound_of(scaled(Fraction(1, 8))).degree == bound_of(softmax(2, 3)).degree


def test_a_finite_mask_costs_one_more_variable():
    def masked(low: float) -> Program:
        seen = make("le", (iota("d"), iota("b")))
        scores = make("select", (seen, load("x", "bd"), lit(low)))
        weights, total = softmax_of(scores, "d")
        out = divide(weights, total)
        return program({"b": 2, "d": 3}, {"x": "bd"}, {"o": ("bd", out)}, "f32")

    found = bound_of(masked(-1e30))
    assert found.theorem == "Theorem A"
    assert found.degree <= 2 * bound_of(masked(float("-inf"))).degree


def test_incommensurable_exponents_have_no_useful_degree():
    x = load("x", "bd")
    out = reduce("sum", mul(exp(x), exp(mul(lit(1.4426950408889634), x))), "d")
    found = bound_of(program({"b": 2, "d": 3}, {"x": "bd"}, {"o": ("b", out)}, "f32"))
    assert found.theorem == "Theorem 2"


def test_rank():
    rng = np.random.default_rng(0)
    left, right = (rng.integers(0, Q, s, dtype=np.uint64) for s in ((5, 3), (3, 6)))
    product = np.zeros((5, 6), np.uint64)
    for k in range(3):
        product = (product + left[:, k : k + 1] * right[k : k + 1] % Q) % Q
    assert independence.rank(product) == 3
    assert independence.rank(np.eye(4, dtype=np.uint64)) == 4
    assert independence.rank(np.zeros((2, 3), np.uint64)) == 0
