"""Rules of primitives that cut axes into equal pieces or lay pieces side by side.

Where the pieces are equal these are relabelings: the axis has a factor that counts the
pieces. Taking a piece fixes that factor; laying side by side selects by it, and taking
a piece of what was laid side by side is just that piece.
"""

from collections.abc import Sequence
from typing import NamedTuple

from mirage_jax.lift.axes import Atoms, Factorization
from mirage_jax.lift.base import (
    Context,
    Demand,
    Rule,
    Step,
    register,
    same_kind,
)
from mirage_jax.lift.elementwise import FALSE, TRUE, all_of, choose
from mirage_jax.lift.flatten import Node
from mirage_jax.lift.shapes import ints, ints_of_one
from ugraph.terms import Axes, Factor, Fixed, Term, integer, iota, make

MOST_PIECES = 16
UNEQUAL = "its pieces are not equal parts of an axis"


class Piece(NamedTuple):
    """One of the equal pieces of an axis.

    Attributes:
      index: which piece.
      count: how many there are.
      minor: whether pieces interleave (every `count`-th element) or follow each other.
    """

    index: int
    count: int
    minor: bool = False


class Linked(NamedTuple):
    """The atoms of an axis that count its pieces, and those inside a piece."""

    piece: Piece
    which: Atoms
    inside: Atoms


