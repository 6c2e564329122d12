"""Programs: what a region computes, as terms over its inputs.

A `Program` is the meaning that every candidate must have. It says nothing of kernels.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from ugraph.terms import Access, Axes, Fixed, Reduction, Term, show, subterms

ITEMSIZE: Mapping[str, int] = {"bf16": 2, "f16": 2, "f32": 4, "bool": 1, "i32": 4}
FLOATS = frozenset({"bf16", "f16", "f32"})


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor in device memory.

    Attributes:
      name: unique in its program.
      dtype: one of `ITEMSIZE`.
      shape: sizes of its axes.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def bytes(self) -> int:
        """Its size in bytes."""
        return prod(self.shape) * ITEMSIZE[self.dtype]


@dataclass(frozen=True, slots=True)
class Store:
    """A tensor and the term whose value it holds.

    Attributes:
      tensor: where the value goes; it is rounded to the tensor's dtype.
      axes: the label factors of each of the tensor's axes, major first.
      term: the value; its labels are among those of `axes`, and a label of `axes` that
        the term lacks is a broadcast.
    """

    tensor: Tensor
    axes: Axes
    term: Term

    def __str__(self) -> str:
        names = ",".join(" ".join(map(str, axis)) for axis in self.axes)
        return f"{self.tensor.name}[{names}] = {show(self.term)}"


@dataclass(frozen=True)
class Program:
    """A region as labelled terms.

    Attributes:
      extents: the size of every index label, two or more each.
      inputs: the region's inputs, in order.
      outputs: the region's outputs, in order.
      roundings: terms that the program as written rounds, and the dtype it rounds to.
    """

    extents: tuple[tuple[str, int], ...]
    inputs: tuple[Tensor, ...]
    outputs: tuple[Store, ...]
    roundings: tuple[tuple[Term, str], ...] = ()

    @property
    def sizes(self) -> dict[str, int]:
        """Label to extent."""
        return dict(self.extents)

    @property
    def terms(self) -> tuple[Term, ...]:
        """Every distinct subterm, operands first."""
        return subterms(*(o.term for o in self.outputs))

    @property
    def key(self) -> str:
        """Hash of the whole program, equal in every process."""
        parts = [repr(self.extents), repr(self.inputs)]
        parts += [f"{o.tensor!r}{o.axes!r}{o.term.digest}" for o in self.outputs]
        parts += [f"{t.digest}:{d}" for t, d in self.roundings]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:24]

    def __str__(self) -> str:
        lines = ["program " + " ".join(f"{n}={s}" for n, s in self.extents)]
        lines += [f"  {t.name}: {t.dtype}{list(t.shape)}" for t in self.inputs]
        lines += [f"  {o} : {o.tensor.dtype}" for o in self.outputs]
        return "\n".join(lines)


def factor_sizes(axes: Axes, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """The sizes of all factors of all axes, in order."""
    return tuple(
        f.size if isinstance(f, Fixed) else sizes[f] for axis in axes for f in axis
    )


def axes_shape(axes: Axes, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """The shape of a tensor with these axes."""
    return tuple(prod(factor_sizes((axis,), sizes)) for axis in axes)


def reads(*roots: Term) -> tuple[Access, ...]:
    """Every distinct access to device memory under `roots`."""
    return tuple(t.attr for t in subterms(*roots) if isinstance(t.attr, Access))


def bound_labels(*roots: Term) -> tuple[str, ...]:
    """Every label that some reduction under `roots` binds, sorted."""
    found = (t.attr.labels for t in subterms(*roots) if isinstance(t.attr, Reduction))
    return tuple(sorted({label for labels in found for label in labels}))
