"""Which parts of a program become one kernel: the kernel graph.

A state says which intermediate values are stored in device memory, and which stored
values share a kernel. Everything else is computed where it is used, again if need be.
Search goes from "every reduction is stored" (what a compiler without custom kernels
does) and from "nothing is stored" by the moves: do not store a value; let two kernels
be one; split a reduction over blocks. The cost model decides every move.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import inf

from ugraph.cost import Cost, matrix_floor, predefined_cost
from ugraph.graph import BlockGraph, Plan, Predefined, mapped, reads_of
from ugraph.program import Program, Store, Tensor, axes_shape, bound_labels
from ugraph.rewrite import Counts
from ugraph.schedule import structures
from ugraph.sizes import Sized, size
from ugraph.split import inner, outer, split
from ugraph.target import Target
from ugraph.terms import Axes, Extent, Term, is_reduction, read, subterms
from ugraph.terms import replace as substitute

SPLITS = (2, 4, 8, 16, 32)
SMALLEST_PART = 64
Group = tuple[Term, ...]


@dataclass(frozen=True, slots=True)
class Costed:
    """A kernel and its predicted cost."""

    kernel: BlockGraph | Predefined
    cost: Cost


@dataclass
class Kernels:
    """The search for one form of a program (local state: costs already found).

    Attributes:
      program: its labels, tensors and roundings.
      roots: the form's output terms.
      target: the device.
      max_block_ops: most reductions, products and exponentials in one custom kernel.
      counts: what was seen and pruned is added here.
      expired: whether to stop with what is found.
    """

    program: Program
    roots: tuple[Term, ...]
    target: Target
    max_block_ops: int
    counts: Counts
    sizes: dict[str, int] = field(init=False)
    tensors: dict[str, Tensor] = field(init=False)
    expired: Callable[[], object] = lambda: False
    known: dict[tuple[Term, ...], tuple[Costed, ...]] = field(default_factory=dict)
    below: dict[Group, frozenset[Term]] = field(default_factory=dict)
    seconds: dict[tuple[Group, frozenset[Term]], float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Derives label sizes, tensors and the order of labels in stored tensors."""
        self.sizes = self.program.sizes
        self.tensors = {t.name: t for t in self.program.inputs}
        self.tensors |= {o.tensor.name: o.tensor for o in self.program.outputs}
        self.rounded = dict(self.program.roundings)
        order: dict[str, None] = {}
        for o in self.program.outputs:
            order.update((f, None) for a in o.axes for f in a if isinstance(f, str))
        order.update((label, None) for label, _ in self.program.extents)
        self.order = list(order)

    def anchors(self) -> tuple[Term, ...]:
        """Values that may be stored: reductions and outputs."""
        found = [t for t in subterms(*self.roots) if is_reduction(t)]
        return tuple(dict.fromkeys([*found, *self.roots]))

    def axes(self, term: Term) -> Axes:
        """The axes of the tensor that stores an intermediate."""
        ranked = sorted(
            term.labels,
            key=lambda x: (self.order.index(x) if x in self.order else inf, x),
        )
        return tuple((label,) for label in ranked)

    def temporary(self, term: Term) -> Store:
        """The store of an intermediate."""
        axes = self.axes(term)
        shape = axes_shape(axes, self.sizes)
        dtype = self.rounded.get(term, "f32")
        tensor = Tensor(f"t_{term.digest}", dtype, shape)
        self.tensors[tensor.name] = tensor
        return Store(tensor, axes, term)

    def stores(self, term: Term) -> tuple[Store, ...]:
        """Where a stored value goes: the outputs it is, or a temporary."""
        outputs = tuple(
            Store(o.tensor, o.axes, term)
            for o, root in zip(self.program.outputs, self.roots, strict=True)
            if root is term
        )
        return outputs or (self.temporary(term),)

    def _read(self, term: Term) -> Term | None:
        for store in self.stores(term):
            labels = {f for axis in store.axes for f in axis}
            if labels == set(term.labels):
                return read(store.tensor.name, store.axes)
        return None

    def cut(self, group: Group, stored: tuple[Term, ...]) -> tuple[Store, ...]:
        """The group's stores, other stored values read from device memory."""
        table = {}
        for term in stored:
            if term not in group:
                made = self._read(term)
                if made is not None:
                    table[term] = made
        return tuple(
            Store(s.tensor, s.axes, substitute(t, table))
            for t in group
            for s in self.stores(t)
        )

    def best(self, stores: tuple[Store, ...]) -> tuple[Costed, ...]:
        """The cheapest kernel for these stores, or two that split it; () if none."""
        key = tuple(s.term for s in stores)
        if key not in self.known:
            whole = self._whole(stores)
            self.known[key] = self._split(stores, whole) if whole else ()
        return self.known[key]

    def _whole(self, stores: tuple[Store, ...]) -> tuple[Costed, ...]:
        found = [*self._custom(stores), *self._predefined(stores)]
        self.counts.seen += len(found)
        fits = [c for c in found if c.cost.seconds < inf]
        self.counts.pruned += len(found) - len(fits)
        return (min(fits, key=lambda c: c.cost.seconds),) if fits else ()

    def _predefined(self, stores: tuple[Store, ...]) -> Iterator[Costed]:
        kernel = Predefined("xla", stores)
        if len(stores) == 1 and sum(map(is_reduction, subterms(*kernel.roots))) <= 1:
            cost = predefined_cost(kernel, self.tensors, self.sizes, self.target)
            yield Costed(kernel, cost)

    def _custom(self, stores: tuple[Store, ...]) -> Iterator[Costed]:
        if work(stores) > self.max_block_ops:
            return
        for kernel in structures(stores):
            sized = size(kernel, self.tensors, self.sizes, self.target)
            if sized is None:
                self.counts.pruned += 1
            else:
                yield Costed(sized.kernel, sized.cost)

    def total(self, groups: tuple[Group, ...]) -> float:
        """Predicted seconds of a state; infinite when a kernel does not fit."""
        stored = tuple(t for g in groups for t in g)
        return sum(self._group_seconds(g, stored, frozenset(stored)) for g in groups)

    def _group_seconds(
        self, group: Group, stored: tuple[Term, ...], members: frozenset[Term]
    ) -> float:
        if group not in self.below:
            self.below[group] = frozenset(self.anchors()) & frozenset(subterms(*group))
        key = (group, members & self.below[group])
        if key not in self.seconds:
            self.seconds[key] = _seconds(self.best(self.cut(group, stored)))
        return self.seconds[key]

    def floor(self, kernels: int) -> float:
        """Seconds that no plan of so many kernels can beat in this cost model."""
        read_bytes = sum(t.bytes for t in self.program.inputs)
        bytes_moved = read_bytes + sum(o.tensor.bytes for o in self.program.outputs)
        work = matrix_floor(self.roots, self.sizes, self.target)
        moved = bytes_moved / self.target.memory_bandwidth
        return kernels * self.target.launch_s + max(moved, work)

    def search(self) -> tuple[Group, ...] | None:
        """The best state found.

        A state that stores intermediates has at least one kernel more than one that
        stores none; where the latter already beats that bound, it is not looked at.
        """
        outputs = tuple((t,) for t in dict.fromkeys(self.roots))
        best = self._descend(outputs)
        if self.total(best) > self.floor(len(best) + 1):
            every = tuple((t,) for t in self.anchors())
            best = min((best, self._descend(every)), key=self.total)
        else:
            self.counts.pruned += 1
        return best if self.total(best) < inf else None

    def _descend(self, groups: tuple[Group, ...]) -> tuple[Group, ...]:
        """Downhill by not storing values, then by sharing kernels."""
        cost = self.total(groups)
        for moves in (self._inlined, self._shared):
            while not self.expired():
                options = [(self.total(g), i, g) for i, g in enumerate(moves(groups))]
                least = min(options, key=lambda m: m[:2], default=(inf, 0, groups))
                if not least[0] < cost:
                    break
                cost, _, groups = least
        return groups

    def _inlined(self, groups: tuple[Group, ...]) -> Iterator[tuple[Group, ...]]:
        for i, g in enumerate(groups):
            if len(g) == 1 and g[0] not in self.roots:
                yield groups[:i] + groups[i + 1 :]

    def _shared(self, groups: tuple[Group, ...]) -> Iterator[tuple[Group, ...]]:
        for i, g in enumerate(groups):
            for j in range(i):
                rest = [x for k, x in enumerate(groups) if k not in (i, j)]
                merged = (*rest, groups[j] + g)
                if self._together(g, groups[j]) and _acyclic(merged):
                    yield merged

    def _together(self, a: Group, b: Group) -> bool:
        """Whether one kernel may compute both: they share labels and inputs."""
        common = set(a[0].labels) & set(b[0].labels)
        reads_a = {t for t in subterms(*a) if t.op == "input"}
        return bool(common) and any(t in reads_a for t in subterms(*b))

    def kernels(self, groups: tuple[Group, ...]) -> tuple[Costed, ...]:
        """The kernels of a state, sizes refined."""
        stored = tuple(t for g in groups for t in g)
        return tuple(
            self._refined(c) for g in groups for c in self.best(self.cut(g, stored))
        )

    def _refined(self, found: Costed) -> Costed:
        if isinstance(found.kernel, Predefined):
            return found
        sized: Sized | None = size(
            found.kernel, self.tensors, self.sizes, self.target, refine=True
        )
        return Costed(sized.kernel, sized.cost) if sized else found

    def _split(
        self, stores: tuple[Store, ...], whole: tuple[Costed, ...]
    ) -> tuple[Costed, ...]:
        """`whole`, or two kernels that share its reduction where blocks are too few."""
        if not 0 < whole[0].cost.blocks < 2 * self.target.cores:
            return whole
        best = whole
        free = {f for s in stores for axis in s.axes for f in axis}
        for label in bound_labels(*(s.term for s in stores)):
            for count in () if label in free else self.parts(label):
                made = self._parts(stores, label, count)
                if made and _seconds(made) < _seconds(best):
                    best = made
        return best

    def parts(self, label: str) -> tuple[int, ...]:
        """Into how many parts a label may be split."""
        extent = self.sizes[label]
        return tuple(
            n for n in SPLITS if extent % n == 0 and extent // n >= SMALLEST_PART
        )

    def _parts(
        self, stores: tuple[Store, ...], label: str, count: int
    ) -> tuple[Costed, ...]:
        extent = self.sizes[label] // count
        names = (outer(label, count), inner(label, count))
        made = split(tuple(s.term for s in stores), label, names)
        if made is None:
            return ()
        self.sizes |= dict(zip(names, (count, extent), strict=True))
        roots, parts = made
        partial = tuple(self.temporary(p) for p in parts)
        table = {s.term: read(s.tensor.name, s.axes) for s in partial}
        combined = tuple(
            Store(s.tensor, s.axes, substitute(r, table))
            for s, r in zip(stores, roots, strict=True)
        )
        both = (self._whole(partial), self._whole(combined))
        return both[0] + both[1] if all(both) else ()


