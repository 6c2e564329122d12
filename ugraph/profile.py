"""What a thread block does, listed once for every choice of tile sizes.

A `Profile` says what a block loads, multiplies, computes and stores, over which labels
and how often. The cost model (`ugraph.cost`) puts tile sizes in.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from ugraph.contraction import Contraction, as_contraction
from ugraph.graph import BlockGraph
from ugraph.ops import OPS, Kind
from ugraph.program import Tensor
from ugraph.terms import Access, Ref, Term, subterms


@dataclass(frozen=True, slots=True)
class Load:
    """A read of a tensor's tile, by every block or in every iteration."""

    tensor: Tensor
    labels: tuple[str, ...]
    repeats: int
    looped: bool


@dataclass(frozen=True, slots=True)
class Dot:
    """A matrix product of tiles."""

    contraction: Contraction
    looped: bool


@dataclass(frozen=True, slots=True)
class Map:
    """Elementwise work or a reduction: the labels of its elements, and cost of each."""

    labels: tuple[str, ...]
    cost: float
    looped: bool


@dataclass(frozen=True, slots=True)
class Profile:
    """What a block does, for every choice of tile sizes."""

    kernel: BlockGraph
    loads: tuple[Load, ...]
    dots: tuple[Dot, ...]
    maps: tuple[Map, ...]
    accumulators: tuple[tuple[str, ...], ...]
    stores: tuple[tuple[Tensor, tuple[str, ...]], ...]


def profile(
    kernel: BlockGraph, tensors: Mapping[str, Tensor], sizes: Mapping[str, int]
) -> Profile:
    """Lists the work of `kernel`; `sizes` only breaks ties between operands."""
    loads: dict[tuple[str, tuple[str, ...]], Load] = {}
    dots: list[Dot] = []
    maps: list[Map] = []
    for terms, looped in _stages(kernel):
        inside = fused(terms, sizes)
        for term in terms:
            _count(term, looped, tensors, loads, maps, inside)
            made = as_contraction(term, sizes)
            if made is not None:
                dots.append(Dot(made, looped))
    accumulators = tuple(a.body.labels for p in kernel.passes for a in p.accumulators)
    stores = tuple(
        (s.tensor, tuple(f for axis in s.axes for f in axis if isinstance(f, str)))
        for s in kernel.outputs
    )
    return Profile(
        kernel, tuple(loads.values()), tuple(dots), tuple(maps), accumulators, stores
    )


def _stages(kernel: BlockGraph) -> list[tuple[tuple[Term, ...], bool]]:
    """The terms evaluated once per block, and those of each pass per iteration."""
    label = kernel.loop.label if kernel.loop else None
    once: dict[Term, None] = {}
    stages = []
    for walk in kernel.passes:
        accumulators = walk.accumulators
        here = {a.name for a in accumulators}
        roots = [a.body for a in accumulators] + [s.term for s in walk.stores]
        roots += [a.rescale for a in accumulators if a.rescale is not None]
        found = subterms(*roots)
        looped = tuple(t for t in found if varies(t, label, here))
        once.update((t, None) for t in found if t not in set(looped))
        stages.append((looped, True))
    epilogue = subterms(*(s.term for s in kernel.stores))
    once.update((t, None) for t in epilogue)
    return [(tuple(once), False), *stages]


def varies(term: Term, label: str | None, here: set[str]) -> bool:
    """Whether `term` changes in every iteration of a pass.

    Args:
      term: a term of the pass.
      label: the loop's label.
      here: names of the pass's own accumulators.
    """
    found = subterms(term)
    return any(
        label in t.labels or (isinstance(t.attr, Ref) and t.attr.name in here)
        for t in found
    )


def fused(terms: tuple[Term, ...], sizes: Mapping[str, int]) -> set[Term]:
    """Products that a matrix product swallows: they cost nothing themselves."""
    return {t.args[0] for t in terms if as_contraction(t, sizes) is not None}


def _count(
    term: Term,
    looped: bool,
    tensors: Mapping[str, Tensor],
    loads: dict[tuple[str, tuple[str, ...]], Load],
    maps: list[Map],
    swallowed: set[Term],
) -> None:
    attr = term.attr
    if isinstance(attr, Access):
        key = (repr(attr), term.labels)
        old = loads.get(key)
        repeats = (old.repeats if old else 0) + 1
        wide = looped or (old is not None and old.looped)
        loads[key] = Load(tensors[attr.tensor], term.labels, repeats, wide)
        return
    row = OPS[term.op]
    if row.kind is Kind.LEAF or term in swallowed:
        return
    work = term.args[0].labels if row.kind is Kind.REDUCE else term.labels
    if row.kind is Kind.REDUCE and term.args[0] in swallowed:
        return
    maps.append(Map(work, row.cost * max(1, len(term.args) - 1), looped))
