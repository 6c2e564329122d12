"""The μGraph: a plan at three levels (paper section 2).

A `Plan` is a kernel graph: kernels over tensors in device memory. A kernel is
`Predefined` (XLA runs its terms) or a `BlockGraph` (a custom kernel). A block graph has
a grid, at most one for-loop, and passes over that loop; imap, omap and fmap of every
tensor follow from the labels, and are consistent by construction. Thread graphs are
made by rule (`ugraph.optimize.threads`).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from ugraph.program import Program, Store, Tensor
from ugraph.terms import Access, Axes, Fixed, Term, subterms

REPLICATE = "φ"


@dataclass(frozen=True, slots=True)
class Range:
    """A label walked in tiles: by the grid or by the loop."""

    label: str
    tile: int


@dataclass(frozen=True, slots=True)
class Accumulator:
    """A value folded over the for-loop.

    Before the first iteration it is empty; iteration i makes it
    `rescale · before ⊕ body`, where ⊕ is `op`.

    Attributes:
      name: what `Ref` terms call it.
      op: `sum`, `max` or `min`.
      body: one iteration's value; it has not the loop's label. It may refer to
        accumulators listed before it in the same pass (their value after this
        iteration) and to all of earlier passes (their final value).
      rescale: factor on the value so far, or None. Over `ref(m)` and
        `ref(m, when="before")`: how a running maximum that moves is made good
        (exp(m_before - m)). On the first iteration there is nothing to rescale.
    """

    name: str
    op: str
    body: Term
    rescale: Term | None = None


@dataclass(frozen=True, slots=True)
class Pass:
    """One walk over the loop's label.

    Attributes:
      accumulators: folded in this order in every iteration.
      stores: written inside the loop, a tile per iteration; their terms have the loop's
        label and may refer to accumulators of earlier passes only.
    """

    accumulators: tuple[Accumulator, ...] = ()
    stores: tuple[Store, ...] = ()


@dataclass(frozen=True, slots=True)
class BlockGraph:
    """What one thread block does.

    Attributes:
      name: the kernel's name, unique in the plan.
      grid: labels the grid partitions; grid dimension i is `grid[i]`.
      loop: the label the for-loop walks, or None.
      passes: walks over the loop, in order; empty without a loop.
      stores: the epilogue: written once, after the last pass.
      num_warps: warps of a block (GPU targets).
      num_stages: software pipeline depth of the loop's loads (GPU targets).
    """

    name: str
    grid: tuple[Range, ...]
    loop: Range | None
    passes: tuple[Pass, ...]
    stores: tuple[Store, ...]
    num_warps: int = 4
    num_stages: int = 2

    @property
    def outputs(self) -> tuple[Store, ...]:
        """Every store, loop stores first."""
        return tuple(s for p in self.passes for s in p.stores) + self.stores

    @property
    def roots(self) -> tuple[Term, ...]:
        """Every term the block evaluates, in program order."""
        accumulated = [a for p in self.passes for a in p.accumulators]
        bodies = [a.body for a in accumulated]
        scales = [a.rescale for a in accumulated if a.rescale is not None]
        return (*bodies, *scales, *(s.term for s in self.outputs))


@dataclass(frozen=True, slots=True)
class Predefined:
    """A kernel that XLA makes of its terms."""

    name: str
    stores: tuple[Store, ...]

    @property
    def outputs(self) -> tuple[Store, ...]:
        """Every store."""
        return self.stores

    @property
    def roots(self) -> tuple[Term, ...]:
        """Every term it evaluates."""
        return tuple(s.term for s in self.stores)


@dataclass(frozen=True)
class Plan:
    """A kernel graph.

    Attributes:
      extents: size of every label in use (splitting a label adds two).
      inputs: the program's inputs.
      outputs: the program's output tensors, in order.
      kernels: in execution order; a kernel reads inputs and what earlier ones stored.
    """

    extents: tuple[tuple[str, int], ...]
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    kernels: tuple[BlockGraph | Predefined, ...]

    @property
    def sizes(self) -> dict[str, int]:
        """Label to extent."""
        return dict(self.extents)

    @property
    def tensors(self) -> dict[str, Tensor]:
        """Every tensor in device memory, by name."""
        stored = (s.tensor for k in self.kernels for s in k.outputs)
        return {t.name: t for t in (*self.inputs, *stored)}

    @property
    def custom(self) -> tuple[BlockGraph, ...]:
        """The graph-defined kernels."""
        return tuple(k for k in self.kernels if isinstance(k, BlockGraph))

    def __str__(self) -> str:
        stored = (f"{k.name}: {'; '.join(map(str, k.outputs))}" for k in self.kernels)
        return "\n".join(stored)


def reads_of(kernel: BlockGraph | Predefined) -> tuple[Access, ...]:
    """Every distinct access of a kernel to device memory."""
    terms = subterms(*kernel.roots)
    return tuple(t.attr for t in terms if isinstance(t.attr, Access))


def mapped(
    kernel: BlockGraph | Predefined,
    *,
    store: Callable[[Store], Store],
    term: Callable[[Term], Term] = lambda t: t,
) -> BlockGraph | Predefined:
    """`kernel` with every store changed by `store` and accumulators by `term`."""
    stores = tuple(map(store, kernel.stores))
    if isinstance(kernel, Predefined):
        return replace(kernel, stores=stores)

    def folded(a: Accumulator) -> Accumulator:
        rescale = None if a.rescale is None else term(a.rescale)
        return replace(a, body=term(a.body), rescale=rescale)

    passes = tuple(
        Pass(tuple(map(folded, p.accumulators)), tuple(map(store, p.stores)))
        for p in kernel.passes
    )
    return replace(kernel, passes=passes, stores=stores)


def tile_sizes(kernel: BlockGraph, sizes: Mapping[str, int]) -> dict[str, int]:
    """Label to tile extent inside a block: the whole extent unless walked."""
    walked = {r.label: r.tile for r in kernel.grid}
    if kernel.loop is not None:
        walked[kernel.loop.label] = kernel.loop.tile
    return {label: walked.get(label, size) for label, size in sizes.items()}


def grid_counts(kernel: BlockGraph, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """Number of blocks along each grid dimension."""
    return tuple(-(-sizes[r.label] // r.tile) for r in kernel.grid)


def loop_count(kernel: BlockGraph, sizes: Mapping[str, int]) -> int:
    """Iterations of the for-loop (1 without a loop)."""
    return -(-sizes[kernel.loop.label] // kernel.loop.tile) if kernel.loop else 1


def axis_of(axes: Axes, label: str) -> str:
    """Which axis of a tensor carries `label`, as a string; φ for none."""
    found = [i for i, axis in enumerate(axes) if label in axis]
    return str(found[0]) if found else REPLICATE


def baseline(program: Program) -> Plan:
    """The program as one pre-defined kernel: what XLA would be given."""
    kernel = Predefined("original", program.outputs)
    outputs = tuple(o.tensor for o in program.outputs)
    return Plan(program.extents, program.inputs, outputs, (kernel,))


def show_axes(name: str, axes: Axes) -> str:
    """A tensor with its labels, such as `w[d,(h e)]`."""
    parts = []
    for axis in axes:
        names = [f"{f.index}/{f.size}" if isinstance(f, Fixed) else f for f in axis]
        parts.append(names[0] if len(names) == 1 else f"({' '.join(names)})")
    return f"{name}[{','.join(parts)}]"
