"""The cost model: what a kernel takes on a target, predicted from its labels.

A `Profile` lists, once per block graph and for every choice of tiles, what a block
loads, multiplies, computes and stores, and how often. `kernel_cost` puts sizes in:

    time = launch + max(device memory, L2, tensor cores, scalar units, latency)

    device memory  bytes of every tensor once (again per block where it outgrows the L2)
                   over bandwidth × the share of multiprocessors that have a block
    L2             bytes that all blocks load over L2 bandwidth × the same share
    tensor cores   padded flops of a block × waves over one multiprocessor's rate
    scalar units   likewise for elementwise work and reductions
    latency        iterations in sequence × one iteration's latency / pipeline depth

Predictions rank plans; they are labelled as predictions wherever they are shown.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import inf, prod
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from ugraph.contraction import Contraction, as_contraction, labels_of
from ugraph.graph import BlockGraph, Predefined, tile_sizes
from ugraph.ops import OPS, Kind
from ugraph.profile import Profile, fused
from ugraph.program import ITEMSIZE, Tensor, factor_sizes
from ugraph.target import Target
from ugraph.terms import Access, Term, subterms

MATRIX_EFFICIENCY = 0.6
XLA_MATRIX_EFFICIENCY = 0.7
BLOCK_FLOATS = 1 << 15
THREAD_REGISTERS = 128
"""Of 255: what values are held in, addresses and operands in flight need the rest."""
SMALLEST_DOT = 16
OVERLAP_LOSS = 0.05
Numbers: TypeAlias = np.float64 | npt.NDArray[np.float64]
Flags: TypeAlias = np.bool_ | npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Cost:
    """A predicted cost.

    Attributes:
      seconds: predicted time; infinite when the kernel does not fit the target.
      memory_bytes: bytes moved to and from device memory.
      l2_bytes: bytes that blocks load in all.
      flops: operations of matrix products, padding included.
      blocks: thread blocks launched.
      shared_bytes: shared memory of a block for pipelined operands.
      why: what bounds it, or why it does not fit.
    """

    seconds: float
    memory_bytes: int = 0
    l2_bytes: int = 0
    flops: float = 0.0
    blocks: int = 0
    shared_bytes: int = 0
    why: str = ""


def _padded(n: Numbers) -> Numbers:
    return 2.0 ** np.ceil(np.log2(n))


def _product(factors: Iterable[Numbers]) -> Numbers:
    total: Numbers = np.float64(1.0)
    for f in factors:
        total = total * f
    return total


@dataclass(frozen=True)
class _Tiles:
    """Tile extents (a number or an array of choices each) and what follows of them."""

    p: Profile
    tiles: Mapping[str, Numbers]
    sizes: Mapping[str, int]
    target: Target
    warps: Numbers
    stages: Numbers

    def padded(self, labels: Iterable[str]) -> Numbers:
        """Elements of a tile, every extent rounded up to a power of two."""
        return _product(_padded(self.tiles[x]) for x in labels)

    def real(self, labels: Iterable[str]) -> Numbers:
        """Elements of a tile."""
        return _product(np.minimum(self.tiles[x], self.sizes[x]) for x in labels)

    def whole(self, labels: Iterable[str]) -> float:
        """Elements of all tiles together."""
        return float(prod(self.sizes[x] for x in labels))

    @property
    def blocks(self) -> Numbers:
        """Thread blocks in the grid."""
        grid = self.p.kernel.grid
        return _product(
            np.ceil(self.sizes[r.label] / self.tiles[r.label]) for r in grid
        )

    @property
    def iterations(self) -> Numbers:
        """Iterations of the loop."""
        loop = self.p.kernel.loop
        if loop is None:
            return np.float64(1.0)
        return np.ceil(self.sizes[loop.label] / self.tiles[loop.label])

    def register_pressure(self) -> tuple[Numbers, Numbers]:
        """32-bit registers a block needs, and the widest elementwise value.

        Accumulators live through the loop; beside them one elementwise value and half
        of the next, and the operands of the largest matrix product.
        """
        held = sum((self.padded(a) for a in self.p.accumulators), np.float64(0.0))
        widest, operands = np.float64(0.0), np.float64(0.0)
        for m in self.p.maps:
            widest = np.maximum(widest, self.padded(m.labels))
        for dot in self.p.dots:
            c = dot.contraction
            both = sum(
                self.padded((*c.batch, *side, *c.contracted))
                for side in (c.rows, c.columns)
            )
            operands = np.maximum(operands, both * ITEMSIZE[c.dtype] / 4)
        return held + 1.5 * widest + operands, widest

    def traffic(self) -> tuple[Numbers, Numbers]:
        """Bytes from device memory, and bytes that blocks load (through the L2)."""
        memory, l2 = np.float64(0.0), np.float64(0.0)
        for load in self.p.loads:
            width = ITEMSIZE[load.tensor.dtype]
            times = load.repeats * (self.iterations if load.looped else 1.0)
            moved = self.real(load.labels) * width * times * self.blocks
            unique = self.whole(load.labels) * width
            fits = load.tensor.bytes < self.target.l2_bytes // 2
            memory = memory + (unique if fits else np.maximum(unique, moved))
            l2 = l2 + moved
        for tensor, labels in self.p.stores:
            memory = memory + self.whole(labels) * ITEMSIZE[tensor.dtype]
        return memory, l2

    def operand_bytes(self) -> Numbers:
        """Shared memory that the pipelined operands of matrix products need."""
        total = np.float64(0.0)
        for dot in self.p.dots:
            c = dot.contraction
            stages = self.stages if dot.looped else 1.0
            for side in (c.rows, c.columns):
                labels = (*c.batch, *side, *c.contracted)
                total = total + self.padded(labels) * ITEMSIZE[c.dtype] * stages
        return total

    def matrix_work(self) -> tuple[Numbers, Numbers]:
        """Flops of one block's matrix products; seconds on one multiprocessor."""
        flops, seconds = np.float64(0.0), np.float64(0.0)
        for dot in self.p.dots:
            c = dot.contraction
            rows, columns, depth = (
                np.maximum(SMALLEST_DOT, self.padded(s))
                for s in (c.rows, c.columns, c.contracted)
            )
            times = self.padded(c.batch) * (self.iterations if dot.looped else 1.0)
            work = 2.0 * times * rows * columns * depth
            wide = np.minimum(1.0, np.maximum(rows, columns) / 64)
            rate = _rate(c, self.target) * wide * np.minimum(1.0, depth / 32)
            flops = flops + work
            seconds = seconds + work / (rate * MATRIX_EFFICIENCY / self.target.cores)
        return flops, seconds

    def scalar_work(self) -> Numbers:
        """Elementwise and reduction operations of one block."""
        return sum(
            (
                self.padded(m.labels) * m.cost * (self.iterations if m.looped else 1.0)
                for m in self.p.maps
            ),
            np.float64(0.0),
        )


