"""Partition: which equations of a flat program form regions, and what stays with XLA.

Three steps. *Levels*: a liftable equation's level is the number of refused equations on
the longest path to it, so that equations of one level have no refused equation between
them: the connected components of a level are convex, and contracting all of them leaves
a graph without cycles. *Cheap equations* (a broadcast, a widening cast, anything made
of constants only) belong to no region: every region that reads one computes it for
itself. *Cuts*: a component with more reductions and contractions than a search can take
is cut where the fewest and smallest values cross, which is between the layers of a
model.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from mirage_jax import _compat
from mirage_jax.inline import Flat

# A component is cut when it has more contractions and reductions than `MOST_HEAVY`,
# into pieces of at least `LEAST_HEAVY` where that is possible.
MOST_HEAVY = 12
LEAST_HEAVY = 3


@dataclass(frozen=True)
class Group:
    """Equations of a flat program that become a region.

    Attributes:
      owned: positions of the equations it replaces.
      copied: positions of cheap equations it computes for itself.
      invars: what it reads.
      outvars: what others read of it.
    """

    owned: tuple[int, ...]
    copied: tuple[int, ...]
    invars: tuple[Any, ...]
    outvars: tuple[Any, ...]

    @property
    def members(self) -> tuple[int, ...]:
        """Positions of all it computes, in program order."""
        return tuple(sorted((*self.owned, *self.copied)))


Crossing = tuple[int, int]
Refusal = Callable[[Any], str | None]
Judge = Callable[[Group], Mapping[int, str]]


@dataclass(frozen=True)
class Partition:
    """Where every live equation of a flat program goes.

    Attributes:
      groups: the regions to be, in program order.
      refused: position of each refused equation and why.
      light: positions of liftable equations in no group: nothing there reduces.
    """

    groups: tuple[Group, ...]
    refused: Mapping[int, str]
    light: tuple[int, ...]


def partition(flat: Flat, refusal: Refusal, judge: Judge) -> Partition:
    """Splits the live equations of `flat` into groups and the rest.

    Args:
      flat: the program.
      refusal: why an equation alone cannot be in a region, or None.
      judge: which of a group's equations cannot be there after all, seen together,
        and why. They are refused, and the rest is split anew.
    """
    judged: dict[int, str] = {}
    while True:
        found = _partition(flat, refusal, judged)
        worse = {i: why for g in found.groups for i, why in judge(g).items()}
        if not worse.keys() - judged.keys():
            return found
        judged |= worse


def _partition(flat: Flat, refusal: Refusal, judged: Mapping[int, str]) -> Partition:
    graph = _Graph(flat, refusal, judged)
    levels = graph.levels()
    components = graph.components(levels)
    light = [c for c in components if not graph.heavy(c)]
    if light:
        graph.sink(levels, {i for c in light for i in c})
        components = graph.components(levels)
    pieces = [p for c in components if graph.heavy(c) for p in graph.cut(c)]
    pieces = sorted(p for p in pieces if graph.heavy(p))
    inside = {i for p in pieces for i in p}
    rest = sorted(graph.liftable - inside - graph.cheap)
    groups = graph.close(pieces, rest)
    return Partition(groups, graph.refused, tuple(rest))


class _Graph:
    """The live equations of a flat program and who feeds whom."""

    def __init__(self, flat: Flat, refusal: Refusal, judged: Mapping[int, str]) -> None:
        self.flat = flat
        self.eqns = flat.eqns
        self.order = sorted(flat.live)
        self.producer = {v: i for i in self.order for v in self.eqns[i].outvars}
        self.outputs = {v for v in flat.outvars if not _compat.is_literal(v)}
        self.refused: dict[int, str] = {}
        for i in self.order:
            reason = judged.get(i) or _reason(self.eqns[i], refusal)
            if reason is not None:
                self.refused[i] = reason
        self.liftable = flat.live - self.refused.keys()
        self.cheap = self._cheap()
        self.weight = {i: weight(self.eqns[i]) for i in self.liftable}

    def feeds(self, i: int) -> list[int]:
        """Positions of the equations that `i` reads."""
        atoms = variables(self.eqns[i].invars)
        return [self.producer[v] for v in atoms if v in self.producer]

    def heavy(self, members: Iterable[int]) -> int:
        """Number of contractions and reductions among `members`."""
        return sum(self.weight[i] for i in members)

    def _cheap(self) -> frozenset[int]:
        """Liftable equations that every reader may compute for itself."""
        constant: set[int] = set()
        cheap: set[int] = set()
        for i in self.order:
            eqn = self.eqns[i]
            if i not in self.liftable or weight(eqn):
                continue
            feeds = self.feeds(i)
            known = len(variables(eqn.invars)) == len(feeds)
            if known and constant.issuperset(feeds):
                constant.add(i)
                continue
            view = known and eqn.primitive.name in _VIEWS
            if _widens(eqn) or (view and cheap.issuperset(feeds)):
                cheap.add(i)
        return frozenset(constant | cheap)

    def levels(self) -> dict[int, int]:
        """Number of refused equations on the longest path to each equation."""
        level: dict[int, int] = {}
        for i in self.order:
            step = i in self.liftable
            level[i] = max(
                (level[p] + (step and p in self.refused) for p in self.feeds(i)),
                default=0,
            )
        return level

    def sink(self, level: dict[int, int], movable: set[int]) -> None:
        """Moves `movable` equations to the level of their first reader, in place."""
        earliest: dict[int, int] = {}
        for i in reversed(self.order):
            output = not self.outputs.isdisjoint(self.eqns[i].outvars)
            if i in movable and i in earliest and not output:
                level[i] = max(level[i], earliest[i])
            for p in self.feeds(i):
                earliest[p] = min(earliest.get(p, level[i]), level[i])

    def components(self, level: Mapping[int, int]) -> list[list[int]]:
        """Connected liftable equations of one level; cheap ones only connect."""
        parent = {i: i for i in self.order}

        def root(i: int) -> int:
            while parent[i] != i:
                parent[i] = parent[parent[i]]
                i = parent[i]
            return i

        for i in self.order:
            if i not in self.liftable or i in self.cheap:
                continue
            for v in self.reads(i):
                p = self.producer.get(v, -1)
                if p in self.liftable and level[p] == level[i]:
                    parent[root(p)] = root(i)
        found: dict[int, list[int]] = {}
        for i in self.order:
            if i in self.liftable and i not in self.cheap:
                found.setdefault(root(i), []).append(i)
        return list(found.values())

    def reads(self, i: int) -> list[Any]:
        """The variables that `i` reads, seen through cheap equations."""
        found: dict[Any, None] = {}
        stack = variables(self.eqns[i].invars)
        while stack:
            v = stack.pop()
            maker = self.producer.get(v)
            if maker in self.cheap:
                stack += variables(self.eqns[maker].invars)
            else:
                found[v] = None
        return list(found)

    def cut(self, members: Sequence[int]) -> list[list[int]]:
        """Splits a component that is too large where least crosses.

        Once it is cut somewhere, it is cut wherever no more crosses than there, so that
        equal layers make equal pieces.
        """
        pieces, rest = [], list(members)
        narrow: Crossing | None = None
        while True:
            crossing = self._crossing(rest)
            large = self.heavy(rest) > MOST_HEAVY
            places = self._places(rest)
            if not large:
                if narrow is None:
                    break
                places = [n for n in places if crossing[n] <= narrow]
            if not places:
                break
            at = min(places, key=lambda n: (crossing[n], n))
            narrow = max(narrow or crossing[at], crossing[at]) if large else narrow
            pieces.append(rest[:at])
            rest = rest[at:]
        return [*pieces, rest]

    def _places(self, members: Sequence[int]) -> list[int]:
        """Where a first piece of the right size may end."""
        total, seen, places = self.heavy(members), 0, []
        for n, i in enumerate(members, start=1):
            seen += self.weight[i]
            if seen > MOST_HEAVY:
                # An equation may weigh more than the limit by itself.
                return places or [max(1, n - 1)]
            if seen >= LEAST_HEAVY and total - seen >= LEAST_HEAVY:
                places.append(n)
        return places

    def _crossing(self, members: Sequence[int]) -> dict[int, Crossing]:
        """How many values, of how many bytes, are needed on both sides of a place."""
        place = {i: n for n, i in enumerate(members)}
        first: dict[Any, int] = {}
        last: dict[Any, int] = {}
        for i in members:
            for v in self.reads(i):
                made = self.producer.get(v, -1)
                first.setdefault(v, place.get(made, place[i]))
                last[v] = place[i]
        count = [0] * (len(members) + 1)
        size = list(count)
        for v, end in last.items():
            for n in range(first[v] + 1, end + 1):
                count[n] += 1
                size[n] += _bytes(v.aval)
        return dict(enumerate(zip(count, size, strict=True)))

    def close(
        self, pieces: Sequence[Sequence[int]], rest: Sequence[int]
    ) -> tuple[Group, ...]:
        """Adds to each piece its cheap equations, its inputs and its outputs."""
        copied = [self._copies(p) for p in pieces]
        inputs = [
            self._inputs(sorted({*p, *c})) for p, c in zip(pieces, copied, strict=True)
        ]
        read = set(self.outputs).union(*inputs)
        for i in [*self.refused, *rest]:
            read.update(variables(self.eqns[i].invars))
        for i in sorted(self.cheap, reverse=True):
            if not read.isdisjoint(self.eqns[i].outvars):
                read.update(variables(self.eqns[i].invars))
        groups = []
        for piece, cheap, invars in zip(pieces, copied, inputs, strict=True):
            made = [v for i in piece for v in self.eqns[i].outvars]
            outvars = tuple(v for v in made if v in read)
            if outvars:
                groups.append(Group(tuple(piece), cheap, invars, outvars))
        return tuple(groups)

    def _copies(self, piece: Sequence[int]) -> tuple[int, ...]:
        found: set[int] = set()
        stack = [p for i in piece for p in self.feeds(i)]
        while stack:
            p = stack.pop()
            if p in self.cheap and p not in found:
                found.add(p)
                stack += self.feeds(p)
        return tuple(sorted(found))

    def _inputs(self, members: Sequence[int]) -> tuple[Any, ...]:
        made = {v for i in members for v in self.eqns[i].outvars}
        read = (v for i in members for v in variables(self.eqns[i].invars))
        return tuple(dict.fromkeys(v for v in read if v not in made))


_VIEWS = frozenset({"reshape", "squeeze", "expand_dims", "transpose"})


def variables(atoms: Iterable[Any]) -> list[Any]:
    """Those of `atoms` that are no literals."""
    return [a for a in atoms if not _compat.is_literal(a)]


def weight(eqn: Any) -> int:
    """Number of contractions and reductions in `eqn`, those of its body included."""
    name = eqn.primitive.name
    if name == "dot_general" or name.startswith("reduce_"):
        return int(name != "reduce_precision")
    bodies = (_compat.opened(j) for j in _compat.sub_jaxprs(eqn))
    return sum(weight(inner) for body in bodies for inner in body.eqns)


def _widens(eqn: Any) -> bool:
    """Whether `eqn` makes something larger out of what it reads, at no cost."""
    if eqn.primitive.name == "broadcast_in_dim":
        return True
    if eqn.primitive.name != "convert_element_type":
        return False
    (source,) = eqn.invars
    (result,) = eqn.outvars
    return result.aval.dtype.itemsize > source.aval.dtype.itemsize


def _reason(eqn: Any, refusal: Refusal) -> str | None:
    """Why `eqn` cannot be in a region, or None."""
    if eqn.effects:
        return "it has side effects"
    avals = [a.aval for a in (*eqn.invars, *eqn.outvars)]
    for aval in avals:
        if not hasattr(aval, "shape") or not hasattr(aval, "dtype"):
            return f"`{aval}` is not an array"
        if not all(isinstance(n, int) for n in aval.shape):
            return f"the shape {aval.shape} is not static"
    context = eqn.ctx
    if getattr(context, "compute_type", None) or getattr(context, "xla_metadata", None):
        return "it is annotated for the compiler"
    return refusal(eqn)


def _bytes(aval: Any) -> int:
    return prod(aval.shape) * aval.dtype.itemsize
