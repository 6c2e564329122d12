"""Terms as operations on whole arrays, for XLA: pre-defined kernels, and the CPU.

Every input is read with one axis per label; matrix products are einsums that accumulate
in float32. A grid becomes a `jax.lax.map` over its blocks, so that what a block touches
stays in the caches.
"""

from collections.abc import Sequence
from math import prod

from pallas_codegen.expressions import (
    Value,
    Writer,
    count_uses,
    indented,
    shape_text,
)
from pallas_codegen.layout import whole
from pallas_codegen.naming import RESERVED, Namer
from pallas_codegen.source import EmitError
from ugraph.contraction import as_contraction
from ugraph.graph import BlockGraph, Plan, Predefined, grid_counts, reads_of
from ugraph.program import Store, factor_sizes
from ugraph.terms import Access, Axes, Fixed, Reduction, Term, mul

LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


def kernel(graph: BlockGraph | Predefined, plan: Plan, *, name: str = "") -> str:
    """The function of a kernel on whole arrays.

    Args:
      graph: the kernel.
      plan: the plan it belongs to.
      name: the function's name, where it is not the kernel's.

    Raises:
      EmitError: for a block graph with a loop, or tiles that do not divide.
    """
    grid = graph.grid if isinstance(graph, BlockGraph) else ()
    if isinstance(graph, BlockGraph) and graph.passes:
        raise EmitError(f"{graph.name}: the XLA backend has no for-loop over a label")
    for r in grid:
        if plan.sizes[r.label] % r.tile:
            raise EmitError(f"{graph.name}: tiles of `{r.label}` do not divide it")
    body = _Body(graph, plan)
    body.write()
    arguments = ", ".join([*body.inputs, "interpret=False"])
    lines = [f"def {name or graph.name}({arguments}):", "del interpret", *body.lines]
    return "\n".join([lines[0], *indented(lines[1:])])