def _rate(c: Contraction, target: Target) -> float:
    return target.matrix_f32_flops if c.dtype == "f32" else target.matrix_flops


def kernel_seconds(
    p: Profile,
    tiles: Mapping[str, Numbers],
    sizes: Mapping[str, int],
    target: Target,
    *,
    num_warps: Numbers,
    num_stages: Numbers,
) -> tuple[Numbers, dict[str, Numbers], Flags]:
    """Predicted seconds, what they are made of, and whether the tiles fit the target.

    Args:
      p: the block graph's profile.
      tiles: label to tile extent, one number or an array of choices each.
      sizes: label to extent.
      target: the device.
      num_warps: warps of a block.
      num_stages: pipeline depth of the loop.
    """
    t = _Tiles(p, tiles, sizes, target, num_warps, num_stages)
    pressure, widest = t.register_pressure()
    fits = (pressure <= 32 * num_warps * THREAD_REGISTERS) & (widest <= BLOCK_FLOATS)
    fits = fits & (t.operand_bytes() <= target.shared_bytes)
    share = np.minimum(1.0, t.blocks / target.cores)
    waves = np.ceil(t.blocks / target.cores)
    memory, l2 = t.traffic()
    sequence = t.iterations * max(1, len(p.kernel.passes))
    parts = {
        "device memory": memory / (target.memory_bandwidth * share),
        "L2": l2 / (target.l2_bandwidth * share),
        "tensor cores": t.matrix_work()[1] * waves,
        "scalar units": t.scalar_work() / (target.scalar_flops / target.cores) * waves,
        "latency": sequence
        * (target.latency_s / num_stages)
        * np.ceil(t.blocks / (4 * target.cores)),
    }
    longest = np.float64(0.0)
    for seconds in parts.values():
        longest = np.maximum(longest, seconds)
    rest = sum(parts.values(), np.float64(0.0)) - longest
    return target.launch_s + longest + OVERLAP_LOSS * rest, parts, fits


