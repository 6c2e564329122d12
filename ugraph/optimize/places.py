"""Where a block evaluates what: prologue, loop bodies, epilogue.

The values of a block are its terms, a matrix product being one value of two operands.
A value that changes in every iteration belongs to its pass; one that does not is
evaluated once, before the first pass that uses it or in the epilogue.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ugraph.contraction import as_contraction
from ugraph.graph import BlockGraph, Pass
from ugraph.ops import OPS, Kind
from ugraph.profile import varies
from ugraph.terms import Term, mul


@dataclass(frozen=True, slots=True)
class Place:
    """One part of a block graph.

    Attributes:
      name: `prologue`, `pass 0`, `before pass 1`, `pass 1`..., `epilogue`.
      values: what is evaluated there, operands first.
      looped: evaluated in every iteration, or else once.
      folded: bodies of the pass's own accumulators, by name: what a reference waits
      for.
    """

    name: str
    values: tuple[Term, ...]
    looped: bool
    folded: Mapping[str, Term]


def operands(term: Term, sizes: Mapping[str, int]) -> tuple[Term, ...]:
    """The operands of a value; of a matrix product, its two factors."""
    made = as_contraction(term, sizes)
    return term.args if made is None else (mul(*made.left), mul(*made.right))


def is_dot(term: Term, sizes: Mapping[str, int]) -> bool:
    """Whether a matrix unit computes the value."""
    return as_contraction(term, sizes) is not None


def is_map(term: Term) -> bool:
    """Whether the value is elementwise in its operands."""
    return OPS[term.op].kind is Kind.MAP


def values(roots: Iterable[Term], sizes: Mapping[str, int]) -> tuple[Term, ...]:
    """Every value that `roots` need, operands first; deterministic."""
    seen: dict[Term, None] = {}

    def visit(term: Term) -> None:
        if term not in seen:
            for a in operands(term, sizes):
                visit(a)
            seen[term] = None

    for root in roots:
        visit(root)
    return tuple(seen)


def pass_roots(walk: Pass) -> tuple[Term, ...]:
    """The values that a pass accumulates, rescales by, or stores."""
    scales = (a.rescale for a in walk.accumulators if a.rescale is not None)
    bodies = (a.body for a in walk.accumulators)
    return (*bodies, *scales, *(s.term for s in walk.stores))


def places(kernel: BlockGraph, sizes: Mapping[str, int]) -> tuple[Place, ...]:
    """The places of `kernel` in the order of evaluation, empty ones left out."""
    label = kernel.loop.label if kernel.loop else None
    once: dict[Term, None] = {}
    found: list[Place] = []
    for i, walk in enumerate(kernel.passes):
        here = {a.name: a.body for a in walk.accumulators}
        needed = values(pass_roots(walk), sizes)
        body = tuple(t for t in needed if varies(t, label, set(here)))
        early = tuple(t for t in needed if t not in set(body) and t not in once)
        once.update(dict.fromkeys(early))
        name = f"before pass {i}" if i else "prologue"
        found += [Place(name, early, False, {}), Place(f"pass {i}", body, True, here)]
    last = values((s.term for s in kernel.stores), sizes)
    late = tuple(t for t in last if t not in once)
    found.append(Place("epilogue", late, False, {}))
    return tuple(p for p in found if p.values)
