"""Which labels must have equal extents, or extents that are a product of others'."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod

from ugraph.terms import Factor, Fixed


@dataclass
class Ties:
    """Which labels must have equal extents, products of extents, or fixed ones."""

    sizes: Mapping[str, int]
    parent: dict[str, str] = field(default_factory=dict)
    fixed: dict[str, int] = field(default_factory=dict)
    products: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def root(self, label: str) -> str:
        """The label that stands for all that are tied to `label`."""
        while label in self.parent:
            label = self.parent[label]
        return label

    def keep(self, label: str, extent: int) -> None:
        """Fixes the extent of a label."""
        self.fixed[self.root(label)] = extent

    def tie(self, x: Factor, y: Factor) -> None:
        """Makes two factors the same extent."""
        if isinstance(x, Fixed) and isinstance(y, Fixed):
            return
        if isinstance(x, Fixed):
            x, y = y, x
        assert isinstance(x, str)
        if isinstance(y, Fixed):
            self.keep(x, y.size)
            return
        a, b = self.root(x), self.root(y)
        if a != b:
            self.parent[b] = a
            if b in self.fixed:
                self.fixed[a] = self.fixed.pop(b)
            if b in self.products:
                self.multiply(a, self.products.pop(b))

    def multiply(self, label: Factor, parts: tuple[Factor, ...]) -> None:
        """Makes a label's extent the product of others'."""
        names = tuple(p for p in parts if isinstance(p, str))
        if isinstance(label, Fixed) or len(names) < len(parts):
            for f in (label, *parts):
                if isinstance(f, str):
                    self.keep(f, self.sizes[f])
            return
        root = self.root(label)
        other = self.products.setdefault(root, names)
        if other != names:
            self.align(other, names)

    def align(self, left: tuple[Factor, ...], right: tuple[Factor, ...]) -> None:
        """Ties two ways to make one axis, major first."""
        if len(left) == len(right):
            for x, y in zip(left, right, strict=True):
                self.tie(x, y)
            return
        a, b = list(left), list(right)
        while a and b:
            x, y = a.pop(0), b.pop(0)
            if self._size(x) == self._size(y):
                self.tie(x, y)
            elif self._size(x) > self._size(y):
                self.multiply(x, self._run(x, y, b))
            else:
                self.multiply(y, self._run(y, x, a))

    def _run(
        self, whole: Factor, first: Factor, rest: list[Factor]
    ) -> tuple[Factor, ...]:
        run = [first]
        while rest and prod(map(self._size, run)) < self._size(whole):
            run.append(rest.pop(0))
        return tuple(run)

    def _size(self, factor: Factor) -> int:
        return factor.size if isinstance(factor, Fixed) else self.sizes[factor]