def kernel_cost(
    p: Profile, sizes: Mapping[str, int], target: Target, kernel: BlockGraph
) -> Cost:
    """The predicted cost of a block graph with the sizes that `kernel` has."""
    tiles = {x: np.float64(n) for x, n in tile_sizes(kernel, sizes).items()}
    warps, stages = np.float64(kernel.num_warps), np.float64(kernel.num_stages)
    seconds, parts, fits = kernel_seconds(
        p, tiles, sizes, target, num_warps=warps, num_stages=stages
    )
    t = _Tiles(p, tiles, sizes, target, warps, stages)
    memory, l2 = t.traffic()
    why = max(parts, key=lambda name: float(parts[name]))
    return Cost(
        float(seconds) if fits else inf,
        int(memory),
        int(l2),
        float(t.matrix_work()[0] * t.blocks),
        int(t.blocks),
        int(t.operand_bytes()),
        why if fits else "outgrows registers or shared memory",
    )


def predefined_cost(
    kernel: Predefined,
    tensors: Mapping[str, Tensor],
    sizes: Mapping[str, int],
    target: Target,
) -> Cost:
    """The predicted cost of a kernel that XLA makes, at its own efficiency."""
    terms = subterms(*kernel.roots)
    loads = {t.attr: t for t in terms if isinstance(t.attr, Access)}
    memory = sum(
        prod(sizes[x] for x in t.labels) * ITEMSIZE[tensors[a.tensor].dtype]
        for a, t in loads.items()
    )
    memory += sum(
        prod(factor_sizes(s.axes, sizes)) * ITEMSIZE[s.tensor.dtype]
        for s in kernel.stores
    )
    flops = matrix = scalar = 0.0
    launches = 1
    swallowed = fused(terms, sizes)
    for t in terms:
        c = as_contraction(t, sizes)
        if c is not None:
            launches += _splits_contraction(c, sizes, target)
            labels = (*c.batch, *c.rows, *c.columns, *c.contracted)
            work = 2.0 * prod(sizes[x] for x in labels)
            flops += work
            matrix += work / (_rate(c, target) * XLA_MATRIX_EFFICIENCY)
            scalar += sum(
                prod(sizes[x] for x in labels_of(side)) * (len(side) - 1)
                for side in (c.left, c.right)
            )
        elif t in swallowed:
            continue
        elif OPS[t.op].kind is not Kind.LEAF:
            labels = t.args[0].labels if OPS[t.op].kind is Kind.REDUCE else t.labels
            scalar += prod(sizes[x] for x in labels) * OPS[t.op].cost
    parts = {
        "device memory": memory / target.memory_bandwidth,
        "tensor cores": matrix,
        "scalar units": scalar / target.scalar_flops,
    }
    why = max(parts, key=lambda name: parts[name])
    seconds = launches * target.launch_s + parts[why]
    return Cost(seconds, memory, memory, flops, 0, 0, why)


def _splits_contraction(
    c: Contraction, sizes: Mapping[str, int], target: Target
) -> bool:
    """Whether XLA would split the contraction, at the price of one more kernel.

    It does when the result has fewer tiles of 64 × 64 than there are multiprocessors.
    """
    tiles = prod(sizes[x] for x in c.batch)
    for side in (c.rows, c.columns):
        tiles *= -(-prod(sizes[x] for x in side) // 64)
    return tiles < target.cores


def matrix_floor(
    roots: tuple[Term, ...], sizes: Mapping[str, int], target: Target
) -> float:
    """Seconds that the matrix products of `roots` take at the least."""
    total = 0.0
    for term in subterms(*roots):
        c = as_contraction(term, sizes)
        if c is not None:
            labels = (*c.batch, *c.rows, *c.columns, *c.contracted)
            rate = _rate(c, target)
            work = 2.0 * prod(sizes[x] for x in labels)
            total += work / (rate * XLA_MATRIX_EFFICIENCY)
    return total
