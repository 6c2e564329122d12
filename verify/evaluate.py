"""Programs, and plans as scheduled, over the finite fields.

A plan is walked as it will run: kernel by kernel through device memory, block by block,
pass by pass, iteration by iteration (the last tile may be ragged), accumulators with
their rescaling, loop stores, epilogue. What is evaluated is the plan's own terms, never
those they were made from. Memory starts unwritten: reading what nothing wrote, writing
an element twice and leaving one out are structural errors.

All trials are evaluated at once, along the first axis of every array; `verify.field`
does the arithmetic.
"""

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from ugraph.graph import BlockGraph, Plan, Predefined, Range
from ugraph.ops import OPS
from ugraph.program import Program, Store, Tensor, axes_shape, factor_sizes
from ugraph.terms import Access, Axes, Extent, Fixed, Reduction, Ref, Term
from verify import semantics
from verify.field import Array, P, Q
from verify.values import Float, Interpretation, UnsupportedError, Value

Window = tuple[int, int]

BOOLEAN_TRUE = 0.75
"""How often a boolean input is drawn true, so that few rows are masked throughout."""


class PlanError(ValueError):
    """A plan cannot be run as scheduled; the message says where and why."""


def draw(tensors: tuple[Tensor, ...], trials: int, seed: int) -> dict[str, Value]:
    """Random values for input tensors: residues, or booleans."""
    values: dict[str, Value] = {}
    for number, t in enumerate(tensors):
        rng = np.random.default_rng([seed, 2, number])
        shape = (trials, *t.shape)
        if t.dtype == "bool":
            values[t.name] = rng.random(shape) < BOOLEAN_TRUE
        elif t.dtype == "i32":
            raise UnsupportedError(f"input `{t.name}` is of integers")
        else:
            p, q = (rng.integers(0, m, size=shape, dtype=np.uint64) for m in (P, Q))
            values[t.name] = Float(p, q)
    return values


@dataclass
class Memory:
    """Device memory: values by tensor, and how often each element was written."""

    trials: int
    values: dict[str, Value] = field(default_factory=dict)
    writes: dict[str, Array] = field(default_factory=dict)

    def put(self, tensor: Tensor, value: Value) -> None:
        """Places an input."""
        self.values[tensor.name] = value
        self.writes[tensor.name] = np.ones(tensor.shape, np.int64)

    def room(self, name: str, shape: tuple[int, ...], like: Value) -> Value:
        """The array of a tensor that is being stored."""
        if name not in self.values:
            full = (self.trials, *shape)
            if isinstance(like, Float):
                p = np.zeros(full, np.uint64)
                q = None if like.q is None else np.zeros(full, np.uint64)
                marks = np.zeros(full, np.int8), np.zeros(full, np.bool_)
                self.values[name] = Float(p, q, *marks)
            else:
                self.values[name] = np.zeros(full, like.dtype)
        if name not in self.writes:
            self.writes[name] = np.zeros(shape, np.int64)
        return self.values[name]


Known = Mapping[str, tuple[tuple[str, ...], Value]]


