"""Abstract expressions: what a tensor computes with element identity dropped.

Paper section 4. The normal form of an expression is a sum of monomials; a monomial is a
multiset of reduction labels (each stands for its size), of numerator atoms and of
denominator atoms; an atom is a tensor, a literal, or an opaque function of normal
forms. Commutativity, associativity, distributivity, (x·y)/z = x·(y/z) and Σi Σj = Σij
hold by construction. There is no cancellation: it would make everything a part of
everything. So "is a subexpression of" is inclusion of multisets, and no solver is
needed.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from ugraph.ops import OPS
from ugraph.terms import Access, Reduction, Term, factors

MOST_MONOMIALS = 256
HIGHEST_POWER = 16


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

    def over(self, part: "Monomial") -> "Monomial":
        """What is left of the monomial without a part of it."""
        return Monomial(
            _without(self.reductions, part.reductions),
            _without(self.numerator, part.numerator),
            _without(self.denominator, part.denominator),
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


def _without(names: tuple[str, ...], taken: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(sorted((Counter(names) - Counter(taken)).elements()))


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
    found: Expression | None = None
    match OPS[term.op].abstract:
        case "leaf":
            found = _leaf(term)
        case "same":
            found = parts[-1]
        case "add":
            found = _sorted(m for p in parts for m in p)
        case "mul":
            found = _product(parts)
        case "pow":
            found = _power(term)
        case "sum" if isinstance(term.attr, Reduction):
            bound = Monomial(reductions=term.attr.labels)
            found = _sorted(m.times(bound) for m in parts[0])
    return found or _opaque(term, parts)


def _leaf(term: Term) -> Expression:
    if term.op == "lit" and term.attr == 1:
        return (Monomial(),)
    attr = term.attr
    return _atom(attr.tensor if isinstance(attr, Access) else f"{term.op}:{attr}")


def _power(term: Term) -> Expression:
    """A whole power of a product is the product of its factors' powers."""
    exponent = term.attr
    bases = [expression(f) for f in factors(term.args[0])]
    if not isinstance(exponent, Fraction) or exponent.denominator != 1:
        return _opaque(term, [expression(term.args[0])])
    count = abs(int(exponent))
    parts: list[Expression] = []
    for base in bases:
        one = base if exponent > 0 else _inverse(base)
        power = _product([one] * count) if count <= HIGHEST_POWER else None
        parts.append(power or _atom(f"pow[{exponent}]{_name(base)}"))
    return _product(parts) or _opaque(term, parts)


def _inverse(base: Expression) -> Expression:
    """1 / base: what all monomials share is turned over, the rest is one atom."""
    shared = _shared(base)
    rest = _sorted(m.over(shared) for m in base)
    bound = tuple(f"Σ{label}" for label in shared.reductions)
    below = shared.numerator + bound
    if rest != (Monomial(),):
        below += (_name(rest),)
    return (Monomial((), shared.denominator, tuple(sorted(below))),)


def _shared(base: Expression) -> Monomial:
    def common(lists: list[tuple[str, ...]]) -> tuple[str, ...]:
        least = Counter(lists[0])
        for other in lists[1:]:
            least &= Counter(other)
        return tuple(sorted(least.elements()))

    return Monomial(
        common([m.reductions for m in base]),
        common([m.numerator for m in base]),
        common([m.denominator for m in base]),
    )


def _name(part: Expression) -> str:
    return "(" + " + ".join(map(_monomial_name, part)) + ")"


def _monomial_name(m: Monomial) -> str:
    top = "·".join(m.numerator) or "1"
    bottom = "/" + "·".join(m.denominator) if m.denominator else ""
    return f"Σ{','.join(m.reductions)} {top}{bottom}" if m.reductions else top + bottom


def _opaque(term: Term, parts: list[Expression]) -> Expression:
    detail = term.attr
    if isinstance(detail, Reduction):
        labels, inner = detail.labels, term.args[0]
        while inner.op == term.op and isinstance(inner.attr, Reduction):
            labels, inner = labels + inner.attr.labels, inner.args[0]
        detail, parts = tuple(sorted(labels)), [expression(inner)]
    return _atom(f"{term.op}[{detail}]{'|'.join(map(_name, parts))}")


def is_part(small: Expression, large: Expression) -> bool:
    """Whether `small` can be extended to `large` by the axioms (A_sub of the paper).

    Each monomial of `small` must divide a distinct monomial of `large`, all with the
    same cofactor being left free.
    """
    left = list(large)
    for monomial in small:
        match = next((m for m in left if monomial.divides(m)), None)
        if match is None:
            return False
        left.remove(match)
    return True