class _Body(Writer):
    """The statements of one function on whole arrays."""

    def __init__(self, graph: BlockGraph | Predefined, plan: Plan) -> None:
        self.inputs = sorted({a.tensor for a in reads_of(graph)})
        layout = whole(graph, plan.sizes)
        namer = Namer(RESERVED | set(self.inputs))
        super().__init__(layout, namer, count_uses(graph.roots))
        self.graph, self.plan = graph, plan
        self.grid = graph.grid if isinstance(graph, BlockGraph) else ()
        self.starts: dict[str, str] = {}

    def write(self) -> None:
        """Writes everything."""
        if not self.grid:
            results = [self._finished(self.tile(s), s) for s in self.graph.stores]
            self.lines.append(f"return {_tuple_text(results)}")
            return
        counts = grid_counts(self.graph, self.plan.sizes)  # pyrefly: ignore
        self._locate(counts)
        tiles = [self.tile(s) for s in self.graph.stores]
        inner = [*self.lines, f"return {_tuple_text([t.text for t in tiles])}"]
        names = [self.namer.fresh(s.tensor.name) for s in self.graph.stores]
        self.lines = ["", "def block(index):", *indented(inner), ""]
        blocks = prod(counts)
        self.lines.append(
            f"{_tuple_text(names)} = jax.lax.map(block, jnp.arange({blocks}))"
        )
        results = [
            self._gathered(name, tile, store, counts)
            for name, tile, store in zip(names, tiles, self.graph.stores, strict=True)
        ]
        self.lines.append(f"return {_tuple_text(results)}")

    def _locate(self, counts: Sequence[int]) -> None:
        for i, (r, count) in enumerate(zip(self.grid, counts, strict=True)):
            inner = prod(counts[i + 1 :])
            text = "index" if inner == 1 else f"index // {inner}"
            text = text if i == 0 else f"{text} % {count}"
            if r.tile > 1:
                text = f"{text} * {r.tile}"
            self.starts[r.label] = self.namer.fresh(f"{r.label}_start")
            self.lines.append(f"{self.starts[r.label]} = {text}")

    def index(self, label: str) -> Value:
        """Positions along a label."""
        start = self.starts.get(label)
        length = self.layout.lengths[label]
        if length == 1:
            return Value(start or "0", (), "i32")
        if start is None:
            return Value(f"jnp.arange({length})", (label,), "i32")
        text = f"{start} + jnp.arange({length})"
        return Value(text, (label,), "i32", atomic=False)

    def load(self, term: Term, access: Access) -> Value:
        """A tensor with one axis per label."""
        tensor = self.plan.tensors[access.tensor]
        flat = [f for axis in access.axes for f in axis]
        sizes = factor_sizes(access.axes, self.plan.sizes)
        text = access.tensor
        if sizes != tensor.shape:
            text = (
                f"{text}.reshape{shape_text(sizes)}" if sizes else f"{text}.reshape(())"
            )
        if any(isinstance(f, Fixed) for f in flat):
            index = ", ".join(
                str(f.index) if isinstance(f, Fixed) else ":" for f in flat
            )
            text = f"{text}[{index}]"
        labels = [f for f in flat if isinstance(f, str)]
        if len(set(labels)) != len(labels):
            text, labels = _diagonal(text, labels)
        for label in [x for x in labels if x in self.starts]:
            axis, tile = labels.index(label), self.layout.tiles[label]
            start = self.starts[label]
            if tile == 1:
                text = f"jax.lax.dynamic_index_in_dim({text}, {start}, {axis}, False)"
                labels.remove(label)
            else:
                text = f"jax.lax.dynamic_slice_in_dim({text}, {start}, {tile}, {axis})"
        value = Value(text, tuple(labels), tensor.dtype)
        return self.transposed(value, self.layout.axes(term.labels))

    def reduction(self, term: Term, attr: Reduction) -> Value:
        """A reduction; an einsum where it is a matrix product."""
        axes = self.layout.axes(term.labels)
        product = as_contraction(term, self.layout.tiles)
        if product is not None:
            operands, spec = [], []
            letters = dict(zip(self.layout.order, LETTERS, strict=False))
            for parts in (product.left, product.right):
                value = self.cast(self.value(mul(*parts)), product.dtype)
                operands.append(value.text)
                spec.append("".join(letters[x] for x in value.axes))
            out = "".join(letters[x] for x in axes)
            exact = ""
            if product.dtype == "f32":
                exact = ", precision=jax.lax.Precision.HIGHEST"
            text = (
                f'jnp.einsum("{",".join(spec)}->{out}", {", ".join(operands)}, '
                f"preferred_element_type=jnp.float32{exact})"
            )
            return Value(text, axes, "f32")
        value = self.widened(term.args[0])
        positions = [i for i, x in enumerate(value.axes) if x in attr.labels]
        axis = positions[0] if len(positions) == 1 else tuple(positions)
        return Value(f"jnp.{term.op}({value.text}, axis={axis})", axes, "f32")

    def tile(self, store: Store) -> Value:
        """The tile that a store writes, in the order of the tensor's labels."""
        labels = _labels(store.axes)
        axes = self.layout.axes(labels)
        value = self.cast(self.value(store.term), store.tensor.dtype)
        value = self.broadcast(value, axes)
        order = tuple(x for x in labels if x in axes)
        return self.assign(store.tensor.name, self.transposed(value, order))

    def _finished(self, tile: Value, store: Store) -> str:
        shape = store.tensor.shape
        if self.layout.shape(tile.axes) == shape:
            return tile.text
        return f"{tile.text}.reshape{shape_text(shape) if shape else '(())'}"

    def _gathered(
        self, name: str, tile: Value, store: Store, counts: Sequence[int]
    ) -> str:
        """The whole tensor out of the stacked tiles of all blocks."""
        grid = [r.label for r in self.grid]
        stacked = [f"{x}/" for x in grid] + list(tile.axes)
        wanted = [y for x in _labels(store.axes) for y in (f"{x}/", x) if y in stacked]
        lengths = (*counts, *self.layout.shape(tile.axes))
        text = name
        if len(grid) > 1:
            text = f"{text}.reshape{shape_text(lengths)}"
        if wanted != stacked:
            order = ", ".join(str(stacked.index(x)) for x in wanted)
            text = f"jnp.transpose({text}, ({order}))"
        return f"{text}.reshape{shape_text(store.tensor.shape)}"


def _labels(axes: Axes) -> tuple[str, ...]:
    return tuple(f for axis in axes for f in axis if isinstance(f, str))


def _diagonal(text: str, labels: list[str]) -> tuple[str, list[str]]:
    """A read in which a label names two axes."""
    names = dict(zip(dict.fromkeys(labels), LETTERS, strict=False))
    spec = "".join(names[x] for x in labels)
    return f'jnp.einsum("{spec}->{"".join(names.values())}", {text})', list(names)


def _tuple_text(names: Sequence[str]) -> str:
    return f"({names[0]},)" if len(names) == 1 else f"({', '.join(names)})"