@dataclass
class Scope:
    """Where terms are evaluated: a window of every label, memory and accumulators."""

    sizes: Mapping[str, int]
    windows: Mapping[str, Window]
    memory: Memory
    how: Interpretation
    now: Known = field(default_factory=dict)
    before: Known = field(default_factory=dict)
    done: dict[Term, Value] = field(default_factory=dict)
    outside: "Scope | None" = None

    def value(self, term: Term) -> Value:
        """The value of `term`: after the trial one axis per label, in sorted order."""
        if term not in self.done:
            if self.outside is not None and self._is_fixed(term):
                self.done[term] = self.outside.value(term)
            else:
                self.done[term] = self._value(term)
                self.how.note(term, self.done[term])
        return self.done[term]

    def _is_fixed(self, term: Term) -> bool:
        """Whether `term` is an input that no iteration changes."""
        assert self.outside is not None
        inner = set(self.windows) - set(self.outside.windows)
        return term.op == "input" and not inner & set(term.labels)

    def window(self, label: str) -> Window:
        """Which part of `label` is seen."""
        if label in self.windows:
            return self.windows[label]
        if label not in self.sizes:
            raise PlanError(f"label `{label}` has no extent")
        return (0, self.sizes[label])

    def _value(self, term: Term) -> Value:
        attr = term.attr
        match attr:
            case Access():
                return self._read(attr, term.labels)
            case Ref():
                return self._accumulated(attr)
            case Extent(label):
                return np.full(1, self.sizes[label], np.int64)
            case Reduction(labels):
                (body,) = term.args
                axes = tuple(1 + body.labels.index(x) for x in labels)
                full = self._full(body)
                return semantics.fold(OPS[term.op].field, full, axes, self.how)
        if term.op == "iota":
            return np.arange(*self.window(term.attr))[None]  # pyrefly: ignore
        args = tuple(self.spread(a, term.labels) for a in term.args)
        return semantics.apply(term, args, self.how)

    def _accumulated(self, attr: Ref) -> Value:
        known = self.now if attr.when == "now" else self.before
        if attr.name not in known:
            raise PlanError(
                f"`{attr.name}` ({attr.when}) is read before it has a value"
            )
        labels, value = known[attr.name]
        if labels != attr.labels:
            raise PlanError(f"`{attr.name}` has labels {labels}, not {attr.labels}")
        return value

    def _full(self, term: Term) -> Value:
        """The value of `term` with no axis of size one that stands for more."""
        shape = tuple(hi - lo for lo, hi in map(self.window, term.labels))
        value = self.value(term)

        parts = value.parts() if isinstance(value, Float) else (value,)
        trials = max(len(x) for x in parts if x is not None)

        def widen(x: Array) -> Array:
            return np.broadcast_to(x, (trials, *shape))

        return value.move(widen) if isinstance(value, Float) else widen(value)

    def spread(self, term: Term, labels: tuple[str, ...]) -> Value:
        """The value of `term` with an axis for each label, of size one or more."""
        missing = set(term.labels) - set(labels)
        if missing:
            raise PlanError(f"{term} has labels {sorted(missing)} that its user lacks")
        value = self.value(term)
        places = [term.labels.index(x) if x in term.labels else None for x in labels]

        def widen(x: Array) -> Array:
            own = x.shape[1:]
            return x.reshape((len(x), *(1 if i is None else own[i] for i in places)))

        if not isinstance(value, Float):
            return widen(value)
        moved = value.move(widen)
        return Float(*moved.parts(), value.sign)  # pyrefly: ignore

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

    def _read(self, access: Access, labels: tuple[str, ...]) -> Value:
        name = access.tensor
        if name not in self.memory.values:
            raise PlanError(f"`{name}` is read before it is stored")
        shape, at = (
            factor_sizes(access.axes, self.sizes),
            self.index(access.axes, labels),
        )
        writes = self.memory.writes[name]
        if axes_shape(access.axes, self.sizes) != writes.shape:
            raise PlanError(
                f"axes {access.axes} do not make {name}{list(writes.shape)}"
            )
        if not (writes.reshape(shape)[at] == 1).all():
            raise PlanError(f"`{name}` is read before it is all stored")

        def pick(x: Array) -> Array:
            return x.reshape((len(x), *shape))[(slice(None), *at)]

        value = self.memory.values[name]
        return value.move(pick) if isinstance(value, Float) else pick(value)

    def store(self, store: Store) -> None:
        """Writes one block's or iteration's tile of a tensor."""
        name, axes = store.tensor.name, store.axes
        labels = tuple(sorted(f for a in axes for f in a if isinstance(f, str)))
        value = self.spread(store.term, labels)
        room = self.memory.room(name, axes_shape(axes, self.sizes), value)
        if isinstance(room, Float) != isinstance(value, Float):
            raise PlanError(f"`{name}` is stored as floats and as other values")
        shape, at = factor_sizes(axes, self.sizes), self.index(axes, labels)
        where = (slice(None), *at)
        if isinstance(value, Float) and isinstance(room, Float):
            if (room.q is None) != (value.q is None):
                raise PlanError(f"`{name}` is stored in two ways")
            for part, new in zip(room.parts(), value.parts(), strict=True):
                if part is not None and new is not None:
                    part.reshape((len(part), *shape))[where] = new
        else:
            room.reshape((self.memory.trials, *shape))[where] = value  # pyrefly: ignore
        self.memory.writes[name].reshape(shape)[at] += 1


def watching(
    terms: frozenset[Term], how: Interpretation, run: Callable[[], dict[str, Value]]
) -> tuple[dict[str, Value], set[int]]:
    """What `run` returns, and the values that `terms` took on the way."""
    how.watched, how.seen = terms, set()
    result = run()
    how.watched = frozenset()
    return result, how.seen


