"""Rules of primitives that only rename axes: a relabeling of the use, and no op."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

from mirage_jax.lift.axes import Atoms, Factorization
from mirage_jax.lift.base import (
    Check,
    Context,
    Demand,
    Rule,
    Step,
    anything,
    register,
    same_kind,
)
from mirage_jax.lift.constants import FLOATS
from mirage_jax.lift.flatten import Node
from ugraph.terms import (
    Axes,
    Factor,
    Fixed,
    Term,
    add,
    extent,
    integer,
    iota,
    make,
    mul,
)

Relabel: TypeAlias = Callable[[Node, Axes, Factorization], Axes]


def view(check: Check, link: Callable, relabel: Relabel) -> Rule:
    """The rule of a primitive whose result is its operand under other labels."""

    def step(node: Node, position: int, labels: Axes, context: Context) -> Step:
        del position
        use = Demand(node.operands[0], relabel(node, labels, context.factors))
        return Step((use,), lambda term: term)

    return Rule(check, link, step)


def ints(node: Node, name: str) -> tuple[int, ...]:
    """A parameter that is a sequence of integers."""
    found = node.params[name]
    assert isinstance(found, Sequence)
    return tuple(int(i) for i in found)


def regroup(factors: Factorization, axes: Sequence[Atoms], flat: Sequence) -> Axes:
    """Label factors in one row, grouped by axis."""
    groups, start = [], 0
    for axis in axes:
        stop = start + len(factors.leaves(axis))
        groups.append(tuple(flat[start:stop]))
        start = stop
    return tuple(groups)


def _link_transpose(node: Node, factors: Factorization) -> None:
    axes = factors.axes(node.operands[0])
    factors.assign(node.results[0], (axes[i] for i in ints(node, "permutation")))


def _relabel_transpose(node: Node, labels: Axes, factors: Factorization) -> Axes:
    del factors
    order = ints(node, "permutation")
    return tuple(labels[order.index(i)] for i in range(len(order)))


def _check_broadcast(node: Node) -> str | None:
    return None if len(node.operands) == 1 else "its shape is not static"


def _link_broadcast(node: Node, factors: Factorization) -> None:
    operand, result = node.operands[0], node.results[0]
    axes = [factors.fresh(n) for n in result.shape]
    for mine, j in zip(
        factors.axes(operand), ints(node, "broadcast_dimensions"), strict=True
    ):
        if mine:
            axes[j] = mine
    factors.assign(result, axes)


def _relabel_broadcast(node: Node, labels: Axes, factors: Factorization) -> Axes:
    del factors
    shape, where = node.operands[0].shape, ints(node, "broadcast_dimensions")
    return tuple(labels[j] if n > 1 else () for n, j in zip(shape, where, strict=True))


def _check_reshape(node: Node) -> str | None:
    if node.params.get("dimensions") is not None:
        return "it transposes as it reshapes"
    return None if len(node.operands) == 1 else "its shape is not static"


def _link_reshape(node: Node, factors: Factorization) -> None:
    atoms = [a for axis in factors.axes(node.operands[0]) for a in axis]
    factors.assign(node.results[0], factors.cut(atoms, node.results[0].shape))


def _relabel_reshape(node: Node, labels: Axes, factors: Factorization) -> Axes:
    flat = [f for axis in labels for f in axis]
    return regroup(factors, factors.axes(node.operands[0]), flat)


def _link_squeeze(node: Node, factors: Factorization) -> None:
    axes = factors.axes(node.operands[0])
    gone = ints(node, "dimensions")
    factors.assign(node.results[0], (a for i, a in enumerate(axes) if i not in gone))


def _relabel_squeeze(node: Node, labels: Axes, factors: Factorization) -> Axes:
    del factors
    gone, left = ints(node, "dimensions"), iter(labels)
    rank = len(node.operands[0].shape)
    return tuple(() if i in gone else next(left) for i in range(rank))


def _link_expand(node: Node, factors: Factorization) -> None:
    left, new = iter(factors.axes(node.operands[0])), ints(node, "dimensions")
    rank = len(node.results[0].shape)
    axes = (() if i in new else next(left) for i in range(rank))
    factors.assign(node.results[0], axes)


def _relabel_expand(node: Node, labels: Axes, factors: Factorization) -> Axes:
    del factors
    new = ints(node, "dimensions")
    return tuple(axis for i, axis in enumerate(labels) if i not in new)


def _link_tile(node: Node, factors: Factorization) -> None:
    axes = factors.axes(node.operands[0])
    reps = zip(ints(node, "reps"), axes, strict=True)
    factors.assign(node.results[0], (factors.fresh(n) + axis for n, axis in reps))


def _relabel_tile(node: Node, labels: Axes, factors: Factorization) -> Axes:
    axes = factors.axes(node.operands[0])
    counts = [len(factors.leaves(axis)) for axis in axes]
    return tuple(axis[len(axis) - n :] for axis, n in zip(labels, counts, strict=True))


def position(axis: Sequence[Factor]) -> Term:
    """The index along an axis given by its factors, major first."""
    index: Term | None = None
    for f in axis:
        here = integer(f.index) if isinstance(f, Fixed) else iota(f)
        size = integer(f.size) if isinstance(f, Fixed) else extent(f)
        index = here if index is None else add(mul(index, size), here)
    return integer(0) if index is None else index


def _check_iota(node: Node) -> str | None:
    if node.operands:
        return "its shape is not static"
    kept = node.results[0].dtype in FLOATS | {"i32"}
    return None if kept else f"dtype {node.results[0].dtype} holds no positions"


def _link_iota(node: Node, factors: Factorization) -> None:
    factors.axes(node.results[0])


def _step_iota(node: Node, result: int, labels: Axes, context: Context) -> Step:
    del result, context
    (dimension,) = ints_of_one(node, "dimension")
    index = position(labels[dimension])
    if node.results[0].dtype in FLOATS:
        index = make("to_float", (index,))
    return Step((), lambda: index)


def ints_of_one(node: Node, name: str) -> tuple[int]:
    """A parameter that is one integer."""
    found = node.params[name]
    return (int(str(found)),)


register("transpose", view(anything, _link_transpose, _relabel_transpose))
register(
    "broadcast_in_dim", view(_check_broadcast, _link_broadcast, _relabel_broadcast)
)
register("reshape", view(_check_reshape, _link_reshape, _relabel_reshape))
register("squeeze", view(anything, _link_squeeze, _relabel_squeeze))
register("expand_dims", view(anything, _link_expand, _relabel_expand))
register("tile", view(same_kind, _link_tile, _relabel_tile))
register("iota", Rule(_check_iota, _link_iota, _step_iota))
