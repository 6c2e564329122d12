"""Splitting a label: a reduction in parts, over blocks, and a combination of the parts.

A label ℓ of extent n becomes (ℓo, ℓi); a reduction over ℓ becomes a reduction over ℓo
of a reduction over ℓi (split-K). Where the summed term scales with exp(c·m) for a
maximum m over the same label, each part takes its own maximum m' and is brought to the
common one by exp(c·(m - m')) when the parts are combined (split-KV): nothing overflows
that did not before, and a part in which everything is masked (m' = -inf) counts for
nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass

from ugraph.schedule import contains, degree, reduces
from ugraph.terms import (
    MINUS_ONE,
    Access,
    Factor,
    Reduction,
    Term,
    add,
    exp,
    extent,
    finite,
    iota,
    lit,
    make,
    mul,
    rebuild,
    reduce,
    ref,
    replace,
    subterms,
)


def outer(label: str, count: int) -> str:
    """The name of the label that counts the parts of `label`, split in `count`."""
    return f"{label}_{count}o"


def inner(label: str, count: int) -> str:
    """The name of the label that walks one part of `label`, split in `count`."""
    return f"{label}_{count}i"


@dataclass(frozen=True)
class _Split:
    """A label and the names of its two factors."""

    label: str
    outer: str
    inner: str

    def renamed(self, term: Term) -> Term:
        """`term` with the label read as (outer, inner) everywhere."""
        done: dict[Term, Term] = {}

        def visit(t: Term) -> Term:
            if t not in done:
                done[t] = self.rebuilt(t, tuple(visit(a) for a in t.args))
            return done[t]

        return visit(term)

    def rebuilt(self, term: Term, args: tuple[Term, ...]) -> Term:
        """`term` over renamed operands."""
        attr = term.attr
        if isinstance(attr, Access):
            axes = tuple(tuple(x for f in a for x in self._of(f)) for a in attr.axes)
            return make(term.op, (), attr._replace(axes=axes))
        if isinstance(attr, Reduction) and self.label in attr.labels:
            both = (*self._others(attr), self.outer, self.inner)
            return reduce(term.op, args[0], both, attr.dtype)
        if term.op == "iota" and attr == self.label:
            return add(mul(iota(self.outer), extent(self.inner)), iota(self.inner))
        return rebuild(term, args)

    def _of(self, factor: Factor) -> tuple[Factor, ...]:
        return (self.outer, self.inner) if factor == self.label else (factor,)

    def _others(self, attr: Reduction) -> tuple[str, ...]:
        return tuple(x for x in attr.labels if x != self.label)

    def part(self, op: str, body: Term, attr: Reduction) -> Term:
        """The reduction of one part: over the inner factor and the other labels."""
        return reduce(op, body, (*self._others(attr), self.inner), attr.dtype)


def split(
    roots: tuple[Term, ...], label: str, names: tuple[str, str]
) -> tuple[tuple[Term, ...], tuple[Term, ...]] | None:
    """`roots` with every reduction over `label` done in parts.

    Args:
      roots: terms none of which has `label` free.
      label: the label to split.
      names: the labels that count the parts and walk one part.

    Returns:
      The new roots and the partial results they combine, or None where a reduction over
      the label has no form in parts (it needs a whole reduction other than through the
      scale of an exponential).
    """
    how = _Split(label, *names)
    parts: dict[Term, None] = {}
    done: dict[Term, Term | None] = {}

    def visit(t: Term) -> Term | None:
        if t not in done:
            if reduces(t, label):
                done[t] = _in_parts(t, how, parts, visit)
            else:
                args = [visit(a) for a in t.args]
                known = tuple(a for a in args if a is not None)
                done[t] = how.rebuilt(t, known) if len(known) == len(args) else None
        return done[t]

    new = [visit(r) for r in roots]
    known = tuple(t for t in new if t is not None)
    return (known, tuple(parts)) if parts and len(known) == len(new) else None


def _in_parts(
    term: Term,
    how: _Split,
    parts: dict[Term, None],
    visit: Callable[[Term], Term | None],
) -> Term | None:
    body = term.args[0]
    own = [t for t in subterms(body) if reduces(t, how.label)]
    local: dict[Term, Term] = {}
    scales: list[Term] = []
    for shift in own:
        c = degree(term, shift) if shift.op in ("max", "min") else None
        common, inside = visit(shift), shift.args[0]
        if c is None or common is None or any(contains(inside, o) for o in own):
            return None
        part = how.part(shift.op, how.renamed(inside), _attr(shift))
        parts[part] = None
        local[ref(shift.digest, shift.labels)] = finite(part)
        if c != 0:
            moved = add(common, mul(MINUS_ONE, part))
            scales.append(exp(mul(lit(c), moved)))
    stand_ins = {s: ref(s.digest, s.labels) for s in own}
    opened = how.renamed(replace(body, stand_ins))
    part = how.part(term.op, replace(opened, local), _attr(term))
    parts[part] = None
    return reduce(term.op, mul(*scales, part), (how.outer,))


def _attr(term: Term) -> Reduction:
    return term.attr if isinstance(term.attr, Reduction) else Reduction(())
