"""The order of a block's ops: by depth, with the fewest barriers.

Threads must meet between a value and its use where the use reads what other threads
made: an operand of a matrix product (it goes through shared memory), and the result of
a reduction (its parts are combined through shared memory). The depth of a value is the
largest number of such meetings on a path to it. Values are ordered by depth, so that
one barrier serves all meetings of a depth: as many barriers as the deepest path has,
which no order can undercut.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from ugraph.graph import BlockGraph
from ugraph.optimize.places import Place, is_dot, operands, places
from ugraph.optimize.threads import CONSTANTS
from ugraph.terms import Ref, Term, is_reduction


@dataclass(frozen=True, slots=True)
class Ordered:
    """The ops of one place in order.

    Attributes:
      place: the part of the block graph.
      terms: loads, elementwise ops, reductions and matrix products.
      barriers: positions in `terms` before which all threads meet.
      looped: done in every iteration.
    """

    place: str
    terms: tuple[Term, ...]
    barriers: tuple[int, ...]
    looped: bool


def order(kernel: BlockGraph, sizes: Mapping[str, int]) -> tuple[Ordered, ...]:
    """The ops of every place of `kernel`; between places threads meet anyway."""
    return tuple(_ordered(p, sizes) for p in places(kernel, sizes))


def meets(made: Term, use: Term, sizes: Mapping[str, int]) -> bool:
    """Whether threads must meet between a value and its use."""
    if made.op in CONSTANTS or made.op == "ref":
        return False
    if is_dot(use, sizes):
        return True
    return is_reduction(made) and not is_dot(made, sizes)


def depths(place: Place, sizes: Mapping[str, int]) -> dict[Term, int]:
    """The number of meetings on the longest path to each value of a place."""
    found: dict[Term, int] = {}
    for term in place.values:
        before = [
            found[a] + meets(a, term, sizes)
            for a in _waits_for(term, place, sizes)
            if a in found
        ]
        found[term] = max(before, default=0)
    return found


def _waits_for(term: Term, place: Place, sizes: Mapping[str, int]) -> tuple[Term, ...]:
    """A value's operands; of an accumulator's new value, this iteration's part."""
    attr = term.attr
    if isinstance(attr, Ref) and attr.when == "now" and attr.name in place.folded:
        return (place.folded[attr.name],)
    return operands(term, sizes)


def _ordered(place: Place, sizes: Mapping[str, int]) -> Ordered:
    depth = depths(place, sizes)
    ops = [t for t in place.values if t.op not in CONSTANTS and t.op != "ref"]
    terms = tuple(sorted(ops, key=lambda t: depth[t]))
    barriers = tuple(
        i for i in range(1, len(terms)) if depth[terms[i]] != depth[terms[i - 1]]
    )
    return Ordered(place.name, terms, barriers, place.looped)