def piece_of(size: int, start: int, limit: int, stride: int) -> Piece | None:
    """The piece of an axis that a slice takes, if it takes one."""
    length = -(-(limit - start) // stride)
    if length == 1 or stride == 1:
        equal = length > 0 and size % length == 0 and start % length == 0
        return Piece(start // length, size // length) if equal else None
    whole = size % stride == 0 and start < stride and length == size // stride
    return Piece(start, stride, minor=True) if whole else None


def link_piece(factors: Factorization, axis: Atoms, size: int, piece: Piece) -> Linked:
    """Cuts an axis of extent `size` into its pieces."""
    length = size // piece.count
    if piece.minor:
        inside, which = factors.cut(axis, (length, piece.count))
    else:
        which, inside = factors.cut(axis, (piece.count, length))
    return Linked(piece, which, inside)


def _digits(index: int, which: Atoms, factors: Factorization) -> tuple[Fixed, ...]:
    """A piece's index as fixed factors, one per atom."""
    found = []
    for atom in reversed(factors.leaves(which)):
        index, digit = divmod(index, factors.size(atom))
        found.append(Fixed(digit, factors.size(atom)))
    return tuple(reversed(found))


def _within(linked: Linked, axis: Sequence[Factor], factors: Factorization) -> tuple:
    """The label factors of the whole axis, for a use of the piece."""
    fixed = _digits(linked.piece.index, linked.which, factors)
    return (*axis, *fixed) if linked.piece.minor else (*fixed, *axis)


def _split(linked: Linked, axis: Sequence[Factor], factors: Factorization) -> tuple:
    """The label factors of an axis that count pieces, and those inside a piece."""
    if linked.piece.minor:
        n = len(factors.leaves(linked.inside))
        return tuple(axis[n:]), tuple(axis[:n])
    n = len(factors.leaves(linked.which))
    return tuple(axis[:n]), tuple(axis[n:])


def _is_piece(
    index: int, which: Atoms, named: Sequence[Factor], factors: Factorization
) -> Term:
    """Whether the piece counted by `named` is number `index`."""
    conditions = []
    for digit, f in zip(_digits(index, which, factors), named, strict=True):
        if not isinstance(f, Fixed):
            conditions.append(make("eq", (iota(f), integer(digit.index))))
        elif f.index != digit.index:
            return FALSE
    return all_of(conditions)


def _windows(node: Node) -> list[tuple[Piece | None, ...]]:
    """For each result the piece it takes of each operand axis."""
    shape = node.operands[0].shape
    if node.primitive == "slice":
        starts = ints(node, "start_indices")
        limits = ints(node, "limit_indices")
        steps = (1,) * len(shape)
        if node.params["strides"] is not None:
            steps = ints(node, "strides")
        cuts = zip(shape, starts, limits, steps, strict=True)
        return [tuple(piece_of(*cut) for cut in cuts)]
    (dimension,) = ints_of_one(node, "axis")
    unstacked = node.primitive == "unstack"
    sizes = (1,) * shape[dimension] if unstacked else ints(node, "sizes")
    found, start = [], 0
    for size in sizes:
        limit = start + size
        found.append(
            tuple(
                piece_of(n, start, limit, 1) if i == dimension else Piece(0, 1)
                for i, n in enumerate(shape)
            )
        )
        start = limit
    return found


def _check_slice(node: Node) -> str | None:
    bad = any(piece is None for window in _windows(node) for piece in window)
    return UNEQUAL if bad else None


def _link_slice(node: Node, factors: Factorization) -> None:
    operand, notes = node.operands[0], []
    for window, result in zip(_windows(node), node.results, strict=True):
        linked = tuple(
            link_piece(factors, axis, n, piece or Piece(0, 1))
            for piece, axis, n in zip(
                window, factors.axes(operand), operand.shape, strict=True
            )
        )
        inside = [x.inside for x in linked]
        if node.primitive == "unstack":
            del inside[ints_of_one(node, "axis")[0]]
        factors.assign(result, inside)
        notes.append(linked)
    factors.notes[node] = notes


def _step_slice(node: Node, result: int, labels: Axes, context: Context) -> Step:
    factors = context.factors
    linked = factors.notes[node][result]  # pyrefly: ignore
    if node.primitive == "unstack":
        (dimension,) = ints_of_one(node, "axis")
        labels = (*labels[:dimension], (), *labels[dimension:])
    axes = (_within(x, axis, factors) for x, axis in zip(linked, labels, strict=True))
    return Step((Demand(node.operands[0], tuple(axes)),), lambda term: term)


def _check_concatenate(node: Node) -> str | None:
    if len({v.shape for v in node.operands}) != 1:
        return UNEQUAL
    if node.results[0].dtype == "i32":
        return "it lays integers side by side"
    if len(node.operands) > MOST_PIECES:
        return f"it has more than {MOST_PIECES} pieces"
    return same_kind(node)


def _link_concatenate(node: Node, factors: Factorization) -> None:
    first, *others = node.operands
    for v in others:
        for mine, theirs in zip(factors.axes(first), factors.axes(v), strict=True):
            factors.unify(mine, theirs)
    axes, which = list(factors.axes(first)), factors.fresh(len(node.operands))
    if node.primitive == "stack":
        axes.insert(ints_of_one(node, "axis")[0], which)
    else:
        (dimension,) = ints_of_one(node, "dimension")
        axes[dimension] = which + axes[dimension]
    factors.assign(node.results[0], axes)
    factors.notes[node] = which


def _step_concatenate(node: Node, result: int, labels: Axes, context: Context) -> Step:
    del result
    factors = context.factors
    which: Atoms = factors.notes[node]  # pyrefly: ignore
    stacked = node.primitive == "stack"
    (dimension,) = ints_of_one(node, "axis" if stacked else "dimension")
    n = len(factors.leaves(which))
    named, inside = labels[dimension][:n], labels[dimension][n:]
    rest = labels[dimension + 1 :] if stacked else (inside, *labels[dimension + 1 :])
    inner = (*labels[:dimension], *rest)
    conditions = [
        _is_piece(i, which, named, factors) for i in range(len(node.operands))
    ]
    chosen = [
        (c, v) for c, v in zip(conditions, node.operands, strict=True) if c is not FALSE
    ]

    def build(*terms: Term) -> Term:
        last = terms[-1]
        pairs = list(zip((c for c, _ in chosen), terms, strict=True))
        for condition, term in reversed(pairs[:-1]):
            last = choose(condition, term, last)
        return last

    return Step(tuple(Demand(v, inner) for _, v in chosen), build)


def _pads(node: Node) -> tuple[Piece | None, ...]:
    """For each axis which piece of the result the operand is."""
    found = []
    config = node.params["padding_config"]
    for n, (low, high, interior) in zip(
        node.operands[0].shape,
        config,  # pyrefly: ignore
        strict=True,
    ):
        low, high, step = int(low), int(high), int(interior) + 1
        total = low + high + (n - 1) * step + 1
        stop = low + (n - 1) * step + 1
        found.append(None if min(low, high) < 0 else piece_of(total, low, stop, step))
    return tuple(found)


def _check_pad(node: Node) -> str | None:
    if node.results[0].dtype == "i32":
        return "it pads integers"
    return UNEQUAL if None in _pads(node) else same_kind(node)


def _link_pad(node: Node, factors: Factorization) -> None:
    axes, notes = [], []
    for piece, inside in zip(_pads(node), factors.axes(node.operands[0]), strict=True):
        piece = piece or Piece(0, 1)
        which = factors.fresh(piece.count)
        axes.append(inside + which if piece.minor else which + inside)
        notes.append(Linked(piece, which, inside))
    factors.assign(node.results[0], axes)
    factors.notes[node] = notes


def _step_pad(node: Node, result: int, labels: Axes, context: Context) -> Step:
    del result
    factors = context.factors
    conditions, inner = [], []
    for linked, axis in zip(factors.notes[node], labels, strict=True):  # pyrefly: ignore
        named, inside = _split(linked, axis, factors)
        inner.append(inside)
        conditions.append(_is_piece(linked.piece.index, linked.which, named, factors))
    operand, filler = node.operands
    condition = all_of(conditions)
    if condition is FALSE:
        return Step((Demand(filler, ()),), lambda term: term)
    if condition is TRUE:
        return Step((Demand(operand, tuple(inner)),), lambda term: term)
    needs = (Demand(operand, tuple(inner)), Demand(filler, ()))
    return Step(needs, lambda x, other: choose(condition, x, other))


register("slice split unstack", Rule(_check_slice, _link_slice, _step_slice))
register(
    "concatenate stack", Rule(_check_concatenate, _link_concatenate, _step_concatenate)
)
register("pad", Rule(_check_pad, _link_pad, _step_pad))
