"""Rules of contractions and reductions: they bind labels.

A bound label is the first of its atom's labels that the use does not have free:
softmax's maximum, its sum and the contraction after it come to bind the same label, and
nothing is captured.
"""

from collections.abc import Callable, Iterable
from fractions import Fraction
from math import prod

from jax.lax import Precision

from mirage_jax.lift.axes import Factorization
from mirage_jax.lift.base import Context, Demand, Rule, Step, all_floats, register
from mirage_jax.lift.elementwise import narrowest
from mirage_jax.lift.flatten import Node
from mirage_jax.lift.shapes import ints
from ugraph.terms import Axes, Term, lit, mul, reduce


def summed(
    term: Term, labels: Iterable[str], extents: Callable[[str], int], dtype: str = "f32"
) -> Term:
    """The sum over `labels`; for one that the term lacks, times its extent."""
    labels = tuple(labels)
    times = prod(extents(x) for x in labels if x not in term.labels)
    total = reduce("sum", term, labels, dtype)
    return mul(lit(Fraction(times)), total) if times > 1 else total


def _names(axes: Axes) -> tuple[str, ...]:
    return tuple(f for axis in axes for f in axis if isinstance(f, str))


def _link_reduce(node: Node, factors: Factorization) -> None:
    gone = ints(node, "axes")
    axes = factors.axes(node.operands[0])
    factors.assign(node.results[0], (a for i, a in enumerate(axes) if i not in gone))


def _step_reduce(node: Node, result: int, labels: Axes, context: Context) -> Step:
    del result
    gone, kept = ints(node, "axes"), iter(labels)
    axes = context.factors.axes(node.operands[0])
    bound = context.namer.labels((axes[i] for i in gone), _names(labels))
    where = dict(zip(gone, bound, strict=True))
    inner = tuple(where[i] if i in where else next(kept) for i in range(len(axes)))
    op = node.primitive.removeprefix("reduce_")

    def build(term: Term) -> Term:
        if op == "sum":
            return summed(term, _names(bound), context.namer.extents.__getitem__)
        return reduce(op, term, _names(bound))

    return Step((Demand(node.operands[0], inner),), build)


def _check_dot(node: Node) -> str | None:
    precision = node.params.get("precision")
    given = precision if isinstance(precision, tuple) else (precision,)
    if not all(p is None or isinstance(p, Precision) for p in given):
        return f"its precision {precision} names an algorithm"
    return all_floats(node)


def _dimensions(node: Node) -> tuple[tuple[int, ...], ...]:
    """Contracting and batch axes of the left and the right operand, four tuples."""
    groups = node.params["dimension_numbers"]
    return tuple(
        tuple(int(i) for i in side)
        for pair in groups  # pyrefly: ignore
        for side in pair
    )


def _free(rank: int, *used: tuple[int, ...]) -> tuple[int, ...]:
    taken = {i for axes in used for i in axes}
    return tuple(i for i in range(rank) if i not in taken)


def _link_dot(node: Node, factors: Factorization) -> None:
    left, right = (factors.axes(v) for v in node.operands)
    left_sum, right_sum, left_batch, right_batch = _dimensions(node)
    pairs = zip(left_sum + left_batch, right_sum + right_batch, strict=True)
    for i, j in pairs:
        factors.unify(left[i], right[j])
    axes = [left[i] for i in left_batch]
    axes += [left[i] for i in _free(len(left), left_sum, left_batch)]
    axes += [right[i] for i in _free(len(right), right_sum, right_batch)]
    factors.assign(node.results[0], axes)


def _step_dot(node: Node, result: int, labels: Axes, context: Context) -> Step:
    del result
    left, right = node.operands
    left_sum, right_sum, left_batch, right_batch = _dimensions(node)
    axes = context.factors.axes(left)
    bound = context.namer.labels((axes[i] for i in left_sum), _names(labels))
    n, rank = len(left_batch), len(left.shape)
    left_free = _free(rank, left_sum, left_batch)
    right_free = _free(len(right.shape), right_sum, right_batch)
    batch, first = labels[:n], labels[n : n + len(left_free)]
    second = labels[n + len(left_free) :]
    mine = (*left_sum, *left_batch, *left_free)
    theirs = (*right_sum, *right_batch, *right_free)
    named = dict(zip(mine, (*bound, *batch, *first), strict=True))
    others = dict(zip(theirs, (*bound, *batch, *second), strict=True))
    dtype = _multiplied(node)

    def build(x: Term, y: Term) -> Term:
        extents = context.namer.extents.__getitem__
        return summed(mul(x, y), _names(bound), extents, dtype)

    needs = (
        Demand(left, tuple(named[i] for i in range(rank))),
        Demand(right, tuple(others[i] for i in range(len(right.shape)))),
    )
    return Step(needs, build)


def _multiplied(node: Node) -> str:
    """The dtype to which both operands are known to be rounded already."""
    known = {narrowest(v) for v in node.operands}
    return known.pop() if len(known) == 1 else "f32"


register(
    "reduce_sum reduce_max reduce_min", Rule(all_floats, _link_reduce, _step_reduce)
)
register("dot_general", Rule(_check_dot, _link_dot, _step_dot))
