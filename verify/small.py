"""A program and its plan at verification extents: few tiles, small tiles.

Terms know no sizes, so equality is tested at small extents: every label that a grid or
a loop walks keeps two or more tiles (three for a loop, where it had as many), a ragged
last tile stays ragged, and labels that are whole in the tile get a few elements. Labels
of different axes get different extents where possible, so that exchanged axes show.

What ties extents together is found from the tensors: all the ways in which one axis is
read or stored make the same extent. A label that meets a fixed index, or is compared
with an integer literal, keeps its extent if it is small; integer literals above 16
stand for parameters and are made smaller, in the same order, in both programs.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import prod

from ugraph.graph import BlockGraph, Plan, Predefined, Range, mapped
from ugraph.program import Program, Store, Tensor, axes_shape, reads
from ugraph.terms import Access, Axes, Factor, Term, integer, subterms
from ugraph.terms import replace as substitute
from verify.ties import Ties
from verify.values import UnsupportedError

LARGEST_KEPT = 16
LARGEST = 12
ITERATIONS = 3
ROOMY = 7
BLOCKS = 2
COMPARISONS = frozenset({"lt", "le", "gt", "ge", "eq", "ne"})


@dataclass(frozen=True, slots=True)
class Walk:
    """How a kernel walks a label at the original extents."""

    extent: int
    tile: int
    least: int

    @property
    def count(self) -> int:
        """Tiles."""
        return -(-self.extent // self.tile)

    @property
    def ragged(self) -> bool:
        """Whether the last tile is cut."""
        return self.extent % self.tile != 0

    def tiles(self, extent: int) -> int | None:
        """A tile for a smaller extent with as much structure, or None."""
        if self.count == 1:
            return extent + (self.tile > self.extent)
        least = min(self.count, self.least)
        fits = [
            t
            for t in range(1, extent)
            if -(-extent // t) >= least and (extent % t != 0) == self.ragged
        ]
        return max(fits, default=None)

    def any_tile(self, extent: int) -> int:
        """A tile for an extent that others dictate: the structure as near as may be."""
        found = self.tiles(extent)
        return found if found is not None else max(1, -(-extent // max(2, self.least)))


@dataclass(frozen=True, slots=True)
class Small:
    """A program and a plan at verification extents, and how they became so."""

    program: Program
    plan: Plan
    literals: tuple[tuple[int, int], ...]


def small(
    program: Program,
    plan: Plan,
    variant: int = 0,
    *,
    roomy: frozenset[str] = frozenset(),
) -> Small:
    """`program` and `plan` at verification extents.

    Args:
      program: the program.
      plan: a valid plan of it.
      variant: another number gives other extents where there is a choice.
      roomy: labels to make longer than others (so that contractions over them have
        full rank).

    Raises:
      UnsupportedError: when the extents that must be kept are too large.
    """
    sizes = {**plan.sizes, **program.sizes}
    walks = _walks(plan)
    ties = _tied(program, plan, sizes)
    literals = _literals(program, plan)
    least = _compared(program, plan, ties, sizes, literals)
    for label in map(ties.root, roomy):
        least[label] = max(ROOMY, least.get(label, 0))
    extents = _chosen(ties, sizes, walks, least, variant)
    table = {integer(a): integer(b) for a, b in literals.items()}
    accesses = reads(*_all_terms(program, plan))
    return Small(
        _program(program, accesses, extents, table),
        _plan(plan, accesses, extents, table, walks),
        tuple(sorted(literals.items())),
    )


def _walks(plan: Plan) -> dict[tuple[str, str], Walk]:
    found = {}
    for k in plan.custom:
        ranges = [(r, BLOCKS) for r in k.grid]
        if k.loop is not None:
            ranges.append((k.loop, ITERATIONS))
        for r, least in ranges:
            found[k.name, r.label] = Walk(plan.sizes[r.label], r.tile, least)
    return found


def _all_terms(program: Program, plan: Plan) -> tuple[Term, ...]:
    roots = [o.term for o in program.outputs]
    return subterms(*roots, *(r for k in plan.kernels for r in k.roots))


def _tied(program: Program, plan: Plan, sizes: Mapping[str, int]) -> Ties:
    ties = Ties(sizes)
    seen: dict[tuple[str, int], tuple[Factor, ...]] = {}
    uses: list[tuple[str, Axes]] = [
        (a.tensor, a.axes) for a in reads(*_all_terms(program, plan))
    ]
    stores = [s for k in plan.kernels for s in k.outputs]
    uses += [(s.tensor.name, s.axes) for s in (*program.outputs, *stores)]
    for name, axes in uses:
        for number, axis in enumerate(axes):
            first = seen.setdefault((name, number), axis)
            if first is not axis:
                ties.align(first, axis)
    return ties


def _plain_literals(term: Term) -> Iterable[int]:
    """Integer literals under `term` that are not multipliers."""
    for t in subterms(term):
        if t.op != "mul":
            yield from (a.attr for a in t.args if a.op == "int")  # pyrefly: ignore


def _literals(program: Program, plan: Plan) -> dict[int, int]:
    """Large integer literals and what stands for them."""
    found = {
        abs(n)
        for t in _all_terms(program, plan)
        if t.op in COMPARISONS
        for n in _plain_literals(t)
    }
    large = sorted(n for n in found if n > LARGEST_KEPT)
    table = {n: 2 + i for i, n in enumerate(large)}
    return table | {-n: -m for n, m in table.items()}


def _compared(
    program: Program,
    plan: Plan,
    ties: Ties,
    sizes: Mapping[str, int],
    literals: Mapping[int, int],
) -> dict[str, int]:
    """The least extents of labels compared with literals; small extents are kept."""
    least: dict[str, int] = {}
    for t in _all_terms(program, plan):
        numbers = list(_plain_literals(t)) if t.op in COMPARISONS else []
        if not any(numbers):
            continue
        for label in (x.attr for x in subterms(t) if x.op == "iota"):
            assert isinstance(label, str)
            if sizes[label] <= LARGEST_KEPT:
                ties.keep(label, sizes[label])
            need = 3 + max(abs(literals.get(n, n)) for n in numbers)
            root = ties.root(label)
            least[root] = max(least.get(root, 0), need)
    return least


def _chosen(
    ties: Ties,
    sizes: Mapping[str, int],
    walks: Mapping[tuple[str, str], Walk],
    least: Mapping[str, int],
    variant: int,
) -> dict[str, int]:
    by_root: dict[str, list[Walk]] = {}
    for (_, label), walk in walks.items():
        by_root.setdefault(ties.root(label), []).append(walk)
    need = {ties.root(x): n for x, n in least.items()}
    extents: dict[str, int] = {}
    used: dict[int, int] = {}
    pending = sorted({ties.root(x) for x in sizes})
    for root in [r for r in pending if r in ties.fixed]:
        extents[root] = ties.fixed[root]
    free = [r for r in pending if r not in extents and r not in ties.products]
    for root in sorted(free, key=lambda r: (-len(by_root.get(r, ())), r)):
        options = _options(by_root.get(root, []), sizes[root], need.get(root, 0))
        turned = options[variant % len(options) :] + options[: variant % len(options)]
        extents[root] = min(turned, key=lambda e: used.get(e, 0))
        used[extents[root]] = used.get(extents[root], 0) + 1
    return {x: _extent(ties.root(x), ties, extents, ()) for x in sizes}


def _options(walks: list[Walk], extent: int, least: int) -> list[int]:
    """Extents at which all walks keep their structure, smallest first, at most five."""
    low = min(max(2, least), extent)
    high = min(extent, max(LARGEST, low + 4))
    every = range(low, high + 1)
    fit = [e for e in every if all(w.tiles(e) is not None for w in walks)]
    return fit[:5] if fit else [high]


def _extent(
    root: str, ties: Ties, extents: Mapping[str, int], above: tuple[str, ...]
) -> int:
    if root in extents:
        return extents[root]
    if root in above or root not in ties.products:
        raise UnsupportedError(f"the extent of label `{root}` depends on itself")
    parts = [ties.root(x) for x in ties.products[root]]
    return prod(_extent(p, ties, extents, (*above, root)) for p in parts)


def _store(s: Store, sizes: Mapping[str, int], table: Mapping[Term, Term]) -> Store:
    tensor = replace(s.tensor, shape=axes_shape(s.axes, sizes))
    return Store(tensor, s.axes, substitute(s.term, table))


def _tensors(
    tensors: tuple[Tensor, ...],
    accesses: Iterable[Access],
    sizes: Mapping[str, int],
) -> tuple[Tensor, ...]:
    shapes = {a.tensor: axes_shape(a.axes, sizes) for a in accesses}
    return tuple(
        replace(t, shape=shapes.get(t.name, (1,) * len(t.shape))) for t in tensors
    )


def _program(
    program: Program,
    accesses: tuple[Access, ...],
    sizes: Mapping[str, int],
    table: Mapping[Term, Term],
) -> Program:
    return Program(
        tuple((x, sizes[x]) for x, _ in program.extents),
        _tensors(program.inputs, accesses, sizes),
        tuple(_store(o, sizes, table) for o in program.outputs),
    )


def _plan(
    plan: Plan,
    accesses: tuple[Access, ...],
    sizes: Mapping[str, int],
    table: Mapping[Term, Term],
    walks: Mapping[tuple[str, str], Walk],
) -> Plan:
    kernels = tuple(_kernel(k, sizes, table, walks) for k in plan.kernels)
    stored = {s.tensor.name: s.tensor for k in kernels for s in k.outputs}
    return Plan(
        tuple((x, sizes[x]) for x, _ in plan.extents),
        _tensors(plan.inputs, accesses, sizes),
        tuple(stored[t.name] for t in plan.outputs),
        kernels,
    )


def _kernel(
    kernel: BlockGraph | Predefined,
    sizes: Mapping[str, int],
    table: Mapping[Term, Term],
    walks: Mapping[tuple[str, str], Walk],
) -> BlockGraph | Predefined:
    new = mapped(
        kernel,
        store=lambda s: _store(s, sizes, table),
        term=lambda t: substitute(t, table),
    )
    if isinstance(new, Predefined):
        return new

    def smaller(r: Range) -> Range:
        return Range(r.label, walks[new.name, r.label].any_tile(sizes[r.label]))

    loop = smaller(new.loop) if new.loop is not None else None
    return replace(new, grid=tuple(map(smaller, new.grid)), loop=loop)