def _acyclic(groups: tuple[Group, ...]) -> bool:
    """Whether kernels for these groups have an order (values stored but not shared)."""
    home = {t: i for i, g in enumerate(groups) for t in g}
    needs = [
        {home[t] for t in subterms(*g) if t in home and home[t] != i}
        for i, g in enumerate(groups)
    ]
    done: set[int] = set()
    while len(done) < len(groups):
        ready = [i for i, n in enumerate(needs) if i not in done and n <= done]
        if not ready:
            return False
        done.update(ready)
    return True


def _seconds(kernels: tuple[Costed, ...]) -> float:
    return sum(c.cost.seconds for c in kernels) if kernels else inf


def work(stores: tuple[Store, ...]) -> int:
    """Reductions, products over labels and exponentials: the ops that count."""
    found = subterms(*(s.term for s in stores))
    return sum(is_reduction(t) or t.op == "exp" for t in found)


def plan_of(
    kernels: tuple[Costed, ...], program: Program, sizes: Mapping[str, int]
) -> Plan:
    """The kernel graph: kernels in an order in which each reads what was stored."""
    pending = [c.kernel for c in kernels]
    ready = {t.name for t in program.inputs}
    ordered: list[BlockGraph | Predefined] = []
    while pending:
        kernel = next(k for k in pending if {a.tensor for a in reads_of(k)} <= ready)
        pending.remove(kernel)
        ready |= {s.tensor.name for s in kernel.outputs}
        ordered.append(replace(kernel, name=f"kernel{len(ordered)}"))
    labels = {x for k in ordered for x in _labels(k)}
    extents = tuple(sorted((x, sizes[x]) for x in labels))
    outputs = tuple(o.tensor for o in program.outputs)
    return Plan(extents, program.inputs, outputs, _numbered(ordered, program))


