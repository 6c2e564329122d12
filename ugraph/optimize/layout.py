"""Layouts of intermediates: which axis of a tensor is innermost in memory.

Inputs and outputs are row-major, as the program has them; a tensor that one kernel
stores and another reads may lie as suits both. A read or store of a tile moves whole
sectors: a short run of neighbouring elements wastes the rest. Tensors that meet in one
elementwise tree should lie alike, or one of them is turned on chip. The choice is exact
while the choices are few enough to be listed, else tensor by tensor.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import combinations, product
from math import prod

from ugraph.graph import (
    Plan,
    grid_counts,
    mapped,
    reads_of,
    tile_sizes,
)
from ugraph.optimize.threads import threads
from ugraph.program import ITEMSIZE, Store
from ugraph.terms import Access, Axes, Fixed, Term, read
from ugraph.terms import replace as substitute

SECTOR_BYTES = 32
MOST_LISTED = 4096


@dataclass(frozen=True, slots=True)
class Touch:
    """How a custom kernel reads or stores a tensor.

    Attributes:
      tensor: the tensor's name.
      axes: its axes.
      bytes: what all blocks move.
      itemsize: bytes of an element.
      tiles: label to tile extent in this kernel.
    """

    tensor: str
    axes: Axes
    bytes: int
    itemsize: int
    tiles: Mapping[str, int]

    def cost(self, inner: int, sizes: Mapping[str, int]) -> float:
        """Bytes of the sectors moved when axis `inner` is innermost."""
        run = 1
        for i in (inner, *(i for i in reversed(range(len(self.axes))) if i != inner)):
            tile, whole = _run(self.axes[i], self.tiles, sizes)
            run *= tile
            if not whole:
                break
        return self.bytes * max(1.0, SECTOR_BYTES / (run * self.itemsize))


@dataclass(frozen=True, slots=True)
class Meeting:
    """Two tensors that meet in a thread graph: their reads, and bytes to turn one."""

    left: Access
    right: Access
    bytes: int


def _run(
    axis: tuple, tiles: Mapping[str, int], sizes: Mapping[str, int]
) -> tuple[int, bool]:
    """Neighbours along an axis that one tile has, and whether it has the whole axis."""
    run = 1
    for f in reversed(axis):
        if isinstance(f, Fixed):
            return run, False
        run *= min(tiles[f], sizes[f])
        if tiles[f] < sizes[f]:
            return run, False
    return run, True


def touches(plan: Plan) -> Iterator[Touch]:
    """Every read and store of the plan's custom kernels."""
    tensors = plan.tensors
    for kernel in plan.custom:
        tiles = tile_sizes(kernel, plan.sizes)
        blocks = dict(
            zip(
                (r.label for r in kernel.grid),
                grid_counts(kernel, plan.sizes),
                strict=True,
            )
        )
        used = [(a.tensor, a.axes) for a in reads_of(kernel)]
        used += [(s.tensor.name, s.axes) for s in kernel.outputs]
        for name, axes in used:
            labels = {f for axis in axes for f in axis if isinstance(f, str)}
            again = prod(n for x, n in blocks.items() if x not in labels)
            itemsize = ITEMSIZE[tensors[name].dtype]
            moved = prod(plan.sizes[x] for x in labels) * itemsize * again
            yield Touch(name, axes, moved, itemsize, tiles)


def meetings(plan: Plan) -> Iterator[Meeting]:
    """Every pair of loads with common labels that one thread graph reads."""
    for kernel in plan.custom:
        for graph in threads(kernel, plan.sizes):
            loads = [(t.attr, t) for t in graph.inputs if isinstance(t.attr, Access)]
            for (left, a), (right, b) in combinations(loads, 2):
                if len(set(a.labels) & set(b.labels)) > 1:
                    least = min(prod(plan.sizes[x] for x in t.labels) for t in (a, b))
                    itemsize = ITEMSIZE[plan.tensors[left.tensor].dtype]
                    yield Meeting(left, right, least * itemsize)


def choose(plan: Plan) -> dict[str, tuple[int, ...]]:
    """For each intermediate its axes in order of memory, the innermost last."""
    fixed = {t.name for t in (*plan.inputs, *plan.outputs)}
    free = {
        t.name: len(t.shape)
        for t in plan.tensors.values()
        if t.name not in fixed and len(t.shape) > 1
    }
    moved, met = tuple(touches(plan)), tuple(meetings(plan))

    def cost(inner: Mapping[str, int]) -> float:
        moves = sum(
            t.cost(inner[t.tensor], plan.sizes) for t in moved if t.tensor in inner
        )
        turns = sum(m.bytes for m in met if _differ(m, inner))
        return moves + turns

    options = {name: range(rank - 1, -1, -1) for name, rank in free.items()}
    if prod(map(len, options.values())) <= MOST_LISTED:
        every = (dict(zip(options, x, strict=True)) for x in product(*options.values()))
        best = min(every, key=cost)
    else:
        best = {n: min(o, key=lambda i: cost({n: i})) for n, o in options.items()}
    return {n: _order(free[n], i) for n, i in best.items()}


def _differ(meeting: Meeting, inner: Mapping[str, int]) -> bool:
    if meeting.left.tensor not in inner and meeting.right.tensor not in inner:
        return False
    ends = []
    for a in (meeting.left, meeting.right):
        axis = a.axes[inner.get(a.tensor, len(a.axes) - 1)]
        ends.append(axis[-1] if axis else None)
    return ends[0] != ends[1]


def _order(rank: int, inner: int) -> tuple[int, ...]:
    return (*(i for i in range(rank) if i != inner), inner)


def apply(plan: Plan, orders: Mapping[str, tuple[int, ...]]) -> Plan:
    """`plan` with the axes of intermediates permuted, in stores and in reads."""
    orders = {n: o for n, o in orders.items() if o != tuple(range(len(o)))}
    if not orders:
        return plan
    accesses = {a for k in plan.kernels for a in reads_of(k) if a.tensor in orders}
    table = {
        read(*a): read(a.tensor, _permuted(a.axes, orders[a.tensor]), a.yields)
        for a in accesses
    }
    kernels = tuple(
        mapped(
            k,
            store=lambda s: _store(s, table, orders),
            term=lambda t: substitute(t, table),
        )
        for k in plan.kernels
    )
    return replace(plan, kernels=kernels)


def _permuted(axes: tuple, order: tuple[int, ...]) -> tuple:
    return tuple(axes[i] for i in order)


def _store(
    store: Store, table: Mapping[Term, Term], orders: Mapping[str, tuple[int, ...]]
) -> Store:
    tensor, axes = store.tensor, store.axes
    order = orders.get(tensor.name)
    if order is not None:
        tensor = replace(tensor, shape=_permuted(tensor.shape, order))
        axes = _permuted(axes, order)
    return Store(tensor, axes, substitute(store.term, table))
