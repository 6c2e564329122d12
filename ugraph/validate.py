"""Validity of a plan: Definition 2.1 of the paper, as a table of rules.

A stage receives and returns valid plans; `validate` says what is wrong and where.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

from ugraph.graph import BlockGraph, Pass, Plan, Predefined, Range, reads_of
from ugraph.program import Store, axes_shape
from ugraph.terms import Extent, Reduction, Ref, Term, subterms

Check: TypeAlias = Callable[[Plan], Iterator[str]]
FOLDS = frozenset({"sum", "max", "min"})


class InvalidGraphError(ValueError):
    """A plan breaks a rule of Definition 2.1; the message names kernel and tensor."""


def _extents(plan: Plan) -> Iterator[str]:
    for kernel in plan.kernels:
        used = {f for s in kernel.outputs for axis in s.axes for f in axis}
        used = {f for f in used if isinstance(f, str)}
        for t in subterms(*kernel.roots):
            used |= set(t.labels)
            if isinstance(t.attr, Extent):
                used.add(t.attr.label)
        if isinstance(kernel, BlockGraph):
            used |= {r.label for r in _ranges(kernel)}
        for label in sorted(used - plan.sizes.keys()):
            yield f"{kernel.name}: `{label}` has no extent"


def _shapes(plan: Plan) -> Iterator[str]:
    tensors = plan.tensors
    for kernel in plan.kernels:
        for access in reads_of(kernel):
            tensor = tensors.get(access.tensor)
            if tensor is None:
                yield f"{kernel.name}: reads `{access.tensor}`, which nothing stores"
            elif axes_shape(access.axes, plan.sizes) != tensor.shape:
                yield f"{kernel.name}: axes of `{access.tensor}` do not make {tensor}"
        for s in kernel.outputs:
            if axes_shape(s.axes, plan.sizes) != s.tensor.shape:
                yield f"{kernel.name}: axes of `{s.tensor.name}` do not make {s.tensor}"
            labels = _labels(s)
            for missing in sorted(set(s.term.labels) - set(labels)):
                yield f"{kernel.name}: `{s.tensor.name}` has no axis for `{missing}`"
            for label in _repeated(labels):
                yield f"{kernel.name}: `{s.tensor.name}` has two axes for `{label}`"


def _labels(store: Store) -> list[str]:
    return [f for axis in store.axes for f in axis if isinstance(f, str)]


def _repeated(names: Iterable[str]) -> list[str]:
    return [name for name, count in Counter(names).items() if count > 1]


def _order(plan: Plan) -> Iterator[str]:
    ready = {t.name for t in plan.inputs}
    for kernel in plan.kernels:
        for access in reads_of(kernel):
            if access.tensor not in ready:
                yield f"{kernel.name}: reads `{access.tensor}` before it is stored"
        for s in kernel.outputs:
            if s.tensor.name in ready:
                yield f"{kernel.name}: stores `{s.tensor.name}` again"
            ready.add(s.tensor.name)
    for tensor in plan.outputs:
        if tensor.name not in ready:
            yield f"output `{tensor.name}` is never stored"


def _ranges(kernel: BlockGraph) -> tuple[Range, ...]:
    return (*kernel.grid, *((kernel.loop,) if kernel.loop else ()))


def _grid(plan: Plan) -> Iterator[str]:
    for kernel in plan.custom:
        for s in kernel.outputs:
            for r in kernel.grid:
                if r.label not in _labels(s):
                    yield f"{kernel.name}: omap of `{s.tensor.name}` lacks `{r.label}`"
        ranges = _ranges(kernel)
        for r in ranges:
            if r.tile < 1:
                yield f"{kernel.name}: the tile of `{r.label}` is empty"
        for label in _repeated(r.label for r in ranges):
            yield f"{kernel.name}: `{label}` is walked twice"
        for r in kernel.grid:
            if any(_folds_tiles(t, r.label) for t in kernel.roots):
                yield f"{kernel.name}: `{r.label}` of the grid is reduced in a block"


def _loop(plan: Plan) -> Iterator[str]:
    """Every path from loop body to output passes exactly one accumulator."""
    for kernel in plan.custom:
        if kernel.loop is None:
            if kernel.passes:
                yield f"{kernel.name}: has passes but no loop"
            continue
        label = kernel.loop.label
        for s in kernel.stores:
            if label in s.term.labels or _folds_tiles(s.term, label):
                yield f"{kernel.name}: epilogue `{s.tensor.name}` is inside the loop"
        for walk in kernel.passes:
            yield from (f"{kernel.name}: {x}" for x in _walk(walk, label))


def _walk(walk: Pass, label: str) -> Iterator[str]:
    for a in walk.accumulators:
        if a.op not in FOLDS:
            yield f"`{a.op}` does not fold, yet {a.name} is accumulated by it"
        if label in a.body.labels:
            yield f"{a.name} keeps the loop's label `{label}`"
        scale = a.rescale.labels if a.rescale is not None else ()
        for stray in sorted(set(scale) - set(a.body.labels)):
            yield f"{a.name} is rescaled along `{stray}`, which it lacks"
        inside = a.body.args if a.body.op == a.op else (a.body,)
        if any(_folds_tiles(t, label) for t in inside):
            yield f"{a.name} uses a tile's reduction over `{label}` as if it were whole"
    for s in walk.stores:
        if label not in _labels(s):
            yield f"`{s.tensor.name}` is the same in every iteration"
        elif _folds_tiles(s.term, label):
            yield f"`{s.tensor.name}` uses a tile's reduction over `{label}`"


def _folds_tiles(term: Term, label: str) -> bool:
    """Whether a reduction over a walked label is left in `term`."""
    reductions = (t.attr for t in subterms(term) if isinstance(t.attr, Reduction))
    return any(label in r.labels for r in reductions)


def _refs(plan: Plan) -> Iterator[str]:
    for kernel in plan.kernels:
        known: dict[str, int] = {}
        passes = () if isinstance(kernel, Predefined) else kernel.passes
        for number, walk in enumerate(passes):
            yield from (f"{kernel.name}: {x}" for x in _walk_refs(walk, known, number))
        for s in kernel.stores:
            yield from (f"{kernel.name}: {x}" for x in _unknown(s.term, known))


def _walk_refs(walk: Pass, known: dict[str, int], number: int) -> Iterator[str]:
    for a in walk.accumulators:
        yield from _unknown(a.body, known)
        if a.rescale is not None:
            here = {name: n for name, n in known.items() if n == number}
            yield from _unknown(a.rescale, known, here)
        if a.name in known:
            yield f"accumulates `{a.name}` twice"
        known[a.name] = number
    for s in walk.stores:
        yield from _unknown(s.term, known)
        for r in _references(s.term):
            if known.get(r.name) == number:
                name = s.tensor.name
                yield f"`{name}` is stored in the pass that accumulates `{r.name}`"


def _references(term: Term) -> list[Ref]:
    return [t.attr for t in subterms(term) if isinstance(t.attr, Ref)]


def _unknown(
    term: Term, known: dict[str, int], before: dict[str, int] | None = None
) -> Iterator[str]:
    """References of `term` to what is not there.

    Args:
      term: a value of the block.
      known: accumulators that have a value.
      before: those that have one from the iteration before; in a rescale only.
    """
    for r in _references(term):
        if r.name not in (known if r.when == "now" else before or {}):
            yield f"`{r.name}` is used before it is accumulated"


RULES: tuple[Check, ...] = (_shapes, _order, _grid, _loop, _refs)


def problems(plan: Plan) -> tuple[str, ...]:
    """Everything that is wrong with `plan`; labels without extent come alone."""
    unknown = tuple(_extents(plan))
    return unknown or tuple(text for rule in RULES for text in rule(plan))


def validate(plan: Plan) -> Plan:
    """`plan` itself, if it is valid.

    Raises:
      InvalidGraphError: naming every broken rule.
    """
    found = problems(plan)
    if found:
        raise InvalidGraphError("; ".join(found))
    return plan
