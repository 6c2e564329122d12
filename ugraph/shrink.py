"""The same program and plan at smaller extents, tiles and structure kept.

What is checked by running (the numerics guard) is checked on a plan that has every
tile, every kind of edge and more than one block and iteration, at a size that runs in
moments.
"""

from collections.abc import Mapping
from dataclasses import replace

from ugraph.graph import BlockGraph, Plan, Predefined, reads_of
from ugraph.program import Program, Store, Tensor, axes_shape, reads
from ugraph.terms import Access

BLOCKS = 2
ITERATIONS = 3


def shrink(
    program: Program, plan: Plan, *, longest: int | None = None
) -> tuple[Program, Plan]:
    """`program` and `plan` with few blocks and iterations.

    A label walked by a grid keeps two tiles, one walked by a loop three, and a ragged
    last tile stays ragged; labels that are whole in the tile keep their extents, up to
    `longest` where it is given (for backends whose code does not depend on them).
    """
    sizes = _small_sizes(plan)
    if longest is not None:
        sizes = {x: min(n, longest) for x, n in sizes.items()}
    whole = dict(sizes)
    for label, parts in split_labels(program, plan).items():
        whole[label] = 1
        for part in parts:
            whole[label] *= sizes[part]
    sizes_of_program = {x: whole.get(x, n) for x, n in program.extents}
    return _resized_program(program, sizes_of_program), _resized_plan(plan, sizes)


def split_labels(program: Program, plan: Plan) -> dict[str, tuple[str, ...]]:
    """Labels of the program that the plan splits, and their factors there."""
    ours = {a.tensor: a for k in plan.kernels for a in reads_of(k)}
    found: dict[str, tuple[str, ...]] = {}
    for access in reads(*(o.term for o in program.outputs)):
        other = ours.get(access.tensor)
        if other is not None:
            found |= _compare(access, other)
    known = {label for label, _ in plan.extents}
    return {x: parts for x, parts in found.items() if x not in known}


def _compare(access: Access, other: Access) -> dict[str, tuple[str, ...]]:
    found = {}
    for mine, theirs in zip(access.axes, other.axes, strict=True):
        names = [f for f in theirs if isinstance(f, str) and f not in mine]
        for f in mine:
            if isinstance(f, str) and f not in theirs:
                found[f] = tuple(n for n in names if n.startswith(f"{f}_"))
    return found


def _small_sizes(plan: Plan) -> dict[str, int]:
    walked: dict[str, int] = {}
    kept: set[str] = set()
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
    return {
        x: walked[x] if x in walked and x not in kept else n for x, n in plan.extents
    }


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
    kernels = tuple(_resized_kernel(k, sizes) for k in plan.kernels)
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


def _resized_kernel(
    kernel: BlockGraph | Predefined, sizes: Mapping[str, int]
) -> BlockGraph | Predefined:
    stores = tuple(_resized_store(s, sizes) for s in kernel.stores)
    if isinstance(kernel, Predefined):
        return replace(kernel, stores=stores)
    passes = tuple(
        replace(p, stores=tuple(_resized_store(s, sizes) for s in p.stores))
        for p in kernel.passes
    )
    return replace(kernel, stores=stores, passes=passes)
