"""Axis factorization: which axes of a region's arrays are the same, and their parts.

Every axis is a list of *atoms*, major first, each with a size of two or more; an axis
of size one has none. Two axes that an equation makes the same have the same atoms; a
reshape that splits or merges an axis refines atoms. An atom that was refined stands for
its parts from then on, so facts learned early stay true and one walk over the equations
is enough.

Atoms say what is the same axis, not what is the same index: the labels of a use are
allotted later.
"""

from collections.abc import Iterable, Sequence
from math import prod
from typing import TypeAlias

from mirage_jax.lift.flatten import Node, Refused, Value

Atoms: TypeAlias = tuple[int, ...]


class Factorization:
    """The atoms of every axis of every value.

    Attributes:
      notes: what linking a node found out that instantiating it needs.
    """

    def __init__(self) -> None:
        self.notes: dict[Node, object] = {}
        self._sizes: list[int] = []
        self._parts: dict[int, Atoms] = {}
        self._axes: dict[Value, tuple[Atoms, ...]] = {}

    def fresh(self, size: int) -> Atoms:
        """The atoms of a new axis: one, or none for size one."""
        if size == 1:
            return ()
        self._sizes.append(size)
        return (len(self._sizes) - 1,)

    def size(self, atom: int) -> int:
        """The extent of an atom."""
        return self._sizes[atom]

    def axes(self, value: Value) -> tuple[Atoms, ...]:
        """The atoms of each axis of `value`; new ones when it has none yet."""
        if value not in self._axes:
            self._axes[value] = tuple(self.fresh(n) for n in value.shape)
        return self._axes[value]

    def assign(self, value: Value, axes: Iterable[Atoms]) -> None:
        """Gives a value its axes."""
        self._axes[value] = tuple(axes)

    def leaves(self, atoms: Iterable[int]) -> Atoms:
        """The atoms as they are refined now."""
        found: list[int] = []
        stack = list(atoms)[::-1]
        while stack:
            atom = stack.pop()
            if atom in self._parts:
                stack += self._parts[atom][::-1]
            else:
                found.append(atom)
        return tuple(found)

    def unify(self, first: Iterable[int], second: Iterable[int]) -> None:
        """Makes two axes of equal extent the same.

        Raises:
          Refused: when their factorizations have no common refinement.
        """
        left, right = list(first)[::-1], list(second)[::-1]
        while left and right:
            x, y = self._pop(left), self._pop(right)
            if x == y:
                continue
            n, m = self._sizes[x], self._sizes[y]
            if n == m:
                self._parts[y] = (x,)
            elif m % n == 0:
                self._parts[y] = (x, *self.fresh(m // n))
                right.append(self._parts[y][1])
            elif n % m == 0:
                self._parts[x] = (y, *self.fresh(n // m))
                left.append(self._parts[x][1])
            else:
                raise Refused(f"axes are factored both as {n}·… and as {m}·…")

    def cut(self, atoms: Iterable[int], sizes: Sequence[int]) -> tuple[Atoms, ...]:
        """The atoms in groups of the given extents, refined where a cut falls inside.

        Raises:
          Refused: when a cut falls where no factor ends.
        """
        stack = list(atoms)[::-1]
        groups = []
        for size in sizes:
            group: list[int] = []
            while size > 1:
                atom = self._pop(stack)
                n = self._sizes[atom]
                if size % n == 0:
                    group.append(atom)
                    size //= n
                elif n % size == 0:
                    self._parts[atom] = (*self.fresh(size), *self.fresh(n // size))
                    stack += self._parts[atom][::-1]
                else:
                    raise Refused(f"a factor {n} of an axis cannot be cut at {size}")
            groups.append(tuple(group))
        return tuple(groups)

    def extent(self, atoms: Iterable[int]) -> int:
        """The product of the atoms' extents."""
        return prod(self._sizes[a] for a in atoms)

    def _pop(self, stack: list[int]) -> int:
        while stack[-1] in self._parts:
            stack += self._parts[stack.pop()][::-1]
        return stack.pop()
