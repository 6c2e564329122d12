"""The search: a program in, ranked plans out (paper section 4).

For every equal form of the program (`rewrite`), the kernel graph is searched
(`kernels`), structure first and sizes by the cost model (`sizes`). Anytime: plans are
yielded as they are found, best form first; a limit in seconds or Ctrl-C keeps what was
found. Search proposes and never verifies; the caller does.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from math import inf, prod

from ugraph.graph import BlockGraph, Plan, Range
from ugraph.kernels import Costed, Kernels, plan_of
from ugraph.program import ITEMSIZE, Program, Store
from ugraph.rewrite import Counts, Step, Variant, variants
from ugraph.rules import AXIOMS, Rule
from ugraph.schedule import grid_labels
from ugraph.target import Target
from ugraph.terms import Reduction, Term, is_reduction, make, rebuild, subterms

CPU_BLOCKS = 4096
NEAR_FLOOR = 1.25
"""Forms are searched until a plan is within this factor of the cost model's floor."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How much to search.

    Attributes:
      forms: equal forms of the program at most.
      seconds: wall time at most.
      states: kernels and forms looked at, at most (None: no limit); unlike a limit in
        seconds it stops at the same point every time.
      max_kernel_ops: custom kernels of a plan at most.
      max_block_ops: reductions, products and exponentials of a custom kernel at most.
    """

    forms: int = 24
    seconds: float = 20.0
    states: int | None = None
    max_kernel_ops: int = 5
    max_block_ops: int = 11


@dataclass(frozen=True, slots=True)
class Candidate:
    """A plan, its predicted cost, and the derivation of its terms.

    Attributes:
      plan: the μGraph.
      seconds: predicted time on the target.
      kernels: each kernel with its predicted cost.
      derivation: axioms that led from the program to the plan's terms.
      note: what distinguishes it, in words.
    """

    plan: Plan
    seconds: float
    kernels: tuple[Costed, ...]
    derivation: tuple[Step, ...]
    note: str = ""


@dataclass(slots=True)
class Found:
    """What a search found, best first, and what it saw."""

    candidates: tuple[Candidate, ...] = ()
    original_seconds: float = inf
    counts: Counts = field(default_factory=Counts)
    seconds: float = 0.0
    stopped: str = ""


def search(
    program: Program,
    target: Target,
    *,
    limits: Limits | None = None,
    rules: tuple[Rule, ...] = AXIOMS,
    clock: Callable[[], float] = time.monotonic,
) -> Found:
    """Searches plans for `program` on `target`.

    Returns:
      Candidates sorted by predicted time (on a CPU: by how much they promise; they are
      to be measured), with counts. Empty when no plan fits.
    """
    limits = limits or Limits()
    found, start = Found(), clock()
    roots = tuple(o.term for o in program.outputs)
    proposals = _cpu_plans if target.platform == "cpu" else _gpu_plans
    candidates: dict[Plan, Candidate] = {}

    def stopped() -> str:
        if limits.states is not None and found.counts.seen >= limits.states:
            return f"limit of {limits.states} states"
        spent = clock() - start
        return f"time limit of {limits.seconds:g} s" if spent > limits.seconds else ""

    try:
        forms = variants(roots, rules, limit=limits.forms, counts=found.counts)
        forms = (*forms[1:2], *forms[:1], *forms[2:])
        found.original_seconds = original_seconds(program, target)
        floor = Kernels(program, roots, target, 0, found.counts).floor
        for form in forms:
            task = _Task(program, target, limits, found.counts, stopped)
            for candidate in proposals(task, form):
                candidates.setdefault(candidate.plan, candidate)
            if target.platform != "cpu" and any(
                c.seconds <= NEAR_FLOOR * floor(len(c.plan.kernels))
                for c in candidates.values()
            ):
                found.stopped = "the best plan is near the floor of the cost model"
                break
            found.stopped = stopped()
            if found.stopped:
                break
    except KeyboardInterrupt:
        found.stopped = "interrupted"
    found.candidates = tuple(sorted(candidates.values(), key=lambda c: c.seconds))
    found.seconds = clock() - start
    return found


def original_seconds(program: Program, target: Target) -> float:
    """Predicted time of the program as XLA runs it: every reduction a kernel."""
    roots = tuple(o.term for o in program.outputs)
    kernels = Kernels(program, roots, target, 0, Counts())
    return kernels.total(tuple((t,) for t in kernels.anchors()))


@dataclass(frozen=True, slots=True)
class _Task:
    """What plans are searched for."""

    program: Program
    target: Target
    limits: Limits
    counts: Counts
    expired: Callable[[], object]


def _gpu_plans(task: _Task, form: Variant) -> Iterator[Candidate]:
    program, limits = task.program, task.limits
    state = Kernels(
        program,
        form.roots,
        task.target,
        limits.max_block_ops,
        task.counts,
        task.expired,
    )
    groups = state.search()
    made = state.kernels(groups) if groups else ()
    custom = sum(isinstance(c.kernel, BlockGraph) for c in made)
    if not 1 <= custom <= limits.max_kernel_ops:
        return
    plan = plan_of(made, program, state.sizes)
    seconds = sum(c.cost.seconds for c in made)
    yield Candidate(plan, seconds, made, form.derivation)


def _cpu_plans(task: _Task, form: Variant) -> Iterator[Candidate]:
    """Whole-tile block graphs: accumulation in float32, a grid label as a loop.

    The promised time is the number of elements that loops leave per step, so that the
    plain form comes first; on a CPU plans are measured.
    """
    program = task.program
    stores = tuple(
        Store(o.tensor, o.axes, t)
        for o, t in zip(program.outputs, form.roots, strict=True)
    )
    widened = tuple(Store(s.tensor, s.axes, widen(s.term)) for s in stores)
    rank = len(form.derivation)
    for order, (note, variant) in enumerate(
        (("operands as they are", stores), ("operands in float32", widened))
    ):
        if order and variant == stores:
            continue
        for i, grid in enumerate(
            _cpu_grids(variant, program.sizes, task.target.shared_bytes)
        ):
            task.counts.seen += 1
            kernel = BlockGraph("kernel0", grid, None, (), variant)
            plan = plan_of((Costed(kernel, None),), program, program.sizes)  # pyrefly: ignore
            seconds = 1e-6 * (1 + i + 10 * order) + 1e-9 * rank
            label = ", loop over " + " and ".join(r.label for r in grid) if grid else ""
            yield Candidate(plan, seconds, (), form.derivation, note + label)


def _cpu_grids(
    stores: tuple[Store, ...], sizes: Mapping[str, int], cache_bytes: int
) -> tuple[tuple[Range, ...], ...]:
    """No grid, and grids whose blocks bring the largest reduction into cache."""
    roots = tuple(s.term for s in stores)
    inside = [t for t in subterms(*roots) if is_reduction(t) and t not in roots]
    sums = [prod(sizes[x] for x in t.labels) * ITEMSIZE["f32"] for t in inside]
    left = max(sums, default=0)
    grids: list[tuple[Range, ...]] = [()]
    for label in grid_labels(stores)[:2]:
        if left <= cache_bytes:
            break
        size = sizes[label]
        fits = (t for t in range(size, 1, -1) if size % t == 0)
        tile = next((t for t in fits if left // size * t <= cache_bytes), 1)
        grids.append((*grids[-1], Range(label, tile)))
        left = left // size * tile
    return tuple(g for g in grids if prod(grid_sizes(g, sizes)) <= CPU_BLOCKS)


def grid_sizes(grid: tuple[Range, ...], sizes: Mapping[str, int]) -> tuple[int, ...]:
    """Blocks along each dimension of a grid."""
    return tuple(-(-sizes[r.label] // r.tile) for r in grid)


def widen(term: Term) -> Term:
    """`term` with every product's operands in float32."""
    table: dict[Term, Term] = {}
    for t in subterms(term):
        new = rebuild(t, tuple(table[a] for a in t.args))
        if is_reduction(new) and isinstance(new.attr, Reduction):
            new = make(new.op, new.args, new.attr._replace(dtype="f32"))
        table[t] = new
    return table[term]
