"""Seeing a matrix product in a sum of a product.

`sum[k](a[m,k] * b[k,n])` is a matrix product when its factors fall into two operands,
each with a label the other lacks, both with every summed label.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from ugraph.terms import Reduction, Term, factors


@dataclass(frozen=True, slots=True)
class Contraction:
    """A matrix product: out[batch, rows, columns] = Σ_contracted left · right.

    Attributes:
      left: factors of the left operand.
      right: factors of the right operand.
      batch: labels of both operands and of the result.
      rows: labels of the left operand alone.
      columns: labels of the right operand alone.
      contracted: labels summed over.
      dtype: dtype the operands may be rounded to.
    """

    left: tuple[Term, ...]
    right: tuple[Term, ...]
    batch: tuple[str, ...]
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    contracted: tuple[str, ...]
    dtype: str


def labels_of(terms: tuple[Term, ...]) -> frozenset[str]:
    """The union of the terms' labels."""
    return frozenset(label for t in terms for label in t.labels)


def as_contraction(term: Term, sizes: Mapping[str, int]) -> Contraction | None:
    """The matrix product that `term` is, or None.

    The two factors that have every summed label and differ most become the operands'
    cores; each other factor joins the operand that covers its labels, the smaller one
    where both do.
    """
    if term.op != "sum" or not isinstance(term.attr, Reduction):
        return None
    summed, parts = set(term.attr.labels), factors(term.args[0])
    cores = [f for f in parts if summed <= set(f.labels)]
    pairs = [
        (a, b)
        for i, a in enumerate(cores)
        for b in cores[i + 1 :]
        if set(a.labels) - set(b.labels) and set(b.labels) - set(a.labels)
    ]
    if not pairs:
        return None

    def volume(labels: frozenset[str]) -> int:
        return prod(sizes[label] for label in labels)

    first, second = max(pairs, key=lambda p: volume(labels_of(p)))
    sides = [[first], [second]]
    rest = list(parts)
    rest.remove(first)
    rest.remove(second)
    for f in rest:
        covers = [s for s in sides if set(f.labels) <= labels_of(tuple(s))]
        if not covers:
            return None
        min(covers, key=lambda s: volume(labels_of(tuple(s)))).append(f)
    left, right = (tuple(s) for s in sides)
    of_left, of_right = labels_of(left), labels_of(right)

    def pick(labels: frozenset[str]) -> tuple[str, ...]:
        return tuple(sorted(labels - summed))

    return Contraction(
        left=left,
        right=right,
        batch=pick(of_left & of_right),
        rows=pick(of_left - of_right),
        columns=pick(of_right - of_left),
        contracted=tuple(sorted(summed)),
        dtype=term.attr.dtype,
    )