def evaluate_program(
    program: Program, inputs: Mapping[str, Value], how: Interpretation
) -> dict[str, Value]:
    """The outputs of `program`, by name."""
    kernel = Predefined("program", program.outputs)
    tensors = tuple(o.tensor for o in program.outputs)
    whole = Plan(program.extents, program.inputs, tensors, (kernel,))
    return evaluate_plan(whole, inputs, how)


def evaluate_plan(
    plan: Plan, inputs: Mapping[str, Value], how: Interpretation
) -> dict[str, Value]:
    """The outputs of `plan` run as scheduled, by name.

    Raises:
      PlanError: when it cannot be run, or leaves or writes an element twice.
      UnsupportedError: when an op has no meaning over the fields.
    """
    memory = Memory(how.trials)
    for tensor in plan.inputs:
        memory.put(tensor, inputs[tensor.name])
    for kernel in plan.kernels:
        for name in {s.tensor.name for s in kernel.outputs}:
            if name in memory.values:
                raise PlanError(f"{kernel.name}: `{name}` is stored twice")
        _run(kernel, plan.sizes, memory, how)
        for store in kernel.outputs:
            written = memory.writes.get(store.tensor.name)
            if written is None or not (written == 1).all():
                counts = [0] if written is None else np.unique(written).tolist()
                raise PlanError(
                    f"{kernel.name}: elements of `{store.tensor.name}` are written "
                    f"{counts} times"
                )
    missing = [t.name for t in plan.outputs if t.name not in memory.values]
    if missing:
        raise PlanError(f"outputs {missing} are never stored")
    return {t.name: memory.values[t.name] for t in plan.outputs}


def _windows(r: Range, sizes: Mapping[str, int]) -> list[Window]:
    extent = sizes[r.label]
    return [(lo, min(lo + r.tile, extent)) for lo in range(0, extent, r.tile)]


def _run(
    kernel: BlockGraph | Predefined,
    sizes: Mapping[str, int],
    memory: Memory,
    how: Interpretation,
) -> None:
    if isinstance(kernel, Predefined):
        scope = Scope(sizes, {}, memory, how)
        for store in kernel.stores:
            scope.store(store)
        return
    labels = [r.label for r in kernel.grid]
    if len(set(labels)) < len(labels) or (kernel.loop and kernel.loop.label in labels):
        raise PlanError(f"{kernel.name}: a label is walked twice")
    if kernel.loop is None and kernel.passes:
        raise PlanError(f"{kernel.name}: passes without a loop")
    for tiles in itertools.product(*(_windows(r, sizes) for r in kernel.grid)):
        windows = dict(zip(labels, tiles, strict=True))
        _run_block(kernel, Scope(sizes, windows, memory, how))


def _run_block(kernel: BlockGraph, block: Scope) -> None:
    settled: dict[str, tuple[tuple[str, ...], Value]] = {}
    for walk in kernel.passes:
        assert kernel.loop is not None
        now: dict[str, tuple[tuple[str, ...], Value]] = {}
        for window in _windows(kernel.loop, block.sizes):
            windows = {**block.windows, kernel.loop.label: window}
            before, now = now, {}
            for a in walk.accumulators:
                known = {**settled, **now}
                scope = Scope(
                    block.sizes, windows, block.memory, block.how, known, before,
                    outside=block,
                )  # fmt: skip
                value = scope.value(a.body)
                if a.name in before:
                    value = _folded(
                        a.op, a.rescale, a.body, before[a.name], value, scope
                    )
                now[a.name] = (a.body.labels, value)
            for store in walk.stores:
                Scope(
                    block.sizes,
                    windows,
                    block.memory,
                    block.how,
                    settled,
                    outside=block,
                ).store(store)
        settled |= now
    final = Scope(block.sizes, block.windows, block.memory, block.how, settled)
    for store in kernel.stores:
        final.store(store)


def _folded(
    op: str,
    rescale: Term | None,
    body: Term,
    so_far: tuple[tuple[str, ...], Value],
    value: Value,
    scope: Scope,
) -> Value:
    """Rescale · so far ⊕ value."""
    old = so_far[1]
    if rescale is not None:
        old = semantics.products((scope.spread(rescale, body.labels), old))
    if op == "sum":
        return semantics.sums((old, value))
    if op not in ("max", "min"):
        raise PlanError(f"an accumulator folds by `{op}`")
    return semantics.extreme(old, value, scope.how, largest=op == "max")
