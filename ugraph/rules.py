"""The algebra: axioms as data, each a named rewrite of one term.

Every rule is an identity of real arithmetic that holds term by term (no cancellation,
no exponential pulled apart), so that a rewritten program has infinities and NaN where
the program as written has them, up to the order in which factors meet. `rewrite`
applies them; the verifier checks every result again without knowing them.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

from ugraph.terms import (
    Reduction,
    Term,
    add,
    factors,
    is_reduction,
    make,
    mul,
    power,
    reduce,
    subterms,
)

Rewrite: TypeAlias = Callable[[Term], Iterator[Term]]


@dataclass(frozen=True, slots=True)
class Rule:
    """A named axiom.

    Attributes:
      name: what derivations and reports call it.
      identity: the axiom in ordinary notation.
      rewrite: the terms that the axiom makes of a term; none where it does not apply.
    """

    name: str
    identity: str
    rewrite: Rewrite


def _reduction(term: Term, op: str) -> Reduction | None:
    attr = term.attr
    return attr if term.op == op and isinstance(attr, Reduction) else None


def _pull(term: Term) -> Iterator[Term]:
    attr = _reduction(term, "sum")
    if attr is None:
        return
    parts, summed = factors(term.args[0]), set(attr.labels)
    outside = [f for f in parts if not summed & set(f.labels)]
    inside = [f for f in parts if summed & set(f.labels)]
    if outside and inside and summed <= {x for f in inside for x in f.labels}:
        inner = reduce("sum", mul(*inside), attr.labels, attr.dtype)
        yield mul(*outside, inner)


def _distribute(term: Term) -> Iterator[Term]:
    attr = _reduction(term, "sum")
    if attr is None:
        return
    parts, summed = factors(term.args[0]), set(attr.labels)
    for i, part in enumerate(parts):
        if part.op != "add" or not _has_outer_reduction(part, summed):
            continue
        others = parts[:i] + parts[i + 1 :]
        if part in others:  # Σ(x - μ)² as Σx² - nμ² cancels: a variance lost
            continue
        products = [mul(*others, a) for a in part.args]
        if all(summed <= set(p.labels) for p in products):
            sums = [reduce("sum", p, attr.labels, attr.dtype) for p in products]
            yield add(*sums)


def _has_outer_reduction(term: Term, summed: set[str]) -> bool:
    """Whether an addend has a reduced factor that does not vary along `summed`."""
    return any(
        not summed & set(f.labels) and any(map(is_reduction, subterms(f)))
        for a in term.args
        for f in factors(a)
    )


def _merge(term: Term) -> Iterator[Term]:
    inner = term.args[0] if is_reduction(term) else term
    if not is_reduction(term) or inner.op != term.op:
        return
    outer_attr, inner_attr = term.attr, inner.attr
    if isinstance(outer_attr, Reduction) and isinstance(inner_attr, Reduction):
        labels = outer_attr.labels + inner_attr.labels
        yield reduce(term.op, inner.args[0], labels, inner_attr.dtype)


def _spread(term: Term) -> Iterator[Term]:
    exponent = term.attr
    if term.op != "pow" or not isinstance(exponent, Fraction):
        return
    if exponent.denominator == 1 and term.args[0].op == "mul":
        yield mul(*(power(f, exponent) for f in factors(term.args[0])))


def _separate(term: Term) -> Iterator[Term]:
    attr = _reduction(term, "sum")
    if attr is None or term.args[0].op != "add":
        return
    addends = term.args[0].args
    if all(set(attr.labels) <= set(a.labels) for a in addends):
        sums = [reduce("sum", a, attr.labels, attr.dtype) for a in addends]
        yield make("add", sums)


AXIOMS: tuple[Rule, ...] = (
    Rule("pull", "Σk a·f(k) = a·Σk f(k)", _pull),
    Rule("distribute", "Σk f·(a + b) = Σk f·a + Σk f·b", _distribute),
    Rule("merge", "Σi Σj f = Σij f", _merge),
    Rule("spread", "(a·b)^n = a^n·b^n for whole n", _spread),
    Rule("separate", "Σk (f + g) = Σk f + Σk g", _separate),
)
