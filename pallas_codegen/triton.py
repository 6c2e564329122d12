"""Block graphs as Pallas kernels for Triton.

Arrays stay in device memory as they are; a block computes the positions of its tile
along every label and loads, masks and stores by them, so that any shape works with
tiles that are powers of two. Labels tell where a statement goes: what depends on no
loop is written before it, what depends on the walked label inside it.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache

from pallas_codegen.expressions import (
    DTYPES,
    NEUTRAL,
    Value,
    Writer,
    align,
    count_uses,
    indented,
    shape_text,
    wrapped,
)
from pallas_codegen.layout import is_dot, padded
from pallas_codegen.naming import RESERVED, Namer
from pallas_codegen.source import EmitError
from ugraph.contraction import Contraction, as_contraction
from ugraph.graph import (
    Accumulator,
    BlockGraph,
    Pass,
    Plan,
    grid_counts,
    loop_count,
    reads_of,
)
from ugraph.program import Store
from ugraph.terms import (
    Access,
    Axes,
    Fixed,
    Reduction,
    Ref,
    Term,
    mul,
    ref,
    subterms,
)

LARGEST_TILE = 1 << 20
INDENT = "    "


def kernel(block: BlockGraph, plan: Plan) -> str:
    """The Pallas kernel of a block graph, and the function that calls it."""
    return _Kernel(block, plan).text()


class _Kernel:
    """A kernel being written: its scopes are the prologue, loops and the epilogue."""

    def __init__(self, block: BlockGraph, plan: Plan) -> None:
        self.block, self.plan = block, plan
        self.layout = padded(block, plan.sizes)
        inputs = sorted({a.tensor for a in reads_of(block)})
        outputs = [s.tensor.name for s in block.outputs]
        self.inputs, self.outputs = inputs, outputs
        refs = {f"{name}_ref" for name in (*inputs, *outputs)}
        accumulators = [a for p in block.passes for a in p.accumulators]
        names = {a.name for a in accumulators} | {
            f"{a.name}_before" for a in accumulators
        }
        self.namer = Namer(RESERVED | refs | names)
        self.uses = count_uses(block.roots)
        self.stage_of = {
            a.name: i for i, p in enumerate(block.passes) for a in p.accumulators
        }
        self.axes_of = {
            a.name: self.layout.axes(a.body.labels)
            for p in block.passes
            for a in p.accumulators
        }
        self.fixed = [
            self._scope(i, inside=False) for i in range(len(block.passes) + 1)
        ]
        self.inside = [self._scope(i, inside=True) for i in range(len(block.passes))]
        self._positions()

    def _scope(self, number: int, *, inside: bool) -> "_Scope":
        return _Scope(self, number, inside=inside)

    def _positions(self) -> None:
        """Which block this is along each label of the grid."""
        scope, counts = self.fixed[0], grid_counts(self.block, self.plan.sizes)
        if not counts:
            return
        left = "pl.program_id(0)"
        for number, (walked, count) in enumerate(
            zip(self.block.grid, counts, strict=True)
        ):
            if count == 1:
                continue
            rest = counts[number + 1 :]
            inner = 1
            for n in rest:
                inner *= n
            text = left if inner == 1 else f"{left} // {inner}"
            if any(n > 1 for n in counts[:number]):
                text = f"{text} % {count}"
            name = self.namer.fresh(f"block_{walked.label}")
            scope.lines.append(f"{name} = {text}")
            scope.starts[walked.label] = name

    def text(self) -> str:
        """The kernel and its caller."""
        loops = [
            self._loop(number, walk, self.inside[number])
            for number, walk in enumerate(self.block.passes)
        ]
        for store in self.block.stores:
            self.fixed[-1].store(store)
        body: list[str] = []
        for scope, loop in zip(self.fixed, [*loops, []], strict=True):
            body += [*scope.lines, *loop]
        return "\n".join(self._assembled(body))

    def _loop(self, number: int, walk: Pass, scope: "_Scope") -> list[str]:
        for a in walk.accumulators:
            scope.accumulate(a)
        for store in walk.stores:
            scope.store(store)
        names = [a.name for a in walk.accumulators]
        tuple_of = _tuple_text(names)
        count = loop_count(self.block, self.plan.sizes)
        before = _tuple_text([f"{n}_before" for n in names])
        unpack = [f"{before} = carry"] if names else []
        starts = [self._empty(a) for a in walk.accumulators]
        inner = [*unpack, *scope.lines, f"return {tuple_of}"]
        lines = ["", f"def pass{number}({scope.step}, carry):", *indented(inner), ""]
        start = _tuple_text(starts)
        call = f"jax.lax.fori_loop(0, {count}, pass{number}, "
        if len(call) + len(start) + len(tuple_of) > 76 and starts:
            lines += ["start = (", *indented(f"{x}," for x in starts), ")"]
            start = "start"
        target = f"{tuple_of} = " if names else ""
        return [*lines, f"{target}{call}{start})"]

    def _empty(self, a: Accumulator) -> str:
        axes = self.axes_of[a.name]
        if not axes:
            return f"jnp.float32({NEUTRAL[a.op]})"
        shape = shape_text(self.layout.shape(axes))
        if a.op == "sum":
            return f"jnp.zeros({shape}, jnp.float32)"
        return f"jnp.full({shape}, {NEUTRAL[a.op]}, jnp.float32)"

    def _assembled(self, body: list[str]) -> list[str]:
        block, plan = self.block, self.plan
        refs = [f"{n}_ref" for n in (*self.inputs, *self.outputs)]
        counts = grid_counts(block, plan.sizes)
        blocks = 1
        for n in counts:
            blocks *= n
        tensors = plan.tensors
        shapes = [
            f"jax.ShapeDtypeStruct({shape_text(tensors[n].shape)}, "
            f"{DTYPES[tensors[n].dtype]}),"
            for n in self.outputs
        ]
        arguments = ", ".join(self.inputs)
        return [
            *_signature(f"{block.name}_block", refs),
            *indented(body),
            "",
            "",
            *_signature(block.name, [*self.inputs, "interpret=False"]),
            f"{INDENT}return pl.pallas_call(",
            f"{INDENT * 2}{block.name}_block,",
            f"{INDENT * 2}out_shape=(",
            *(f"{INDENT * 3}{s}" for s in shapes),
            f"{INDENT * 2}),",
            f"{INDENT * 2}grid=({blocks},),",
            f"{INDENT * 2}compiler_params=plgpu.CompilerParams(",
            f"{INDENT * 3}num_warps={block.num_warps}, num_stages={block.num_stages}",
            f"{INDENT * 2}),",
            f"{INDENT * 2}interpret=interpret,",
            f'{INDENT * 2}name="{block.name}",',
            *wrapped(f"{INDENT})({arguments})"),
        ]


class _Scope(Writer):
    """The statements of one place: before pass `number`, or inside it."""

    def __init__(self, owner: _Kernel, number: int, *, inside: bool) -> None:
        super().__init__(owner.layout, owner.namer, owner.uses)
        self.owner, self.number, self.inside = owner, number, inside
        self.starts: dict[str, str] = {}
        self._indices: dict[str, Value] = {}
        self._masks: dict[str, Value] = {}
        loop = owner.block.loop
        self.walked = loop.label if inside and loop is not None else None
        if self.walked is not None:
            self.step = owner.namer.fresh("i")
            self.starts[self.walked] = self.step
        for name, axes in owner.axes_of.items():
            for when in ("now", "before"):
                suffix = "" if when == "now" else "_before"
                value = Value(name + suffix, axes, "f32")
                self.values[ref(name, self._labels(name), when)] = value

    def _labels(self, accumulator: str) -> tuple[str, ...]:
        for walk in self.owner.block.passes:
            for a in walk.accumulators:
                if a.name == accumulator:
                    return a.body.labels
        raise EmitError(f"nothing accumulates `{accumulator}`")

    def scope(self, term: Term) -> Writer:
        """The earliest place where all that the term needs is there."""
        loop = self.owner.block.loop
        if loop is None:
            return self
        place, moving = _needs(term, loop.label)
        stages = [self.owner.stage_of[r.name] for r in place]
        if self.inside and (moving or self.number in stages):
            return self
        if moving:
            raise EmitError(f"{term} needs the loop after its end")
        return self.owner.fixed[max((s + 1 for s in stages), default=0)]

    def home(self, label: str) -> "_Scope":
        """The scope in which positions along a label are known."""
        if label == self.walked:
            return self
        if any(r.label == label for r in (self.owner.block.loop,) if r is not None):
            raise EmitError(f"positions along `{label}` are needed outside its loop")
        return self.owner.fixed[0]

    def index(self, label: str) -> Value:
        """The positions of the tile along a label."""
        home = self.home(label)
        if label not in home._indices:
            home._indices[label] = home._position(label)
        return home._indices[label]

    def _position(self, label: str) -> Value:
        layout = self.layout
        tile, length = layout.tiles[label], layout.lengths[label]
        start = self.starts.get(label)
        if length == 1:
            return Value(start or "0", (), "i32")
        lanes = f"jnp.arange({length})"
        first = f"{start} * {tile}" if tile > 1 else start
        text = f"{first} + {lanes}" if start else lanes
        return self.assign(label, Value(text, (label,), "i32", atomic=False))

    def mask(self, label: str) -> Value:
        """Which positions of the tile along a label exist."""
        home = self.home(label)
        if label not in home._masks:
            layout = self.layout
            position = self.index(label)
            text = f"{position.text} < {layout.extents[label]}"
            if layout.lengths[label] != layout.tiles[label] != layout.extents[label]:
                lanes = f"jnp.arange({layout.lengths[label]})"
                text = f"({text}) & ({lanes} < {layout.tiles[label]})"
            mask = Value(text, position.axes, "bool", atomic=False)
            home._masks[label] = home.assign(f"{label}_mask", mask)
        return home._masks[label]

    def masks(self, labels: Iterable[str], axes: tuple[str, ...]) -> str:
        """The conjunction of the masks of those labels that need one; may be empty."""
        needed = [x for x in axes if x in set(labels) and self.layout.is_masked(x)]
        found = [self.mask(x) for x in needed]
        return " & ".join(align(m.operand, m.axes, axes, full=True) for m in found)

    def positions(self, axes: Axes, labels: tuple[str, ...]) -> str:
        """Indices into a tensor with these axes."""
        texts = []
        for axis in axes:
            parts, stride = [], 1
            for f in reversed(axis):
                if isinstance(f, Fixed):
                    parts.append(str(f.index * stride))
                else:
                    position = self.index(f)
                    at = align(position.operand, position.axes, labels, full=True)
                    parts.append(at if stride == 1 else f"{at} * {stride}")
                size = f.size if isinstance(f, Fixed) else self.layout.extents[f]
                stride *= size
            parts = [p for p in reversed(parts) if p != "0"]
            texts.append(" + ".join(parts) or "0")
        return ", ".join(texts)

    def load(self, term: Term, access: Access) -> Value:
        """A tile of a tensor; zero where it reaches past the end."""
        axes = self.layout.axes(term.labels)
        self._check_size(axes, term)
        tensor = self.owner.plan.tensors[access.tensor]
        mask = self.masks(term.labels, axes)
        index = self.positions(access.axes, axes)
        place = f"{access.tensor}_ref.at[{index}]" if index else f"{access.tensor}_ref"
        other = "False" if tensor.dtype == "bool" else "0"
        suffix = f", mask={mask}, other={other}" if mask else ""
        text = f"plgpu.load({place}{suffix})"
        return Value(text, axes, tensor.dtype)

    def store(self, store: Store) -> None:
        """Writes a tile."""
        labels = [f for axis in store.axes for f in axis if isinstance(f, str)]
        axes = self.layout.axes(labels)
        value = self.value(store.term)
        if value.axes != axes:
            value = self.broadcast(self.cast(value, store.tensor.dtype), axes)
        value = self.cast(value, store.tensor.dtype)
        mask = self.masks(labels, axes)
        index = self.positions(store.axes, axes)
        name = f"{store.tensor.name}_ref"
        place = f"{name}.at[{index}]" if index else name
        suffix = f", mask={mask}" if mask else ""
        if not value.text.isidentifier():
            value = self.assign(store.tensor.name, value)
        self.lines += wrapped(f"plgpu.store({place}, {value.text}{suffix})", 76)

    def accumulate(self, a: Accumulator) -> None:
        """One iteration of an accumulator."""
        before = Value(f"{a.name}_before", self.owner.axes_of[a.name], "f32")
        axes = before.axes
        text = before.text
        if a.rescale is not None:
            text = f"{before.text} * {self.operand(a.rescale, axes)}"
        body = self.operand(a.body, axes)
        if a.op == "sum":
            text = f"{text} + {body}"
        else:
            text = f"jnp.{a.op}imum({text}, {body})"
        self.lines += wrapped(f"{a.name} = {text}", 76)

    def reduction(self, term: Term, attr: Reduction) -> Value:
        """A reduction over the tile: a matrix product where it is one."""
        product = as_contraction(term, self.layout.tiles)
        if product is not None and is_dot(product, self.layout.tiles):
            return self._dot(term, product)
        axes = self.layout.axes(term.args[0].labels)
        self._check_size(axes, term)
        value = self.broadcast(self.widened(term.args[0]), axes)
        value = self._masked(value, term.args[0], attr.labels, NEUTRAL[term.op])
        text = value.text
        for position in sorted(axes.index(x) for x in attr.labels if x in axes)[::-1]:
            text = f"jnp.{term.op}({text}, axis={position})"
        return Value(text, self.layout.axes(term.labels), "f32")

    def _check_size(self, axes: tuple[str, ...], term: Term) -> None:
        elements = 1
        for n in self.layout.shape(axes):
            elements *= n
        if elements > LARGEST_TILE:
            raise EmitError(
                f"{self.owner.block.name}: the tile of {term} has {elements} elements; "
                f"Triton takes at most {LARGEST_TILE}"
            )

    def _masked(
        self, value: Value, term: Term, labels: Iterable[str], neutral: str
    ) -> Value:
        """The value with `neutral` past the ends of `labels`."""
        needed = [x for x in labels if self.layout.is_masked(x)]
        if neutral == "0.0":
            needed = [x for x in needed if not vanishes(term, x)]
        mask = self.masks(needed, value.axes)
        if not mask:
            return value
        text = f"jnp.where({mask}, {value.text}, {neutral})"
        return Value(text, value.axes, value.dtype)

    def _dot(self, term: Term, product: Contraction) -> Value:
        layout = self.layout
        rows, columns, depth = map(
            layout.axes, (product.rows, product.columns, product.contracted)
        )
        first, second = product.left, product.right
        if layout.axes(term.labels) == (*columns, *rows):
            rows, columns, first, second = columns, rows, second, first
        left = self._matrix(product, first, (rows, depth))
        right = self._matrix(product, second, (depth, columns))
        exact = (
            ", precision=jax.lax.Precision.HIGHEST" if product.dtype == "f32" else ""
        )
        text = f"jnp.dot({left}, {right}, preferred_element_type=jnp.float32{exact})"
        axes = (*rows, *columns)
        value = Value(text, axes, "f32")
        if len(axes) > 2:
            shape = shape_text(layout.shape(axes))
            value = Value(f"{text}.reshape{shape}", axes, "f32")
        return self.transposed(value, layout.axes(term.labels))

    def _matrix(
        self,
        product: Contraction,
        parts: Sequence[Term],
        sides: tuple[tuple[str, ...], tuple[str, ...]],
    ) -> str:
        """An operand as a matrix, rounded to the dtype of the product."""
        term = mul(*parts)
        axes = self.layout.axes((*sides[0], *sides[1]))
        self._check_size(axes, term)
        value = self.value(term)
        if value.dtype in ("weak", "bool", "i32"):
            value = self.cast(value, "f32")
        if len(axes) != len(value.axes):
            value = self.broadcast(value, axes)
        value = self._masked(value, term, product.contracted, "0.0")
        value = self.cast(value, product.dtype)
        value = self.transposed(value, (*sides[0], *sides[1]))
        if len(axes) == 2:
            return value.text
        lengths = [1, 1]
        for i, side in enumerate(sides):
            for n in self.layout.shape(side):
                lengths[i] *= n
        return f"{value.operand}.reshape{shape_text(lengths)}"


@lru_cache(maxsize=4096)
def _needs(term: Term, label: str) -> tuple[frozenset[Ref], bool]:
    """The accumulators a term needs, and whether it varies along a label."""
    refs = frozenset(t.attr for t in subterms(term) if isinstance(t.attr, Ref))
    return refs, any(label in t.labels for t in subterms(term))


def vanishes(term: Term, label: str) -> bool:
    """Whether a term is zero past the end of `label` because loads are zero there."""
    if isinstance(term.attr, Access):
        return label in term.labels
    if term.op == "to_float":
        return vanishes(term.args[0], label)
    if term.op == "mul":
        return any(vanishes(a, label) for a in term.args) and all(map(_tame, term.args))
    return term.op == "add" and all(vanishes(a, label) for a in term.args)


def _tame(term: Term) -> bool:
    """Whether a term is made of loads and literals by sums and products alone."""
    if isinstance(term.attr, Access):
        return True
    if term.op == "lit":
        return term.attr not in (float("inf"), float("-inf"))
    return term.op in ("add", "mul", "to_float") and all(map(_tame, term.args))


def _tuple_text(names: Sequence[str]) -> str:
    if len(names) == 1:
        return f"({names[0]},)"
    return f"({', '.join(names)})"


def _signature(name: str, arguments: Sequence[str]) -> list[str]:
    line = f"def {name}({', '.join(arguments)}):"
    if len(line) <= 88:
        return [line]
    return [f"def {name}(", *(f"{INDENT}{a}," for a in arguments), "):"]
