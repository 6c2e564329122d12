"""Numpy float64 evaluators of programs and plans, independent of every other stage.

A plan is run exactly as scheduled: one block after the other, iteration by iteration
(the last tile may be ragged), accumulators with their rescaling, loop stores, epilogue,
and values that go from kernel to kernel through device memory. Memory starts unwritten:
reading what nobody wrote, or writing an element twice, fails.
"""

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from ugraph.graph import BlockGraph, Plan, Predefined, Range
from ugraph.program import Program, Store, Tensor, factor_sizes
from ugraph.terms import Access, Axes, Extent, Fixed, Reduction, Ref, Term

Array = npt.NDArray
Window = tuple[int, int]

MEANING: dict[str, Callable[..., Array]] = {
    "exp": np.exp,
    "logistic": lambda x: 1 / (1 + np.exp(-x)),
    "tanh": np.tanh,
    "log": np.log,
    "log1p": np.log1p,
    "expm1": np.expm1,
    "erf": np.vectorize(math.erf, otypes=[np.float64]),
    "sin": np.sin,
    "cos": np.cos,
    "abs": np.abs,
    "sign": np.sign,
    "floor": np.floor,
    "ceil": np.ceil,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "finite": lambda x: np.where(x == -np.inf, 0.0, x),
    "to_float": lambda x: x.astype(np.float64),
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "eq": np.equal,
    "ne": np.not_equal,
    "and": np.logical_and,
    "or": np.logical_or,
    "not": np.logical_not,
    "select": np.where,
}
FOLD = {"sum": np.add, "max": np.maximum, "min": np.minimum}


@dataclass
class Memory:
    """Device memory: values, and how often each element was written."""

    values: dict[str, Array] = field(default_factory=dict)
    writes: dict[str, Array] = field(default_factory=dict)

    def put(self, tensor: Tensor, value: Array) -> None:
        """Places an input."""
        assert value.shape == tensor.shape, (value.shape, tensor)
        is_float = tensor.dtype not in ("bool", "i32")
        self.values[tensor.name] = value.astype(np.float64) if is_float else value
        self.writes[tensor.name] = np.ones(value.shape, np.int64)

    def allocate(self, tensor: Tensor) -> None:
        """Makes room for what a kernel stores: poison until written."""
        dtype = {"bool": np.bool_, "i32": np.int64}.get(tensor.dtype, np.float64)
        self.values[tensor.name] = np.full(tensor.shape, 77, dtype)
        self.writes[tensor.name] = np.zeros(tensor.shape, np.int64)


@dataclass
class Scope:
    """Where terms are evaluated: a window of every label, memory and accumulators."""

    sizes: Mapping[str, int]
    windows: Mapping[str, Window]
    memory: Memory
    now: Mapping[str, tuple[tuple[str, ...], Array]] = field(default_factory=dict)
    before: Mapping[str, tuple[tuple[str, ...], Array]] = field(default_factory=dict)
    known: dict[Term, Array] = field(default_factory=dict)

    def value(self, term: Term) -> Array:
        """The value of `term`: one axis per label, in sorted order."""
        if term not in self.known:
            made = np.asarray(self._value(term))
            shape = tuple(hi - lo for lo, hi in map(self.window, term.labels))
            assert made.shape == shape, (term, made.shape, shape)
            self.known[term] = made
        return self.known[term]

    def window(self, label: str) -> Window:
        """Which part of `label` is seen."""
        return self.windows.get(label, (0, self.sizes[label]))

    def _value(self, term: Term) -> Array:
        attr = term.attr
        match attr:
            case Access():
                return self._read(attr, term.labels)
            case Ref(name, labels, when):
                have, value = (self.now if when == "now" else self.before)[name]
                assert have == labels, (term, have)
                return value
            case Extent(label):
                return np.asarray(self.sizes[label])
            case Reduction(labels):
                (body,) = term.args
                axes = tuple(body.labels.index(x) for x in labels)
                return FOLD[term.op].reduce(self.value(body), axis=axes)
        return self._map(term)

    def _map(self, term: Term) -> Array:
        args = [self.spread(a, term.labels) for a in term.args]
        attr: Any = term.attr
        match term.op:
            case "lit":
                found = np.asarray(float(attr))
            case "int":
                found = np.asarray(attr)
            case "iota":
                found = np.arange(*self.window(attr))
            case "add":
                found = sum(args[1:], args[0])
            case "mul":
                found = math.prod(args[1:], start=args[0])
            case "pow":
                found = np.power(args[0], float(attr))
            case _:
                found = MEANING[term.op](*args)
        return found

    def spread(self, term: Term, labels: tuple[str, ...]) -> Array:
        """The value of `term` with an axis for each of `labels`, of any size."""
        value = self.value(term)
        return value.reshape(
            [hi - lo if x in term.labels else 1 for x in labels
             for lo, hi in [self.window(x)]]
        )  # fmt: skip

    def index(self, axes: Axes, labels: tuple[str, ...]) -> tuple[Array, ...]:
        """For each factor of `axes` its positions, broadcast over `labels`."""
        rank, found = len(labels), []
        for f in (f for axis in axes for f in axis):
            if isinstance(f, Fixed):
                found.append(np.asarray(f.index).reshape([1] * rank))
            else:
                shape = [-1 if x == f else 1 for x in labels]
                found.append(np.arange(*self.window(f)).reshape(shape))
        return tuple(found)

    def _read(self, access: Access, labels: tuple[str, ...]) -> Array:
        shape, at = (
            factor_sizes(access.axes, self.sizes),
            self.index(access.axes, labels),
        )
        if not at:
            assert (self.memory.writes[access.tensor] == 1).all(), access
            return self.memory.values[access.tensor].reshape(())
        written = self.memory.writes[access.tensor].reshape(shape)[at]
        assert (written == 1).all(), f"{access} is read before it is written"
        return self.memory.values[access.tensor].reshape(shape)[at]

    def store(self, store: Store) -> None:
        """Writes one block's or iteration's tile of a tensor."""
        labels = tuple(
            sorted(f for axis in store.axes for f in axis if isinstance(f, str))
        )
        shape, at = factor_sizes(store.axes, self.sizes), self.index(store.axes, labels)
        value = self.spread(store.term, labels)
        name = store.tensor.name
        self.memory.values[name].reshape(shape)[at or ...] = value
        self.memory.writes[name].reshape(shape)[at or ...] += 1