def _numbered(
    kernels: list[BlockGraph | Predefined], program: Program
) -> tuple[BlockGraph | Predefined, ...]:
    """The kernels with intermediates named t0, t1, ... in the order they are stored."""
    taken = {t.name for t in program.inputs} | {o.tensor.name for o in program.outputs}
    stored = (s.tensor.name for k in kernels for s in k.outputs)
    temporary = [n for n in dict.fromkeys(stored) if n not in taken]
    free = (n for n in map("t{}".format, itertools.count()) if n not in taken)
    names = dict(zip(temporary, free, strict=False))
    accesses = {a for k in kernels for a in reads_of(k) if a.tensor in names}
    table = {read(*a): read(names[a.tensor], a.axes, a.yields) for a in accesses}

    def renamed(store: Store) -> Store:
        name = names.get(store.tensor.name, store.tensor.name)
        tensor = replace(store.tensor, name=name)
        return Store(tensor, store.axes, substitute(store.term, table))

    return tuple(
        mapped(k, store=renamed, term=lambda t: substitute(t, table)) for k in kernels
    )


def _labels(kernel: BlockGraph | Predefined) -> set[str]:
    terms = subterms(*kernel.roots)
    found = {x for t in terms for x in t.labels} | set(bound_labels(*kernel.roots))
    found |= {t.attr.label for t in terms if isinstance(t.attr, Extent)}
    axes = [a for s in kernel.outputs for a in s.axes]
    return found | {f for a in axes for f in a if isinstance(f, str)}
