"""Sizes: tile extents, warps and stages for a block graph, by the cost model.

Structure is chosen once for all sizes; here the parameters are filled in.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import product
from math import inf

import numpy as np

from ugraph.cost import SMALLEST_DOT, Cost, kernel_cost, kernel_seconds
from ugraph.graph import BlockGraph, Range
from ugraph.profile import Profile, profile
from ugraph.program import Tensor
from ugraph.target import Target

GRID_TILES = (1, 4, 16, 32, 64, 128, 256, 1024)
LOOP_TILES = (16, 32, 64, 128, 256, 512, 1024, 2048)
WARPS = (4, 8)
STAGES = (2, 3, 4)
MOST_CHOICES = 1024


@dataclass(frozen=True, slots=True)
class Sized:
    """A block graph with its sizes, and what it is predicted to cost."""

    kernel: BlockGraph
    cost: Cost


def size(
    kernel: BlockGraph,
    tensors: Mapping[str, Tensor],
    sizes: Mapping[str, int],
    target: Target,
    *,
    refine: bool = False,
) -> Sized | None:
    """The cheapest sizes for `kernel`, or None when none fit the target.

    Args:
      kernel: a block graph whose ranges' tiles are to be chosen.
      tensors: device tensors by name.
      sizes: label to extent.
      target: the device.
      refine: also choose warps and stages.
    """
    p = profile(kernel, tensors, sizes)
    launches = tuple(product(WARPS, STAGES)) if refine else ((4, 3), (8, 3))
    walked = _walked(p, sizes)
    choices = [
        (*tiles, *launch)
        for tiles in product(*(options for _, options in walked))
        for launch in launches
    ]
    table = np.array(choices, dtype=np.float64).T
    tiles = {x: np.float64(n) for x, n in sizes.items()}
    tiles |= {w[0]: column for w, column in zip(walked, table, strict=False)}
    seconds, _, fits = kernel_seconds(
        p, tiles, sizes, target, num_warps=table[-2], num_stages=table[-1]
    )
    timed = np.where(fits, seconds, inf) + np.zeros(len(choices))
    best = int(np.argmin(timed))
    if timed[best] == inf:
        return None
    chosen = {w[0]: n for w, n in zip(walked, choices[best], strict=False)}
    loop = kernel.loop
    sized = replace(
        kernel,
        grid=tuple(Range(r.label, chosen[r.label]) for r in kernel.grid),
        loop=Range(loop.label, chosen[loop.label]) if loop else None,
        num_warps=choices[best][-2],
        num_stages=choices[best][-1],
    )
    return Sized(sized, kernel_cost(p, sizes, target, sized))


def _walked(p: Profile, sizes: Mapping[str, int]) -> list[tuple[str, tuple[int, ...]]]:
    """Tile extents to try for each walked label; every other label is whole."""
    contractions = [d.contraction for d in p.dots]
    batch = {label for c in contractions for label in c.batch}
    dotted = {x for c in contractions for x in (*c.rows, *c.columns, *c.contracted)}
    walked: list[tuple[str, tuple[int, ...]]] = []
    for r in p.kernel.grid:
        options = (
            (1,) if r.label in batch else _tiles(r.label, GRID_TILES, dotted, sizes)
        )
        walked.append((r.label, options))
    if p.kernel.loop is not None:
        label = p.kernel.loop.label
        walked.append((label, _tiles(label, LOOP_TILES, dotted, sizes)))
    while _count(walked) > MOST_CHOICES:
        label, options = max(walked, key=lambda w: len(w[1]))
        walked[walked.index((label, options))] = (label, options[::2])
    return walked


def _count(walked: list[tuple[str, tuple[int, ...]]]) -> int:
    total = 1
    for _, options in walked:
        total *= len(options)
    return total


def _tiles(
    label: str, options: tuple[int, ...], dotted: set[str], sizes: Mapping[str, int]
) -> tuple[int, ...]:
    extent = sizes[label]
    least = SMALLEST_DOT if label in dotted else 1
    found = tuple(t for t in options if least <= t < extent)
    return (*found, extent) if extent <= options[-1] or not found else found
