"""Programs in floating point: exactly (float64), and as written (with its roundings).

`reference` is the mathematics in float64. `emulate` is what the program as written
would compute: operands of a product rounded to the product's dtype, sums accumulated in
float32, results rounded where the program rounds them.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from ugraph.contraction import as_contraction
from ugraph.ops import OPS
from ugraph.program import Program, Store, axes_shape, factor_sizes
from ugraph.terms import Access, Axes, Extent, Fixed, Reduction, Term, factors
from verify.values import UnsupportedError

Array = npt.NDArray

DTYPES: Mapping[str, np.dtype] = {
    "bf16": np.dtype(jnp.bfloat16),
    "f16": np.dtype(np.float16),
    "f32": np.dtype(np.float32),
    "bool": np.dtype(np.bool_),
    "i32": np.dtype(np.int32),
}
FOLDS = {"sum": np.sum, "max": np.max, "min": np.min}

FUNCTIONS: Mapping[str, Callable[..., Array]] = {
    "exp": np.exp,
    "tanh": np.tanh,
    "log": np.log,
    "log1p": np.log1p,
    "expm1": np.expm1,
    "sin": np.sin,
    "cos": np.cos,
    "abs": np.abs,
    "sign": np.sign,
    "floor": np.floor,
    "ceil": np.ceil,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "finite": lambda x: np.where(x == -np.inf, x.dtype.type(0), x),
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


def reference(
    program: Program, inputs: Sequence[Array], sizes: Mapping[str, int] | None = None
) -> list[Array]:
    """The outputs of the program in float64, nothing rounded."""
    numbers = _Numbers(program, sizes or program.sizes, np.dtype(np.float64), False)
    return numbers.outputs(inputs)


def emulate(
    program: Program,
    inputs: Sequence[Array],
    sizes: Mapping[str, int] | None = None,
    *,
    noise: int | None = None,
) -> list[Array]:
    """The outputs of the program as written, in float32 and rounded where it rounds.

    Args:
      program: the program.
      inputs: in the program's dtypes.
      sizes: label to extent, if not the program's own.
      noise: seed of a perturbation of the inputs by up to one unit in the last place of
        float32: no order of evaluation can be expected to do better than that.
    """
    numbers = _Numbers(program, sizes or program.sizes, np.dtype(np.float32), True)
    if noise is not None:
        rng = np.random.default_rng([noise, 3])
        inputs = [_perturbed(np.asarray(x), rng) for x in inputs]
    return numbers.outputs(inputs)


def _perturbed(x: Array, rng: np.random.Generator) -> Array:
    if x.dtype == np.bool_ or np.issubdtype(x.dtype, np.integer):
        return x
    eps = float(np.finfo(np.float32).eps)
    return (x.astype(np.float64) * (1 + eps * rng.uniform(-1, 1, x.shape))).astype(
        np.float32
    )


@dataclass
class _Numbers:
    """One evaluation of a program's terms (each once)."""

    program: Program
    sizes: Mapping[str, int]
    dtype: np.dtype
    rounding: bool
    memory: dict[str, Array] = field(default_factory=dict)
    done: dict[Term, Array] = field(default_factory=dict)

    def outputs(self, inputs: Sequence[Array]) -> list[Array]:
        """The program's outputs."""
        for tensor, value in zip(self.program.inputs, inputs, strict=True):
            floats = tensor.dtype not in ("bool", "i32")
            value = np.asarray(value)
            self.memory[tensor.name] = value.astype(self.dtype) if floats else value
        self.roundings: dict[Term, list[str]] = {}
        for term, dtype in self.program.roundings if self.rounding else ():
            self.roundings.setdefault(term, []).append(dtype)
        with np.errstate(all="ignore"):
            return [self._stored(s) for s in self.program.outputs]

    def _stored(self, store: Store) -> Array:
        names = [f for axis in store.axes for f in axis if isinstance(f, str)]
        if len(names) < sum(map(len, store.axes)):
            raise UnsupportedError(f"`{store.tensor.name}` is stored in parts")
        value = self.value(store.term)
        labels = store.term.labels
        value = value.transpose([labels.index(x) for x in names if x in labels])
        value = value.reshape([self.sizes[x] if x in labels else 1 for x in names])
        value = np.broadcast_to(value, [self.sizes[x] for x in names])
        value = value.reshape(axes_shape(store.axes, self.sizes))
        if self.rounding or store.tensor.dtype == "bool":
            return value.astype(DTYPES[store.tensor.dtype])
        return value

    def value(self, term: Term) -> Array:
        """The value of a term: one axis per label, in sorted order."""
        if term not in self.done:
            made = np.asarray(self._value(term))
            for dtype in self.roundings.get(term, ()):
                made = self._rounded(made, dtype)
            shape = [self.sizes[x] for x in term.labels]
            self.done[term] = np.broadcast_to(made, shape)
        return self.done[term]

    def _rounded(self, x: Array, dtype: str) -> Array:
        return x.astype(DTYPES[dtype]).astype(self.dtype) if self.rounding else x

    def _value(self, term: Term) -> Array:
        attr = term.attr
        match attr:
            case Access():
                return self._read(attr, term.labels)
            case Extent(label):
                return np.asarray(self.sizes[label])
            case Reduction():
                return self._reduce(term, attr)
            case str() if term.op == "iota":
                return np.arange(self.sizes[attr])
        if term.op in ("lit", "int"):
            dtype = self.dtype if term.op == "lit" else np.dtype(np.int64)
            return np.asarray(float(attr), dtype)  # pyrefly: ignore
        return self._map(term, [self._spread(a, term.labels) for a in term.args])

    def _map(self, term: Term, args: list[Array]) -> Array:
        match term.op:
            case "add":
                return sum(args[1:], args[0])
            case "mul":
                return math.prod(args[1:], start=args[0])
            case "pow":
                return self._power(args[0], Fraction(term.attr))  # pyrefly: ignore
            case "to_float":
                return args[0].astype(self.dtype)
        if term.op in FUNCTIONS:
            return FUNCTIONS[term.op](*args)
        return self._by_table(term, args)

    def _power(self, x: Array, exponent: Fraction) -> Array:
        if exponent.denominator == 2:
            x, exponent = np.sqrt(x), exponent * 2
        one = self.dtype.type(1)
        if exponent.denominator == 1:
            whole = np.power(x, abs(exponent.numerator))
            return whole if exponent > 0 else one / whole
        return np.power(x, self.dtype.type(float(exponent)))

    def _by_table(self, term: Term, args: list[Array]) -> Array:
        """An op that only the op table knows: the expression it is emitted as."""
        text = OPS[term.op].emit
        if not text:
            raise UnsupportedError(f"op `{term.op}` has no expression in the op table")
        names = {f"x{i}": a for i, a in enumerate(args)}
        code = text.format(*names, f=f"jnp.{self.dtype.name}")
        with jax.enable_x64(True):
            found = eval(code, {"jnp": jnp, "jax": jax}, names)
            return np.asarray(found)

    def _spread(self, term: Term, labels: tuple[str, ...]) -> Array:
        shape = [self.sizes[x] if x in term.labels else 1 for x in labels]
        return self.value(term).reshape(shape)

    def _reduce(self, term: Term, attr: Reduction) -> Array:
        (body,) = term.args
        product = as_contraction(term, self.sizes) if term.op == "sum" else None
        if product is not None:
            sides = (product.left, product.right)
            return self._contract(term, attr, *(self._side(s, attr) for s in sides))
        axes = tuple(body.labels.index(x) for x in attr.labels)
        if term.op == "sum" and attr.dtype != "f32" and self.rounding:
            parts = [
                self._rounded(self._spread(f, body.labels), attr.dtype)
                for f in factors(body)
            ]
            return np.sum(math.prod(parts[1:], start=parts[0]), axis=axes)
        return FOLDS[term.op](self.value(body), axis=axes)

    def _side(
        self, parts: tuple[Term, ...], attr: Reduction
    ) -> tuple[tuple[str, ...], Array]:
        labels = tuple(sorted({x for t in parts for x in t.labels}))
        spread = [self._spread(t, labels) for t in parts]
        return labels, self._rounded(math.prod(spread[1:], start=spread[0]), attr.dtype)

    def _contract(
        self,
        term: Term,
        attr: Reduction,
        left: tuple[tuple[str, ...], Array],
        right: tuple[tuple[str, ...], Array],
    ) -> Array:
        """A matrix product, accumulated in the evaluation's dtype."""
        summed = attr.labels
        batch = [x for x in left[0] if x in right[0] and x not in summed]
        rows = [x for x in left[0] if x not in right[0]]
        columns = [x for x in right[0] if x not in left[0]]

        def matrix(
            side: tuple[tuple[str, ...], Array], *groups: Sequence[str]
        ) -> Array:
            order = [side[0].index(x) for g in groups for x in g]
            shape = [math.prod(self.sizes[x] for x in g) for g in groups]
            full = np.broadcast_to(side[1], [self.sizes[x] for x in side[0]])
            return full.transpose(order).reshape(shape)

        a, b = matrix(left, batch, rows, summed), matrix(right, batch, summed, columns)
        names = [*batch, *rows, *columns]
        value = np.matmul(a, b).reshape([self.sizes[x] for x in names])
        return value.transpose([names.index(x) for x in term.labels])

    def _read(self, access: Access, labels: tuple[str, ...]) -> Array:
        at = self._index(access.axes, labels)
        value = self.memory[access.tensor]
        return value.reshape(factor_sizes(access.axes, self.sizes))[at]

    def _index(self, axes: Axes, labels: tuple[str, ...]) -> tuple[Array, ...]:
        found = []
        for f in (f for axis in axes for f in axis):
            if isinstance(f, Fixed):
                found.append(np.asarray(f.index).reshape([1] * len(labels)))
            else:
                shape = [-1 if x == f else 1 for x in labels]
                found.append(np.arange(self.sizes[f]).reshape(shape))
        return tuple(found)
