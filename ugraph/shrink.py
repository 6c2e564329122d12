"""The same program and plan at smaller extents, tiles and structure kept.

What is checked by running (the numerics guard) is checked on a plan that has every
tile, every kind of edge and more than one block and iteration, at a size that runs in
moments.
"""

from collections.abc import Mapping
from dataclasses import replace
from math import lcm, prod
from typing import TypeAlias

from ugraph.graph import Plan, mapped, reads_of
from ugraph.program import Program, Store, Tensor, axes_shape, reads
from ugraph.split import inner, outer
from ugraph.terms import Access, subterms

Splits: TypeAlias = tuple[tuple[str, str], ...]

BLOCKS = 2
ITERATIONS = 3
LARGEST_SPLIT = 64
LARGEST_PREDEFINED = 128


def shrink(
    program: Program, plan: Plan, *, longest: int | None = None
) -> tuple[Program, Plan]:
    """`program` and `plan` with few blocks and iterations.

    A label walked by a grid keeps two tiles, one walked by a loop three, and a ragged
    last tile stays ragged; labels that are whole in the tile keep their extents, up to
    `longest` where it is given (for backends whose code does not depend on them), and
    those of pre-defined kernels alone up to `LARGEST_PREDEFINED`.
    """
    sizes = _small_sizes(plan)
    if longest is not None:
        sizes = {x: min(n, longest) for x, n in sizes.items()}
    for label, splits in split_labels(program, plan).items():
        sizes |= _tied(label, splits, sizes, plan)
    ours = {x: sizes[x] for x, _ in plan.extents}
    whole = {x: sizes.get(x, n) for x, n in program.extents}
    return _resized_program(program, whole), _resized_plan(plan, ours)


def split_labels(program: Program, plan: Plan) -> dict[str, Splits]:
    """Labels of the program that the plan splits, and their factors, way by way."""
    known = plan.sizes
    found = {}
    for label, _ in program.extents:
        counts = [n for n in range(2, LARGEST_SPLIT + 1) if outer(label, n) in known]
        if counts:
            found[label] = tuple((outer(label, n), inner(label, n)) for n in counts)
    return found


def _tied(
    label: str,
    splits: Splits,
    sizes: Mapping[str, int],
    plan: Plan,
) -> dict[str, int]:
    """Sizes of a label and of its factors that agree: one extent, in every way."""
    wanted = [sizes[o] * sizes[i] for o, i in splits]
    if len(splits) == 1 and label not in plan.sizes:
        return {label: wanted[0]}
    tiles = _tiles(plan)
    unit = lcm(*(sizes[o] * tiles.get(i, 1) for o, i in splits), tiles.get(label, 1))
    extent = -(-max(wanted) // unit) * unit
    original = prod(plan.sizes[f] for f in splits[0])
    if extent >= original:
        return {f: plan.sizes[f] for s in splits for f in s} | {label: original}
    return {i: extent // sizes[o] for o, i in splits} | {label: extent}


def _tiles(plan: Plan) -> dict[str, int]:
    """The tile of every label that a loop walks (a common multiple of several)."""
    found: dict[str, int] = {}
    for kernel in plan.custom:
        if kernel.loop is not None:
            label, tile = kernel.loop.label, kernel.loop.tile
            found[label] = lcm(found.get(label, 1), tile)
    return found


def _small_sizes(plan: Plan) -> dict[str, int]:
    walked: dict[str, int] = {}
    kept: set[str] = set()
    custom: set[str] = set()
    for kernel in plan.custom:
        ranges = [(r, BLOCKS) for r in kernel.grid]
        if kernel.loop is not None:
            ranges.append((kernel.loop, ITERATIONS))
        labels = {r.label for r, _ in ranges}
        for r, count in ranges:
            extent = plan.sizes[r.label]
            small = min(extent, r.tile * count - (-extent % r.tile))
            walked[r.label] = max(walked.get(r.label, 0), small)
        kept |= {x for t in kernel.roots for x in t.labels} - labels
        custom |= {x for t in subterms(*kernel.roots) for x in t.labels}

    def small_size(label: str, extent: int) -> int:
        if label in walked and label not in kept:
            return walked[label]
        return extent if label in custom else min(extent, LARGEST_PREDEFINED)

    return {x: small_size(x, n) for x, n in plan.extents}


def _resized_program(program: Program, sizes: Mapping[str, int]) -> Program:
    accesses = reads(*(o.term for o in program.outputs))
    outputs = tuple(_resized_store(o, sizes) for o in program.outputs)
    return Program(
        tuple(sorted(sizes.items())),
        _resized_tensors(program.inputs, accesses, sizes),
        outputs,
        program.roundings,
    )


def _resized_plan(plan: Plan, sizes: Mapping[str, int]) -> Plan:
    accesses = tuple(a for k in plan.kernels for a in reads_of(k))
    kernels = tuple(
        mapped(k, store=lambda s: _resized_store(s, sizes)) for k in plan.kernels
    )
    stored = {s.tensor.name: s.tensor for k in kernels for s in k.outputs}
    return Plan(
        tuple(sorted(sizes.items())),
        _resized_tensors(plan.inputs, accesses, sizes),
        tuple(stored[t.name] for t in plan.outputs),
        kernels,
    )


def _resized_tensors(
    tensors: tuple[Tensor, ...],
    accesses: tuple[Access, ...],
    sizes: Mapping[str, int],
) -> tuple[Tensor, ...]:
    shapes = {a.tensor: axes_shape(a.axes, sizes) for a in accesses}
    return tuple(replace(t, shape=shapes.get(t.name, t.shape)) for t in tensors)


def _resized_store(store: Store, sizes: Mapping[str, int]) -> Store:
    shape = axes_shape(store.axes, sizes)
    return replace(store, tensor=replace(store.tensor, shape=shape))
