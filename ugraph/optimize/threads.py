"""Thread graphs: elementwise chains whose values stay in registers.

Made by rule, not searched: an elementwise value joins the thread graph of its users
when all of them are elementwise, in the same place, and in one thread graph. So a
thread graph is a tree of elementwise ops with one result; what it reads are tiles
(loads, results of reductions and matrix products, accumulators, results of other thread
graphs).
"""

from collections.abc import Mapping
from dataclasses import dataclass

from ugraph.graph import BlockGraph
from ugraph.optimize.places import Place, is_map, operands, pass_roots, places
from ugraph.terms import Term

CONSTANTS = frozenset({"lit", "int", "iota", "extent"})


@dataclass(frozen=True, slots=True)
class ThreadGraph:
    """One elementwise tree of a block graph.

    Attributes:
      name: unique in its block graph.
      place: the part of the block graph it belongs to.
      inputs: the tiles it reads, in order of first use; constants are not tiles.
      term: its result.
      ops: its elementwise values, operands first; the last one is `term`.
    """

    name: str
    place: str
    inputs: tuple[Term, ...]
    term: Term
    ops: tuple[Term, ...]


def threads(kernel: BlockGraph, sizes: Mapping[str, int]) -> tuple[ThreadGraph, ...]:
    """The thread graphs of `kernel`, in order of evaluation."""
    found = places(kernel, sizes)
    users = _users(found, sizes)
    roots = {t for walk in kernel.passes for t in pass_roots(walk)}
    roots |= {s.term for s in kernel.stores}
    made: list[ThreadGraph] = []
    for place in found:
        groups = _groups(place, users, roots)
        for result, ops in groups.items():
            name = f"thread{len(made)}"
            made.append(ThreadGraph(name, place.name, _inputs(ops), result, ops))
    return tuple(made)


def _users(
    found: tuple[Place, ...], sizes: Mapping[str, int]
) -> dict[tuple[str, Term], set[tuple[str, Term]]]:
    """For a value in a place, the values that use it and their places."""
    users: dict[tuple[str, Term], set[tuple[str, Term]]] = {}
    home: dict[Term, str] = {}
    for place in found:
        here = set(place.values)
        for term in place.values:
            for a in operands(term, sizes):
                where = place.name if a in here else home.get(a, place.name)
                users.setdefault((where, a), set()).add((place.name, term))
        if not place.looped:
            home |= dict.fromkeys(place.values, place.name)
    return users


def _groups(
    place: Place,
    users: Mapping[tuple[str, Term], set[tuple[str, Term]]],
    roots: set[Term],
) -> dict[Term, tuple[Term, ...]]:
    """Result to members, both in the order of the place's values."""
    result: dict[Term, Term] = {}
    for term in reversed(place.values):
        if not is_map(term):
            continue
        used = users.get((place.name, term), set())
        owners = {result.get(t) if where == place.name else None for where, t in used}
        joins = len(owners) == 1 and None not in owners and term not in roots
        result[term] = next(o for o in owners if o) if joins else term
    members: dict[Term, list[Term]] = {}
    for term in place.values:
        if term in result:
            members.setdefault(result[term], []).append(term)
    ordered = sorted(members, key=place.values.index)
    return {r: tuple(members[r]) for r in ordered}


def _inputs(ops: tuple[Term, ...]) -> tuple[Term, ...]:
    read = (a for t in ops for a in t.args if a not in ops and a.op not in CONSTANTS)
    return tuple(dict.fromkeys(read))
