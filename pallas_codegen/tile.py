"""The statements of one place in a block: tiles, masks, matrix products.

A block has a place before each loop, one inside it, and the epilogue; a `Scope` writes
the statements of one of them. Positions along labels, masks and loads are written once,
in the earliest place where they can be.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from pallas_codegen.expressions import (
    NEUTRAL,
    Value,
    Writer,
    align,
    shape_text,
    wrapped,
)
from pallas_codegen.layout import Layout, is_dot
from pallas_codegen.naming import Namer
from pallas_codegen.source import EmitError
from ugraph.contraction import Contraction, as_contraction
from ugraph.graph import Accumulator, BlockGraph, Plan
from ugraph.program import Store
from ugraph.terms import Access, Axes, Fixed, Reduction, Ref, Term, mul, ref, subterms

LARGEST_TILE = 1 << 20


@dataclass
class Places:
    """What the scopes of one kernel share.

    Attributes:
      block: the block graph.
      plan: the plan it belongs to.
      layout: axes of the tiles.
      namer: gives out names.
      uses: how often each term is an operand.
      fixed: the scopes outside the loops: before each, and the epilogue.
    """

    block: BlockGraph
    plan: Plan
    layout: Layout
    namer: Namer
    uses: Counter[Term]
    fixed: list["Scope"] = field(default_factory=list)

    @property
    def stage_of(self) -> Mapping[str, int]:
        """The pass that folds each accumulator."""
        passes = enumerate(self.block.passes)
        return {a.name: i for i, p in passes for a in p.accumulators}

    @property
    def labels_of(self) -> Mapping[str, tuple[str, ...]]:
        """The labels of each accumulator."""
        return {
            a.name: a.body.labels for p in self.block.passes for a in p.accumulators
        }


class Scope(Writer):
    """The statements of one place: before pass `number`, or inside it."""

    def __init__(self, places: Places, number: int, *, inside: bool) -> None:
        super().__init__(places.layout, places.namer, places.uses)
        self.places, self.number, self.inside = places, number, inside
        self.starts: dict[str, str] = {}
        self._indices: dict[str, Value] = {}
        self._masks: dict[str, Value] = {}
        loop = places.block.loop
        self.walked = loop.label if inside and loop is not None else None
        if self.walked is not None:
            self.step = places.namer.fresh("i")
            self.starts[self.walked] = self.step
        for name, labels in places.labels_of.items():
            axes = self.layout.axes(labels)
            for when in ("now", "before"):
                suffix = "" if when == "now" else "_before"
                value = Value(name + suffix, axes, "f32")
                self.values[ref(name, labels, when)] = value

    def scope(self, term: Term) -> Writer:
        """The earliest place where all that the term needs is there."""
        loop = self.places.block.loop
        if loop is None:
            return self
        place, moving = _needs(term, loop.label)
        stages = [self.places.stage_of[r.name] for r in place]
        if self.inside and (moving or self.number in stages):
            return self
        if moving:
            raise EmitError(f"{term} needs the loop after its end")
        return self.places.fixed[max((s + 1 for s in stages), default=0)]

    def home(self, label: str) -> "Scope":
        """The scope in which positions along a label are known."""
        if label == self.walked:
            return self
        if any(r.label == label for r in (self.places.block.loop,) if r is not None):
            raise EmitError(f"positions along `{label}` are needed outside its loop")
        return self.places.fixed[0]

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
        tensor = self.places.plan.tensors[access.tensor]
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
        before = Value(f"{a.name}_before", self.layout.axes(a.body.labels), "f32")
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
                f"{self.places.block.name}: the tile of {term} has {elements} "
                f"elements; Triton takes at most {LARGEST_TILE}"
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
