"""From terms to a block graph: where an op runs follows from its labels.

Given the labels that the grid takes and the one label that the loop walks, every term
has its place: it depends on the loop's label → loop body; it reduces the loop's label →
an accumulator; it depends on accumulated values only → a later pass or the epilogue. A
value reduced over the loop's label cannot feed the same pass, with one exception: a
running maximum may, if everything that is accumulated from it scales with
exp(-maximum); then the accumulator is rescaled whenever the maximum moves. Both ways
are offered. While nothing but -inf has been seen the shift is taken as zero (`finite`),
so that no NaN arises.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction

from ugraph.graph import Accumulator, BlockGraph, Pass, Range
from ugraph.program import Store, bound_labels
from ugraph.terms import (
    MINUS_ONE,
    Reduction,
    Term,
    add,
    exp,
    finite,
    is_reduction,
    lit,
    mul,
    rebuild,
    ref,
    replace,
    subterms,
)


def reduces(term: Term, label: str | None) -> bool:
    """Whether `term` is a reduction over `label`."""
    return isinstance(term.attr, Reduction) and label in term.attr.labels


def contains(term: Term, part: Term) -> bool:
    """Whether `part` is a subterm of `term`."""
    return term is part or part in subterms(term)


def degree(term: Term, shift: Term) -> Fraction | None:
    """The c for which term(shift + δ) = exp(c·δ) · term(shift); None if there is none.

    Sound by the laws of exp alone: products add degrees, powers multiply them, sums and
    selections need equal ones. A sum over a label of the shift has none: its addends
    scale by different factors.
    """
    if not contains(term, shift):
        return Fraction(0)
    degrees = [degree(a, shift) for a in term.args]
    found = None
    match term.op:
        case "exp":
            found = slope(term.args[0], shift)
        case "mul":
            found = _total(degrees)
        case "pow" if degrees[0] is not None and isinstance(term.attr, Fraction):
            found = degrees[0] * term.attr
        case "add":
            found = _common(zip(term.args, degrees, strict=True))
        case "sum" if not any(reduces(term, label) for label in shift.labels):
            found = _common(zip(term.args, degrees, strict=True))
        case "select" if degrees[0] == 0:
            found = _common(zip(term.args[1:], degrees[1:], strict=True))
    return found


def slope(term: Term, shift: Term) -> Fraction | None:
    """The c for which term(shift + δ) = term(shift) + c·δ, or None."""
    if not contains(term, shift) or term is shift:
        return Fraction(term is shift)
    found = None
    match term.op:
        case "finite":
            found = slope(term.args[0], shift)
        case "add":
            found = _total([slope(a, shift) for a in term.args])
        case "mul":
            found = _scaled(term, shift)
        case "select" if not contains(term.args[0], shift):
            branches = [a for a in term.args[1:] if a.attr != float("-inf")]
            found = _only({slope(a, shift) for a in branches})
    return found


def _scaled(term: Term, shift: Term) -> Fraction | None:
    """The slope of a product: one factor has the shift, the others are literals."""
    (first, *more) = (a for a in term.args if contains(a, shift))
    scale = slope(first, shift)
    if more or scale is None:
        return None
    for a in term.args:
        if a is not first:
            if a.op != "lit" or not isinstance(a.attr, Fraction):
                return None
            scale *= a.attr
    return scale


def _total(degrees: list[Fraction | None]) -> Fraction | None:
    known = [d for d in degrees if d is not None]
    return sum(known, Fraction(0)) if len(known) == len(degrees) else None


def _common(parts: Iterable[tuple[Term, Fraction | None]]) -> Fraction | None:
    """The one degree of all parts; a literal zero has every degree."""
    return _only({d for t, d in parts if not (t.op == "lit" and t.attr == 0)})


def _only(found: set[Fraction | None]) -> Fraction | None:
    return found.pop() if len(found) == 1 else None


@dataclass
class _Schedule:
    """Places of the terms of one block for a loop over `label` (local to `block`)."""

    label: str
    online: bool
    places: dict[Term, int] = field(default_factory=dict)

    def place(self, term: Term) -> int:
        """The pass in which `term` can be computed at the earliest."""
        if term not in self.places:
            places = [self._after(a) for a in term.args]
            self.places[term] = max(places, default=0)
        return self.places[term]

    def _after(self, term: Term) -> int:
        if not reduces(term, self.label):
            return self.place(term)
        running = self.online and term.op in ("max", "min")
        return self.place(term) + (0 if running else 1)

    def running(self, term: Term) -> tuple[Term, ...]:
        """Maxima under `term` that are still moving in the pass of `term`."""
        if not self.online:
            return ()
        return tuple(
            t
            for t in subterms(term)
            if t is not term
            and reduces(t, self.label)
            and t.op in ("max", "min")
            and self.place(t) == self.place(term)
        )

    def settled(self, term: Term) -> int:
        """The pass in which `term` may be stored: no maximum under it still moves."""
        return self.place(term) + (1 if self.running(term) else 0)


def block(
    name: str,
    stores: tuple[Store, ...],
    grid: tuple[Range, ...],
    loop: Range | None,
    *,
    online: bool = True,
) -> BlockGraph | None:
    """The block graph that computes `stores`, or None if there is none of this kind.

    Args:
      name: the kernel's name.
      stores: what it writes.
      grid: labels the grid partitions; every store must have them all.
      loop: the label to walk, or None to keep everything whole in the tile.
      online: let running maxima feed the pass that computes them.
    """
    if loop is None:
        return BlockGraph(name, grid, None, (), stores)
    schedule = _Schedule(loop.label, online)
    accumulated = [t for t in subterms(*_terms(stores)) if reduces(t, loop.label)]
    if not accumulated:
        return None
    names = {t: f"acc{i}" for i, t in enumerate(accumulated)}
    passes: dict[int, list[Accumulator]] = {}
    for term in accumulated:
        made = _accumulator(term, schedule, names)
        if made is None:
            return None
        passes.setdefault(schedule.place(term), []).append(made)
    walked = {f for r in (loop,) for f in (r.label,)}
    inside = [s for s in stores if walked & set(s.term.labels)]
    for store in inside:
        passes.setdefault(schedule.settled(store.term), [])
    walks = tuple(
        Pass(
            tuple(passes.get(i, ())),
            tuple(
                _with_refs(s, names) for s in inside if schedule.settled(s.term) == i
            ),
        )
        for i in range(max(passes) + 1)
    )
    epilogue = tuple(_with_refs(s, names) for s in stores if s not in inside)
    return BlockGraph(name, grid, loop, walks, epilogue)


def _terms(stores: tuple[Store, ...]) -> tuple[Term, ...]:
    return tuple(s.term for s in stores)


def _accumulator(
    term: Term, schedule: _Schedule, names: dict[Term, str]
) -> Accumulator | None:
    scales, safe = [], {}
    for shift in schedule.running(term):
        c = degree(term, shift) if term.op == "sum" else None
        if c is None:
            return None
        if c != 0:
            now = finite(_ref(shift, names))
            moved = add(_ref(shift, names, "before"), mul(MINUS_ONE, now))
            scales.append(exp(mul(lit(-c), moved)))
            safe[_ref(shift, names)] = now
    inner = replace(refer(term.args[0], names), safe)
    body = rebuild(term, (inner,))
    rescale = mul(*scales) if scales else None
    return Accumulator(names[term], term.op, body, rescale)


def _ref(term: Term, names: dict[Term, str], when: str = "now") -> Term:
    return ref(names[term], term.labels, when)


def refer(term: Term, names: dict[Term, str]) -> Term:
    """`term` with accumulated subterms replaced by references, outermost first."""
    done: dict[Term, Term] = {}

    def visit(t: Term) -> Term:
        if t in names and is_reduction(t):
            return _ref(t, names)
        if t not in done:
            done[t] = rebuild(t, tuple(visit(a) for a in t.args))
        return done[t]

    return visit(term)


def _with_refs(store: Store, names: dict[Term, str]) -> Store:
    return Store(store.tensor, store.axes, refer(store.term, names))


def grid_labels(stores: tuple[Store, ...]) -> tuple[str, ...]:
    """Labels that a grid may take: every store has them, no reduction binds them."""
    bound = bound_labels(*(s.term for s in stores))
    return tuple(
        f
        for axis in stores[0].axes
        for f in axis
        if isinstance(f, str)
        and f not in bound
        and all(any(f in a for a in s.axes) for s in stores)
    )


def structures(stores: tuple[Store, ...]) -> Iterator[BlockGraph]:
    """Every block graph for the stores, sizes open: grid × loop × online."""
    bound = bound_labels(*(s.term for s in stores))
    grid = tuple(Range(label, 1) for label in grid_labels(stores))
    whole = block("kernel", stores, grid, None)
    if whole is not None:
        yield whole
    for label in bound:
        seen = set()
        for online in (True, False):
            made = block("kernel", stores, grid, Range(label, 1), online=online)
            if made is not None and made not in seen:
                seen.add(made)
                yield made
