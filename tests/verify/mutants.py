"""Wrong plans: every small change of a plan's terms and structure, by kind."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction

from ugraph.graph import Accumulator, BlockGraph, Plan
from ugraph.program import Store
from ugraph.terms import (
    Access,
    Fixed,
    Reduction,
    Ref,
    Term,
    add,
    extent,
    integer,
    iota,
    lit,
    make,
    mul,
    reduce,
    subterms,
)
from ugraph.terms import (
    replace as substitute,
)

Change = Callable[[Term], Iterator[tuple[str, Term]]]


def _literal(t: Term) -> Iterator[tuple[str, Term]]:
    if t.op == "lit" and isinstance(t.attr, Fraction):
        yield "scale off", lit(t.attr * Fraction(9, 8) + Fraction(t.attr == 0))
        yield "sign", lit(-t.attr)
    if t.op == "int":
        yield "mask shifted by one", integer(int(str(t.attr)) + 1)


def _operands(t: Term) -> Iterator[tuple[str, Term]]:
    if t.op in ("mul", "add") and len(t.args) > 1:
        for i in range(len(t.args)):
            rest = t.args[:i] + t.args[i + 1 :]
            yield "operand dropped", mul(*rest) if t.op == "mul" else add(*rest)
    if t.op == "select":
        yield "swapped operand", make("select", (t.args[0], t.args[2], t.args[1]))
    if t.op in ("le", "lt", "ge", "gt"):
        other = {"le": "lt", "lt": "le", "ge": "gt", "gt": "ge"}[t.op]
        yield "mask shifted by one", make(other, t.args)
        yield "swapped operand", make(t.op, t.args[::-1])


def _function(t: Term) -> Iterator[tuple[str, Term]]:
    if t.op == "pow":
        yield "reciprocal", make("pow", t.args, -Fraction(str(t.attr)))
    if t.op in ("exp", "finite", "logistic", "erf", "log1p"):
        yield f"{t.op} left out", t.args[0]
    if t.op in ("maximum", "max"):
        yield "smallest for largest", make(t.op.replace("ax", "in"), t.args, t.attr)


def _reduction(t: Term) -> Iterator[tuple[str, Term]]:
    if not isinstance(t.attr, Reduction):
        return
    if t.op == "sum":
        yield "wrong combine", make("max", t.args, t.attr)
    for label in t.attr.labels:
        inside = make("lt", (iota(label), add(extent(label), integer(-1))))
        rest = lit(0.0) if t.op == "sum" else lit(float("-inf"))
        short = make("select", (inside, t.args[0], rest))
        yield "loop one short", reduce(t.op, short, t.attr.labels, t.attr.dtype)


def _leaf(t: Term) -> Iterator[tuple[str, Term]]:
    if isinstance(t.attr, Ref) and t.attr.when == "now":
        yield "stale accumulator", make("ref", (), t.attr._replace(when="before"))
    if not isinstance(t.attr, Access):
        return
    axes = t.attr.axes
    for i, axis in enumerate(axes):
        for j, f in enumerate(axis):
            if isinstance(f, Fixed):
                turned = Fixed((f.index + 1) % f.size, f.size)
                new = (*axis[:j], turned, *axis[j + 1 :])
                yield "wrong half", _reading(t, (*axes[:i], new, *axes[i + 1 :]))
        if len(axis) > 1:
            yield "wrong axis", _reading(t, (*axes[:i], axis[::-1], *axes[i + 1 :]))
    if len(axes) > 1:
        yield "wrong axis", _reading(t, (axes[1], axes[0], *axes[2:]))


def _reading(t: Term, axes: tuple) -> Term:
    assert isinstance(t.attr, Access)
    return make("input", (), t.attr._replace(axes=axes))


CHANGES: tuple[Change, ...] = (_literal, _operands, _function, _reduction, _leaf)


def _exchanged(plan: Plan) -> Iterator[tuple[str, Plan]]:
    """One input read in place of another of the same shape."""
    shapes = {t.name: (t.shape, t.dtype) for t in plan.inputs}
    for root in {r for k in plan.kernels for r in k.roots}:
        for t in subterms(root):
            if not isinstance(t.attr, Access) or t.attr.tensor not in shapes:
                continue
            for other in shapes:
                if other != t.attr.tensor and shapes[other] == shapes[t.attr.tensor]:
                    new = make("input", (), t.attr._replace(tensor=other))
                    yield "wrong tensor", with_term(plan, t, new)


def with_term(plan: Plan, old: Term, new: Term) -> Plan:
    """The plan with a term replaced everywhere."""
    table = {old: new}

    def stores(found: tuple[Store, ...]) -> tuple[Store, ...]:
        return tuple(replace(s, term=substitute(s.term, table)) for s in found)

    def accumulator(a: Accumulator) -> Accumulator:
        scale = None if a.rescale is None else substitute(a.rescale, table)
        return replace(a, body=substitute(a.body, table), rescale=scale)

    kernels = []
    for k in plan.kernels:
        changed = replace(k, stores=stores(k.stores))
        if isinstance(changed, BlockGraph):
            passes = tuple(
                replace(
                    p,
                    accumulators=tuple(map(accumulator, p.accumulators)),
                    stores=stores(p.stores),
                )
                for p in changed.passes
            )
            changed = replace(changed, passes=passes)
        kernels.append(changed)
    return replace(plan, kernels=tuple(kernels))


def _structural(plan: Plan) -> Iterator[tuple[str, Plan]]:
    for number, kernel in enumerate(plan.kernels):
        if isinstance(kernel, BlockGraph):
            for kind, changed in _of_block(kernel):
                kernels = list(plan.kernels)
                kernels[number] = changed
                yield kind, replace(plan, kernels=tuple(kernels))


def _of_block(kernel: BlockGraph) -> Iterator[tuple[str, BlockGraph]]:
    for i, s in enumerate(kernel.stores):
        shape = s.tensor.shape
        if len(shape) > 1 and shape[0] == shape[1]:
            turned = replace(s, axes=(s.axes[1], s.axes[0], *s.axes[2:]))
            stores = (*kernel.stores[:i], turned, *kernel.stores[i + 1 :])
            yield "transposed store", replace(kernel, stores=stores)
    for i, p in enumerate(kernel.passes):
        for j, a in enumerate(p.accumulators):
            for kind, changed in _of_accumulator(a):
                found = p.accumulators[:j] + changed + p.accumulators[j + 1 :]
                passes = list(kernel.passes)
                passes[i] = replace(p, accumulators=found)
                yield kind, replace(kernel, passes=tuple(passes))


def _of_accumulator(a: Accumulator) -> Iterator[tuple[str, tuple[Accumulator, ...]]]:
    yield "dropped accumulator", ()
    if a.op == "sum":
        yield "wrong combine", (replace(a, op="max"),)
        yield "earlier iterations dropped", (replace(a, rescale=lit(0.0)),)
    if a.rescale is not None:
        yield "missing rescale", (replace(a, rescale=None),)
        upside_down = make("pow", (a.rescale,), Fraction(-1))
        yield "rescale upside down", (replace(a, rescale=upside_down),)
        yield "rescaled twice", (replace(a, rescale=mul(a.rescale, a.rescale)),)


def mutants(plan: Plan) -> Iterator[tuple[str, Plan]]:
    """Every mutant of a plan, with its kind."""
    yield from _structural(plan)
    yield from _exchanged(plan)
    for term in subterms(*(r for k in plan.kernels for r in k.roots)):
        for change in CHANGES:
            for kind, new in change(term):
                if new is not term:
                    yield kind, with_term(plan, term, new)
