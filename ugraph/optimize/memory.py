"""On-chip memory: where the operands of matrix products lie, and for how long.

The operands of a matrix product live in shared memory, loaded or computed. A buffer is
taken from the step that makes the operand to the last step that uses it; loads inside
the loop are pipelined, so they hold one buffer per stage through the whole loop.
Buffers whose lifetimes do not meet may share bytes. Few buffers are packed
exhaustively: every order of first fit is tried, and one of them is optimal. Many are
packed by size.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import permutations
from math import prod

from ugraph.contraction import as_contraction
from ugraph.graph import BlockGraph, tile_sizes
from ugraph.optimize.order import Ordered
from ugraph.optimize.places import operands
from ugraph.program import ITEMSIZE
from ugraph.terms import Term

ALIGNMENT = 128
FEW = 6


@dataclass(frozen=True, slots=True)
class Buffer:
    """An operand tile in shared memory.

    Attributes:
      term: the operand.
      dtype: what it is rounded to.
      bytes: its size, all pipeline stages together, aligned.
      start: the first step in which it is held.
      end: the last step in which it is held.
    """

    term: Term
    dtype: str
    bytes: int
    start: int
    end: int

    def meets(self, other: "Buffer") -> bool:
        """Whether both are held at some step."""
        return self.start <= other.end and other.start <= self.end


@dataclass(frozen=True, slots=True)
class Memory:
    """Shared memory of a block: buffers, where each begins, and bytes in all."""

    buffers: tuple[Buffer, ...] = ()
    offsets: tuple[int, ...] = ()
    peak: int = 0


def plan_memory(
    kernel: BlockGraph, order: tuple[Ordered, ...], sizes: Mapping[str, int]
) -> Memory:
    """Offsets for every buffer of `kernel`, its ops done in `order`."""
    return pack(buffers(kernel, order, sizes))


def buffers(
    kernel: BlockGraph, order: tuple[Ordered, ...], sizes: Mapping[str, int]
) -> tuple[Buffer, ...]:
    """The buffers that a block holds, by first step."""
    made: dict[Term, tuple[int, int]] = {}
    found: dict[tuple[Term, str, int], Buffer] = {}
    first = 0
    for place in order:
        last = first + len(place.terms) - 1
        for now, term in enumerate(place.terms, first):
            pipelined = place.looped and term.op == "input"
            made[term] = (first, last) if pipelined else (now, now)
            dtype = _dot_dtype(term, sizes)
            for operand in operands(term, sizes) if dtype else ():
                start, end = made.get(operand, (now, now))
                # What was made before the loop is needed again in every iteration.
                end = last if place.looped and start < first else max(end, now)
                staged = place.looped and operand.op == "input" and start >= first
                copies = kernel.num_stages if staged else 1
                size = _tile_bytes(operand, dtype, kernel, sizes) * copies
                new = Buffer(operand, dtype, size, start, end)
                old = found.get((operand, dtype, start), new)
                found[operand, dtype, start] = replace(old, end=max(old.end, end))
        first = last + 1
    return tuple(sorted(found.values(), key=lambda b: (b.start, b.end, b.term.digest)))


def _dot_dtype(term: Term, sizes: Mapping[str, int]) -> str:
    """The dtype of a matrix product's operands; empty for other values."""
    made = as_contraction(term, sizes)
    return made.dtype if made else ""


def _tile_bytes(
    term: Term, dtype: str, kernel: BlockGraph, sizes: Mapping[str, int]
) -> int:
    tiles = tile_sizes(kernel, sizes)
    elements = prod(1 << (tiles[x] - 1).bit_length() for x in term.labels)
    return -(-elements * ITEMSIZE[dtype] // ALIGNMENT) * ALIGNMENT


def pack(found: tuple[Buffer, ...]) -> Memory:
    """Offsets with the lowest peak (with many buffers: a low one)."""
    by_size = sorted(found, key=lambda b: (-b.bytes, b.start))
    orders: Iterable[tuple[Buffer, ...]] = (
        permutations(by_size) if len(found) <= FEW else (tuple(by_size),)
    )
    floor = _floor(found)
    best: dict[Buffer, int] = {}
    peak = None
    for one in orders:
        offsets = _first_fit(one)
        top = max((o + b.bytes for b, o in offsets.items()), default=0)
        if peak is None or top < peak:
            best, peak = offsets, top
        if peak == floor:
            break
    return Memory(found, tuple(best[b] for b in found), peak or 0)


def _floor(found: tuple[Buffer, ...]) -> int:
    """Bytes held at the fullest step: no packing needs fewer."""
    return max(
        (sum(b.bytes for b in found if b.start <= a.start <= b.end) for a in found),
        default=0,
    )


def _first_fit(found: Iterable[Buffer]) -> dict[Buffer, int]:
    offsets: dict[Buffer, int] = {}
    for b in found:
        taken = sorted((o, o + x.bytes) for x, o in offsets.items() if x.meets(b))
        offset = 0
        for low, high in taken:
            if offset + b.bytes <= low:
                break
            offset = max(offset, high)
        offsets[b] = offset
    return offsets
