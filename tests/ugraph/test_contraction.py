"""Matrix products are seen in sums of products, and mean the same."""

import numpy as np
from hypothesis import given

from tests.ugraph.evaluator import close, evaluate_program
from tests.ugraph.programs import attention, gram, load, matmul, norm_linear
from tests.ugraph.strategies import positive_inputs, program_of, programs
from ugraph.contraction import as_contraction, labels_of
from ugraph.program import Program
from ugraph.terms import Reduction, lit, mul, reduce, subterms

SIZES = {"a": 3, "b": 4, "c": 5, "d": 6}
X, Y, Z = load("x", "ab"), load("y", "bc"), load("z", "c")


def test_a_matrix_product() -> None:
    found = as_contraction(reduce("sum", mul(X, Y), "b", "bf16"), SIZES)
    assert found is not None
    assert {found.left, found.right} == {(X,), (Y,)}
    assert found.contracted == ("b",)
    assert {found.rows, found.columns} == {("a",), ("c",)}
    assert found.batch == ()
    assert found.dtype == "bf16"


def test_labels_of_both_sides_and_the_result_are_batch() -> None:
    (out,) = attention().outputs
    sizes = attention().sizes
    products = [as_contraction(t, sizes) for t in subterms(out.term)]
    assert [c.batch for c in products if c] == [("h",), ("h",)]


def test_a_further_factor_joins_the_side_that_covers_it() -> None:
    (out,) = norm_linear().outputs
    sizes = norm_linear().sizes
    (found,) = (c for t in subterms(out.term) if (c := as_contraction(t, sizes)))
    sides = sorted((found.left, found.right), key=len)
    assert [len(s) for s in sides] == [1, 3]


def test_one_tensor_in_two_roles() -> None:
    (out,) = gram().outputs
    assert as_contraction(out.term, gram().sizes) is not None


def test_what_is_not_a_matrix_product() -> None:
    sizes = SIZES
    assert as_contraction(reduce("sum", X, "b"), sizes) is None
    assert as_contraction(reduce("sum", mul(X, X), "b"), sizes) is None
    assert as_contraction(reduce("max", mul(X, Y), "b"), sizes) is None
    assert as_contraction(reduce("sum", mul(X, lit(2)), "b"), sizes) is None
    assert as_contraction(mul(X, Y), sizes) is None
    # A factor with labels of both sides belongs to neither.
    both = load("w", "acd")
    assert as_contraction(reduce("sum", mul(X, Y, both), "b"), sizes) is None


def test_labels_of() -> None:
    assert labels_of((X, Z)) == {"a", "b", "c"}
    assert labels_of(()) == frozenset()


@given(programs)
def test_operands_partition_factors_and_labels(program: Program) -> None:
    for t in program.terms:
        found = as_contraction(t, program.sizes)
        if found is None:
            continue
        assert isinstance(t.attr, Reduction)
        left, right = labels_of(found.left), labels_of(found.right)
        contracted = set(found.contracted)
        assert contracted == set(t.attr.labels)
        assert contracted <= left & right
        assert {*found.batch, *found.rows, *found.columns} == set(t.labels)
        rebuilt = reduce("sum", mul(*found.left, *found.right), found.contracted)
        sizes = program.sizes
        inputs = positive_inputs(program)
        got = evaluate_program(program_of(rebuilt, sizes), inputs)
        want = evaluate_program(program_of(t, sizes), inputs)
        if np.isfinite(want["out"]).all():
            close(got, want)


def test_the_largest_pair_of_factors_are_the_cores() -> None:
    ours = matmul()
    scaled = mul(load("x", "mk"), load("w", "kn"), load("g", "k"))
    found = as_contraction(reduce("sum", scaled, "k"), ours.sizes)
    assert found is not None
    assert len(found.left) + len(found.right) == 3