def evaluate_program(program: Program, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """The outputs of `program`, by name."""
    kernel = Predefined("program", program.outputs)
    tensors = tuple(o.tensor for o in program.outputs)
    return evaluate_plan(
        Plan(program.extents, program.inputs, tensors, (kernel,)), inputs
    )


def evaluate_plan(plan: Plan, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """The outputs of `plan` run as scheduled, by name."""
    memory = Memory()
    for tensor in plan.inputs:
        memory.put(tensor, inputs[tensor.name])
    with np.errstate(all="ignore"):
        for kernel in plan.kernels:
            for store in kernel.outputs:
                assert store.tensor.name not in memory.values, store
                memory.allocate(store.tensor)
            _run(kernel, plan.sizes, memory)
    for name, writes in memory.writes.items():
        assert (writes == 1).all(), (
            f"{name}: elements written {np.unique(writes)} times"
        )
    return {t.name: memory.values[t.name] for t in plan.outputs}


def _windows(r: Range, sizes: Mapping[str, int]) -> list[Window]:
    extent = sizes[r.label]
    return [(lo, min(lo + r.tile, extent)) for lo in range(0, extent, r.tile)]


def _run(
    kernel: BlockGraph | Predefined, sizes: Mapping[str, int], memory: Memory
) -> None:
    if isinstance(kernel, Predefined):
        scope = Scope(sizes, {}, memory)
        for store in kernel.stores:
            scope.store(store)
        return
    labels = [r.label for r in kernel.grid]
    for tiles in itertools.product(*(_windows(r, sizes) for r in kernel.grid)):
        _run_block(kernel, sizes, dict(zip(labels, tiles, strict=True)), memory)


def _run_block(
    kernel: BlockGraph,
    sizes: Mapping[str, int],
    windows: dict[str, Window],
    memory: Memory,
) -> None:
    settled: dict[str, tuple[tuple[str, ...], Array]] = {}
    for walk in kernel.passes:
        assert kernel.loop is not None
        now: dict[str, tuple[tuple[str, ...], Array]] = {}
        for window in _windows(kernel.loop, sizes):
            here = {**windows, kernel.loop.label: window}
            before, now = now, {}
            for a in walk.accumulators:
                scope = Scope(sizes, here, memory, {**settled, **now}, before)
                value = scope.value(a.body)
                if a.name in before:
                    so_far = before[a.name][1]
                    if a.rescale is not None:
                        scale = scope.spread(a.rescale, a.body.labels)
                        so_far = scale * so_far
                    value = FOLD[a.op](so_far, value)
                now[a.name] = (a.body.labels, value)
            for store in walk.stores:
                Scope(sizes, here, memory, settled).store(store)
        settled |= now
    for store in kernel.stores:
        Scope(sizes, windows, memory, settled).store(store)


def close(
    got: Mapping[str, Array], want: Mapping[str, Array], rtol: float = 1e-8
) -> None:
    """Asserts equality up to float64 rounding, NaN and infinities included."""
    assert got.keys() == want.keys()
    for name, value in want.items():
        real = value[np.isfinite(value)]
        scale = np.abs(real).max() if real.size else 0.0
        np.testing.assert_allclose(
            got[name], value, rtol=rtol, atol=rtol * scale, err_msg=name
        )
