"""Axes of values: which labels a value has as axes, in which order, how long.

Inside one emitted function all values agree on one order of the labels, so that an
elementwise op needs no transpose; a label whose tile is one is no axis.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod

from ugraph.contraction import Contraction, as_contraction
from ugraph.graph import BlockGraph, Predefined, reads_of, tile_sizes
from ugraph.terms import subterms

SMALLEST_DOT = 16


@dataclass(frozen=True)
class Layout:
    """The axes of the values of one function.

    Attributes:
      order: every label, in the order in which values have them as axes.
      extents: each label's whole extent.
      tiles: each label's extent in a tile.
      lengths: each label's length as an axis: the tile, padded where the backend asks.
    """

    order: tuple[str, ...]
    extents: Mapping[str, int]
    tiles: Mapping[str, int]
    lengths: Mapping[str, int]

    def axes(self, labels: Iterable[str]) -> tuple[str, ...]:
        """Those of `labels` that are axes, in order."""
        chosen = set(labels)
        return tuple(x for x in self.order if x in chosen and self.lengths[x] > 1)

    def shape(self, axes: Iterable[str]) -> tuple[int, ...]:
        """The lengths of `axes`."""
        return tuple(self.lengths[x] for x in axes)

    def is_masked(self, label: str) -> bool:
        """Whether a tile of `label` may reach past its end."""
        return (
            self.lengths[label] != self.tiles[label]
            or self.extents[label] % self.tiles[label] != 0
        )


def whole(kernel: BlockGraph | Predefined, extents: Mapping[str, int]) -> Layout:
    """The layout of a function on whole arrays, or on tiles that divide them."""
    tiles = extents
    if isinstance(kernel, BlockGraph):
        tiles = tile_sizes(kernel, extents)
    return Layout(order(kernel), extents, tiles, tiles)


def padded(kernel: BlockGraph, extents: Mapping[str, int]) -> Layout:
    """The layout of a tile: axes are powers of two, those of dots 16 or longer."""
    tiles = tile_sizes(kernel, extents)
    lengths = {x: 1 << (n - 1).bit_length() for x, n in tiles.items()}
    for term in subterms(*kernel.roots):
        product = as_contraction(term, tiles)
        if product is not None and is_dot(product, tiles):
            for side in (product.rows, product.columns, product.contracted):
                longest = max(side, key=lambda x: (lengths[x], x))
                while prod(lengths[x] for x in side) < SMALLEST_DOT:
                    lengths[longest] *= 2
    return Layout(order(kernel), extents, tiles, lengths)


def is_dot(product: Contraction, tiles: Mapping[str, int]) -> bool:
    """Whether a contraction is one two-dimensional matrix product in its tile."""
    sides = (product.rows, product.columns, product.contracted)
    return all(prod(tiles[x] for x in side) > 1 for side in sides) and all(
        tiles[x] == 1 for x in product.batch
    )


def order(kernel: BlockGraph | Predefined) -> tuple[str, ...]:
    """All labels of a kernel, as the tensors it writes and reads order them."""
    axes = [s.axes for s in kernel.outputs] + [a.axes for a in reads_of(kernel)]
    rows = [[f for axis in a for f in axis if isinstance(f, str)] for a in axes]
    others = [x for t in subterms(*kernel.roots) for x in t.labels]
    labels = list(dict.fromkeys([*(x for row in rows for x in row), *others]))
    before: dict[tuple[str, str], int] = {}
    for weight, row in zip(range(len(rows), 0, -1), rows, strict=True):
        for i, x in enumerate(row):
            for y in row[i + 1 :]:
                before[y, x] = before.get((y, x), 0) + weight
    chosen: list[str] = []
    while labels:
        first = min(labels, key=lambda x: sum(before.get((x, y), 0) for y in labels))
        labels.remove(first)
        chosen.append(first)
    return tuple(chosen)
