"""A plan as text for people, all three levels of the μGraph.

The kernel graph; in it every block graph with its grid, loop, imap, omap, fmap and
accumulators; in that the ops of each part in order, thread graphs as one op each.
"""

from collections.abc import Iterator, Mapping

from ugraph.graph import (
    BlockGraph,
    Plan,
    Predefined,
    axis_of,
    grid_counts,
    loop_count,
    reads_of,
    show_axes,
)
from ugraph.optimize.order import Ordered, order
from ugraph.optimize.places import is_dot, operands
from ugraph.optimize.threads import ThreadGraph, threads
from ugraph.program import Store
from ugraph.terms import Access, Reduction, Term, ref, replace, show


def describe(plan: Plan) -> str:
    """The kernel graph, its block graphs and their thread graphs."""
    lines = ["kernel graph"]
    for kernel in plan.kernels:
        if isinstance(kernel, Predefined):
            lines += [f"  {kernel.name}: pre-defined"]
            lines += [f"    {_stored(s)}" for s in kernel.stores]
        else:
            lines += [f"  {line}" for line in _block_lines(kernel, plan)]
            lines += [f"    {line}" for line in _op_lines(kernel, plan.sizes)]
    return "\n".join(lines)


def _block_lines(kernel: BlockGraph, plan: Plan) -> Iterator[str]:
    counts = grid_counts(kernel, plan.sizes)
    grid = ", ".join(
        f"{r.label}:{n}×{r.tile}" for r, n in zip(kernel.grid, counts, strict=True)
    )
    yield f"{kernel.name}: block graph, grid ({grid})"
    if kernel.loop is not None:
        count = loop_count(kernel, plan.sizes)
        yield f"  forloop {kernel.loop.label}: {count}×{kernel.loop.tile}"
    for access in reads_of(kernel):
        yield f"  in  {show_axes(access.tensor, access.axes)} {_maps(kernel, access)}"
    for number, walk in enumerate(kernel.passes):
        yield f"  pass {number}"
        for a in walk.accumulators:
            scale = f"{show(a.rescale)} · {a.name} ⊕ " if a.rescale is not None else ""
            yield f"    {a.name} = accum_{a.op}({scale}{show(a.body)})"
        yield from (f"    store {_stored(s)}" for s in walk.stores)
    for store in kernel.stores:
        omap = ", ".join(
            f"{r.label}→{axis_of(store.axes, r.label)}" for r in kernel.grid
        )
        yield f"  out {_stored(store)} omap {{{omap}}}"


def _stored(store: Store) -> str:
    return f"{show_axes(store.tensor.name, store.axes)} = {show(store.term)}"


def _maps(kernel: BlockGraph, access: Access) -> str:
    imap = ", ".join(f"{r.label}→{axis_of(access.axes, r.label)}" for r in kernel.grid)
    if kernel.loop is None:
        return f"imap {{{imap}}}"
    label = kernel.loop.label
    return f"imap {{{imap}}} fmap {{{label}→{axis_of(access.axes, label)}}}"


def _op_lines(kernel: BlockGraph, sizes: Mapping[str, int]) -> Iterator[str]:
    """The ops of a block in order, elementwise trees as thread graphs."""
    made = {(t.place, t.term): t for t in threads(kernel, sizes)}
    names: dict[Term, Term] = {}
    for place in order(kernel, sizes):
        if place.terms:
            yield f"ops, {place.place}"
        yield from (f"  {line}" for line in _place_lines(place, made, names, sizes))


def _place_lines(
    place: Ordered,
    made: Mapping[tuple[str, Term], ThreadGraph],
    names: dict[Term, Term],
    sizes: Mapping[str, int],
) -> Iterator[str]:
    for position, term in enumerate(place.terms):
        if position in place.barriers:
            yield "barrier"
        graph = made.get((place.place, term))
        if graph is not None:
            table = {t: names.get(t, t) for t in graph.inputs}
            names[term] = ref(graph.name, term.labels)
            inputs = ", ".join(show(t) for t in table.values())
            text = show(replace(term, table))
            yield f"{_named(names[term])} = thread graph ({inputs}): {text}"
        elif isinstance(term.attr, Reduction):
            op = "dot" if is_dot(term, sizes) else term.op
            number = sum(show(n).startswith(f"{op}_") for n in names.values())
            args = ", ".join(show(names.get(t, t)) for t in operands(term, sizes))
            names[term] = ref(f"{op}_{number}", term.labels)
            yield f"{_named(names[term])} = {op}[{','.join(term.attr.labels)}]({args})"


def _named(name: Term) -> str:
    return f"{show(name)}[{','.join(name.labels)}]"
