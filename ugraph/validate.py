"""Validity of a plan: Definition 2.1 of the paper, as a table of rules.

A stage receives and returns valid plans; `validate` says what is wrong and where.
"""

from collections.abc import Callable, Iterator
from typing import TypeAlias

from ugraph.graph import BlockGraph, Plan, reads_of
from ugraph.program import axes_shape
from ugraph.terms import Ref, subterms

Check: TypeAlias = Callable[[Plan], Iterator[str]]


class InvalidGraphError(ValueError):
    """A plan breaks a rule of Definition 2.1; the message names kernel and tensor."""


def _shapes(plan: Plan) -> Iterator[str]:
    for kernel in plan.kernels:
        for access in reads_of(kernel):
            tensor = plan.tensors.get(access.tensor)
            if tensor is None:
                yield f"{kernel.name}: reads `{access.tensor}`, which nothing stores"
            elif axes_shape(access.axes, plan.sizes) != tensor.shape:
                yield f"{kernel.name}: axes of `{access.tensor}` do not make {tensor}"
        for s in kernel.outputs:
            if axes_shape(s.axes, plan.sizes) != s.tensor.shape:
                yield f"{kernel.name}: axes of `{s.tensor.name}` do not make {s.tensor}"
            labels = {f for axis in s.axes for f in axis}
            for missing in sorted(set(s.term.labels) - labels):
                yield f"{kernel.name}: `{s.tensor.name}` has no axis for `{missing}`"


def _order(plan: Plan) -> Iterator[str]:
    ready = {t.name for t in plan.inputs}
    for kernel in plan.kernels:
        for access in reads_of(kernel):
            if access.tensor not in ready:
                yield f"{kernel.name}: reads `{access.tensor}` before it is stored"
        ready |= {s.tensor.name for s in kernel.outputs}
    for tensor in plan.outputs:
        if tensor.name not in ready:
            yield f"output `{tensor.name}` is never stored"


def _grid(plan: Plan) -> Iterator[str]:
    for kernel in plan.custom:
        for s in kernel.outputs:
            labels = {f for axis in s.axes for f in axis}
            for r in kernel.grid:
                if r.label not in labels:
                    yield f"{kernel.name}: omap of `{s.tensor.name}` lacks `{r.label}`"


def _loop(plan: Plan) -> Iterator[str]:
    """Every path from loop body to output passes exactly one accumulator."""
    for kernel in plan.custom:
        label = kernel.loop.label if kernel.loop else None
        for s in kernel.stores:
            if label is not None and label in s.term.labels:
                yield f"{kernel.name}: epilogue `{s.tensor.name}` is inside the loop"
        for walk in kernel.passes:
            for a in walk.accumulators:
                if label in a.body.labels:
                    yield f"{kernel.name}: {a.name} keeps the loop's label `{label}`"


def _refs(plan: Plan) -> Iterator[str]:
    for kernel in plan.custom:
        known: set[str] = set()
        for walk in kernel.passes:
            for a in walk.accumulators:
                yield from _unknown(kernel, known, a.body)
                known.add(a.name)
        for s in kernel.stores:
            yield from _unknown(kernel, known, s.term)


def _unknown(kernel: BlockGraph, known: set[str], term) -> Iterator[str]:  # noqa: ANN001
    for t in subterms(term):
        if isinstance(t.attr, Ref) and t.attr.name not in known:
            yield f"{kernel.name}: `{t.attr.name}` is used before it is accumulated"


RULES: tuple[Check, ...] = (_shapes, _order, _grid, _loop, _refs)


def problems(plan: Plan) -> tuple[str, ...]:
    """Everything that is wrong with `plan`."""
    return tuple(text for rule in RULES for text in rule(plan))


def validate(plan: Plan) -> Plan:
    """`plan` itself, if it is valid.

    Raises:
      InvalidGraphError: naming every broken rule.
    """
    found = problems(plan)
    if found:
        raise InvalidGraphError("; ".join(found))
    return plan
