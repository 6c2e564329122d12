"""Terms: interning, labels, pickling, digests that are equal in every process."""

import copy
import gc
import pickle
import subprocess
import sys
from fractions import Fraction

import pytest
from hypothesis import given

from tests.ugraph.programs import load
from tests.ugraph.strategies import terms
from ugraph.terms import (
    MINUS_ONE,
    ONE,
    Fixed,
    Term,
    add,
    divide,
    extent,
    factors,
    finite,
    integer,
    iota,
    is_reduction,
    lit,
    make,
    mul,
    neg,
    power,
    read,
    rebuild,
    reduce,
    ref,
    replace,
    show,
    subterms,
    yields,
)

X, Y = load("x", "ab"), load("y", "bc")


def _copy(term: Term) -> Term:
    return make(term.op, [_copy(a) for a in term.args], term.attr)


@given(terms)
def test_equal_terms_are_one_object(term: Term) -> None:
    assert _copy(term) is term


@given(terms)
def test_pickle_and_copy_give_the_same_object(term: Term) -> None:
    assert pickle.loads(pickle.dumps(term)) is term
    assert copy.deepcopy(term) is term


@given(terms, terms)
def test_digests_tell_terms_apart(a: Term, b: Term) -> None:
    assert (a.digest == b.digest) == (a is b)


@given(terms)
def test_labels_are_sorted_and_follow_the_operands(term: Term) -> None:
    for t in subterms(term):
        assert list(t.labels) == sorted(set(t.labels))
        if t.args:
            free = {x for a in t.args for x in a.labels}
            bound = set(t.attr.labels) if is_reduction(t) else set()
            assert set(t.labels) == free - bound


@given(terms)
def test_subterms_lists_operands_first_and_once(term: Term) -> None:
    found = subterms(term)
    position = {t: i for i, t in enumerate(found)}
    assert len(position) == len(found)
    assert found[-1] is term
    for t in found:
        assert all(position[a] < position[t] for a in t.args)


@given(terms)
def test_rebuilding_from_its_own_operands_is_the_identity(term: Term) -> None:
    assert rebuild(term, term.args) is term
    assert replace(term, {}) is term
    assert replace(term, {term: X}) is X


def test_digests_are_equal_in_another_process() -> None:
    code = (
        "from ugraph.terms import *\n"
        "from fractions import Fraction\n"
        "x = read('x', (('a',), ('b', Fixed(1, 2))))\n"
        "t = reduce('sum', mul(x, power(x, Fraction(-1, 2)), lit(0.1)), ('a',))\n"
        "print(t.digest)\n"
    )
    runs = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONPATH": ":".join(sys.path), "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for seed in ("1", "2")
    }
    x = read("x", (("a",), ("b", Fixed(1, 2))))
    term = reduce("sum", mul(x, power(x, Fraction(-1, 2)), lit(0.1)), ("a",))
    assert runs == {term.digest}


def test_terms_are_collected_when_nothing_refers_to_them() -> None:
    digest = make("tanh", (load("unheard_of", "ab"),)).digest
    gc.collect()
    again = make("tanh", (load("unheard_of", "ab"),))
    assert again.digest == digest


def test_commutative_operands_have_one_order() -> None:
    assert add(X, Y) is add(Y, X)
    assert mul(X, Y) is mul(Y, X)
    assert make("lt", (X, Y)) is not make("lt", (Y, X))


def test_literals_of_other_types_are_other_terms() -> None:
    assert lit(1) is lit(1.0) is ONE
    assert integer(1) is not lit(1)
    assert lit(float("inf")) is not lit(float("-inf"))
    with pytest.raises(ValueError, match="NaN"):
        lit(float("nan"))


def test_units_vanish_and_nothing_cancels() -> None:
    assert mul() is ONE
    assert mul(ONE, X) is X
    assert add(X) is X
    assert power(X, 1) is X
    assert add(X, neg(X)).op == "add"
    assert divide(X, X).op == "mul"
    assert neg(X) is mul(MINUS_ONE, X)
    assert neg(iota("a")) is mul(integer(-1), iota("a"))


def test_a_reduction_binds_only_labels_that_are_there() -> None:
    assert reduce("sum", X, ("c",)) is X
    assert reduce("sum", X, ("b", "c")) is reduce("sum", X, ("b",))
    inner = reduce("sum", mul(X, Y), ("a", "b"))
    assert rebuild(inner, (Y,)).labels == ("c",)


def test_unknown_ops_are_refused() -> None:
    with pytest.raises(KeyError):
        make("frobnicate", (X,))


@pytest.mark.parametrize(
    ("term", "kind"),
    [
        (X, "float"),
        (read("m", (("a",),), "bool"), "bool"),
        (make("lt", (X, Y)), "bool"),
        (iota("a"), "int"),
        (extent("a"), "int"),
        (add(iota("a"), integer(1)), "int"),
        (make("select", (make("lt", (X, Y)), X, Y)), "float"),
        (reduce("max", X, ("a",)), "float"),
    ],
    ids=str,
)
def test_yields(term: Term, kind: str) -> None:
    assert yields(term) == kind


def test_factors_opens_nested_products() -> None:
    assert set(factors(mul(mul(X, Y), lit(2)))) == {X, Y, lit(2)}
    assert factors(add(X, Y)) == (add(X, Y),)


@pytest.mark.parametrize(
    ("term", "text"),
    [
        (X, "x[a,b]"),
        (read("x", (("a", "b"), (Fixed(1, 2), "c"))), "x[(a b),(1/2 c)]"),
        (reduce("sum", X, ("b",)), "sum[b](x[a,b])"),
        (power(X, Fraction(-1, 2)), "x[a,b]^(-1/2)"),
        (ref("m", ("a",), "before"), "m.before"),
        (finite(ref("m", ("a",))), "finite(m)"),
        (iota("a"), "iota[a]"),
        (extent("a"), "extent[a]"),
        (lit(float("-inf")), "-inf"),
        (lit(0.1), "0.1"),
        (make("lt", (X, Y)), "lt(x[a,b], y[b,c])"),
    ],
)
def test_show(term: Term, text: str) -> None:
    assert show(term) == text
    assert repr(term) == text
