"""Abstract expressions: what a tensor computes with element identity dropped.

Paper section 4. The normal form of an expression is a sum of monomials; a monomial is a
multiset of reduction labels (each stands for its size), of numerator atoms and of
denominator atoms; an atom is a tensor, a literal, or an opaque function of normal forms.
Commutativity, associativity, distributivity, (x·y)/z = x·(y/z) and Σi Σj = Σij hold by
construction. There is no cancellation: it would make everything a part of everything. So
"is a subexpression of" is inclusion of multisets, and no solver is needed.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from ugraph.ops import OPS
from ugraph.terms import Access, Reduction, Term

MOST_MONOMIALS = 256


@dataclass(frozen=True, slots=True)
class Monomial:
    """One product: sorted reduction labels, numerator and denominator atoms."""

    reductions: tuple[str, ...] = ()
    numerator: tuple[str, ...] = ()
    denominator: tuple[str, ...] = ()

    def times(self, other: "Monomial") -> "Monomial":
        """The product of two monomials."""
        return Monomial(
            tuple(sorted(self.reductions + other.reductions)),
            tuple(sorted(self.numerator + other.numerator)),
            tuple(sorted(self.denominator + other.denominator)),
        )

    def divides(self, other: "Monomial") -> bool:
        """Whether every part of this monomial is in `other`."""
        return all(
            not Counter(mine) - Counter(theirs)
            for mine, theirs in (
                (self.reductions, other.reductions),
                (self.numerator, other.numerator),
                (self.denominator, other.denominator),
            )
        )


Expression = tuple[Monomial, ...]


def _sorted(monomials: Iterable[Monomial]) -> Expression:
    return tuple(
        sorted(monomials, key=lambda m: (m.reductions, m.numerator, m.denominator))
    )


def _atom(name: str) -> Expression:
    return (Monomial(numerator=(name,)),)


def _product(parts: Iterable[Expression]) -> Expression | None:
    result: Expression = (Monomial(),)
    for part in parts:
        if len(result) * len(part) > MOST_MONOMIALS:
            return None
        result = _sorted(a.times(b) for a in result for b in part)
    return result


@lru_cache(maxsize=1 << 16)
def expression(term: Term) -> Expression:
    """The normal form of the abstract expression of `term`."""
    parts = [expression(a) for a in term.args]
    match OPS[term.op].abstract:
        case "leaf":
            return _leaf(term)
        case "same":
            return parts[-1]
        case "add":
            return _sorted(m for p in parts for m in p)
        case "mul":
            return _product(parts) or _opaque(term, parts)
        case "pow":
            return _power(term, parts[0])
        case "sum" if isinstance(term.attr, Reduction):
            bound = Monomial(reductions=term.attr.labels)
            return _sorted(m.times(bound) for m in parts[0])
    return _opaque(term, parts)


def _leaf(term: Term) -> Expression:
    if term.op == "lit" and term.attr == 1:
        return (Monomial(),)
    attr = term.attr
    return _atom(attr.tensor if isinstance(attr, Access) else f"{term.op}:{attr}")


def _power(term: Term, base: Expression) -> Expression:
    exponent = term.attr
    if isinstance(exponent, Fraction) and exponent.denominator == 1:
        whole = int(exponent)
        if 0 < whole <= 3:
            return _product([base] * whole) or _opaque(term, [base])
        if whole < 0 and len(base) == 1 and not base[0].reductions:
            one = Monomial((), base[0].denominator, base[0].numerator)
            return _product([(one,)] * -whole) or _opaque(term, [base])
        if whole < 0:
            return (Monomial(denominator=(_name(base),) * -whole),)
    return _opaque(term, [base])


def _name(part: Expression) -> str:
    return "(" + " + ".join(map(_monomial_name, part)) + ")"


def _monomial_name(m: Monomial) -> str:
    top = "·".join(m.numerator) or "1"
    bottom = "/" + "·".join(m.denominator) if m.denominator else ""
    return f"Σ{','.join(m.reductions)} {top}{bottom}" if m.reductions else top + bottom


def _opaque(term: Term, parts: list[Expression]) -> Expression:
    detail = term.attr.labels if isinstance(term.attr, Reduction) else term.attr
    return _atom(f"{term.op}[{detail}]{'|'.join(map(_name, parts))}")


def is_part(small: Expression, large: Expression) -> bool:
    """Whether `small` can be extended to `large` by the axioms (A_sub of the paper).

    Each monomial of `small` must divide a distinct monomial of `large`, all with the same
    cofactor being left free.
    """
    left = list(large)
    for monomial in small:
        match = next((m for m in left if monomial.divides(m)), None)
        if match is None:
            return False
        left.remove(match)
    return True
