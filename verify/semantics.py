"""The meaning of every op over the finite fields: a table keyed by `Op.field`.

A float is residues mod P and mod Q with marks for what no residue can say: infinities
(`inf`, as -1 and 1) and undefined values (`bad`: 1/0, inf - inf, 0·inf). Integers and
booleans that come from positions are concrete. Casts between floats are the identity.

* `exp` takes the residue mod Q to one mod P; what it yields has no residue mod Q. A
  second exponential on a path is a function like any other, hence opaque.
* An opaque op is a random function of its operands' values: the same in both programs,
  unrelated to everything else. So are roots (whose whole powers are exact) and
  comparisons of floats.
* `max` and `min` choose by one random total order of all values, -inf first and +inf
  last: any identity that holds of every total order holds of it.

The first axis of every array is the trial (or of size one: the same in all trials).
"""

from collections.abc import Callable
from fractions import Fraction
from typing import TypeAlias

import numpy as np

from ugraph.ops import OPS, Kind
from ugraph.terms import Attr, Term
from verify import field as ff
from verify.field import Array, P, Q
from verify.values import (
    Float,
    Interpretation,
    UnsupportedError,
    Value,
    any_of,
    bad_of,
    infinite,
)


def literal(value: Fraction | float) -> Float:
    """A literal, exact in both fields; of an infinity, the mark."""
    if isinstance(value, float):
        mark = np.full(1, 1 if value > 0 else -1, np.int8)
        zero = np.zeros(1, np.uint64)
        return Float(zero, zero, mark, None, 1 if value > 0 else -1)
    residues = []
    for modulus in (P, Q):
        try:
            n = ff.rational(value.numerator, value.denominator, modulus)
        except ZeroDivisionError as error:
            raise UnsupportedError(f"literal {value}: {error}") from error
        residues.append(np.full(1, n, np.uint64))
    sign = (value > 0) - (value < 0)
    return Float(residues[0], residues[1], None, None, sign)


def from_integer(value: Array) -> Float:
    """Concrete integers or booleans as floats."""
    value = value.astype(np.int64)
    return Float(np.mod(value, P).astype(np.uint64), np.mod(value, Q).astype(np.uint64))


def sums(values: tuple[Value, ...]) -> Value:
    """The sum of the operands."""
    if not isinstance(values[0], Float):
        return sum(values[1:], values[0])  # pyrefly: ignore
    result = values[0]
    for v in values[1:]:
        assert isinstance(v, Float)
        both = result.q is not None and v.q is not None
        result = Float(
            ff.add(result.p, v.p, P),
            ff.add(result.q, v.q, Q) if both else None,  # pyrefly: ignore
            *_infinite_sum(result, v),
        )
    return result


def _infinite_sum(x: Float, y: Float) -> tuple[Array | None, Array | None]:
    bad = any_of(x.bad, y.bad)
    if x.inf is None and y.inf is None:
        return None, bad
    a, b = infinite(x), infinite(y)
    return np.where(a == 0, b, a), any_of(bad, a * b < 0)


def products(values: tuple[Value, ...]) -> Value:
    """The product of the operands."""
    if not isinstance(values[0], Float):
        result = values[0]
        for v in values[1:]:
            result = result * v  # pyrefly: ignore
        return result
    floats = [v for v in values if isinstance(v, Float)]
    p = floats[0].p
    for v in floats[1:]:
        p = ff.mul(p, v.p, P)
    q = floats[0].q
    for v in floats[1:]:
        q = None if q is None or v.q is None else ff.mul(q, v.q, Q)
    return Float(p, q, *_infinite_product(floats))


def _infinite_product(values: list[Float]) -> tuple[Array | None, Array | None]:
    """Signs multiply; an infinity times what has no known sign is undefined."""
    bad = bad_of(*values)
    if all(v.inf is None for v in values):
        return None, bad
    sign, known, anywhere = np.int8(1), np.bool_(True), np.bool_(False)
    for v in values:
        marks = infinite(v)
        own = np.int8(v.sign or 0)
        sign = sign * np.where(marks != 0, marks, own)
        known = known & ((marks != 0) | (own != 0))
        anywhere = anywhere | (marks != 0)
    return np.where(anywhere, sign, 0).astype(np.int8), any_of(
        bad, np.asarray(anywhere & ~known)
    )


def power(x: Float, exponent: Fraction, how: Interpretation) -> Float:
    """X to a rational power; of a root only that it is a function of x is known."""
    if exponent.denominator != 1:
        x = how.function(f"root {exponent.denominator}", x)
    whole = exponent.numerator
    p = ff.power(x.p, whole, P)
    q = None if x.q is None else ff.power(x.q, whole, Q)
    if x.inf is None:
        return Float(p, q, None, any_of(x.bad, _is_zero(x)) if whole < 0 else x.bad)
    far = x.inf != 0
    if whole > 0:
        return Float(p, q, None, any_of(x.bad, far))
    p = np.where(far, np.uint64(0), p)
    q = None if q is None else np.where(far, np.uint64(0), q)
    return Float(p, q, None, any_of(x.bad, _is_zero(x) & ~far))


def _is_zero(x: Float) -> Array:
    return x.p == 0 if x.q is None else (x.p == 0) | (x.q == 0)


def exponential(x: Float, how: Interpretation, name: str = "exp") -> Float:
    """exp(x); exp(-inf) = 0 and exp(inf) = inf."""
    if x.q is None or name in how.blind:
        how.opaque[_opaque_name(name, how)] = None
        result = how.function(name, Float(x.p, None, None, x.bad))
    else:
        result = Float(ff.root_power(how.roots, x.q), None, None, x.bad)
    if x.inf is None:
        return result
    p = np.where(x.inf != 0, np.uint64(0), result.p)
    q = None if result.q is None else np.where(x.inf != 0, np.uint64(0), result.q)
    return Float(p, q, np.where(x.inf > 0, 1, 0).astype(np.int8), x.bad)


def _opaque_name(name: str, how: Interpretation) -> str:
    return name if name in how.blind else f"{name} of an exponential"


def logistic(x: Float, how: Interpretation) -> Float:
    """1 / (1 + exp(-x))."""
    if x.q is None or "logistic" in how.blind:
        how.opaque[_opaque_name("logistic", how)] = None
        return how.function("logistic", x)
    e = exponential(_product(literal(Fraction(-1)), x), how)
    return power(_sum(literal(Fraction(1)), e), Fraction(-1), how)


def tanh(x: Float, how: Interpretation) -> Float:
    """(exp(2x) - 1) / (exp(2x) + 1)."""
    if x.q is None or x.inf is not None or "tanh" in how.blind:
        how.opaque["tanh"] = None
        return how.function("tanh", x)
    e = exponential(_product(literal(Fraction(2)), x), how)
    one, minus = literal(Fraction(1)), literal(Fraction(-1))
    return _product(_sum(e, minus), power(_sum(e, one), Fraction(-1), how))


def _sum(*values: Float) -> Float:
    result = sums(tuple(_aligned(values)))
    assert isinstance(result, Float)
    return result


def _product(*values: Float) -> Float:
    result = products(tuple(_aligned(values)))
    assert isinstance(result, Float)
    return result


def _aligned(values: tuple[Float, ...]) -> list[Float]:
    """Literals with as many axes as the other operands."""
    rank = max(v.p.ndim for v in values)
    return [_of_rank(v, rank) for v in values]


def _of_rank(value: Float, rank: int) -> Float:
    if value.p.ndim == rank:
        return value
    shape = (1,) * rank
    moved = value.move(lambda x: x.reshape(shape))
    return Float(*moved.parts(), value.sign)  # pyrefly: ignore


def order(x: Float, how: Interpretation) -> Array:
    """The place of every element in the random total order of all values."""
    place = (how.hash("order", Float(x.p, None)) >> np.uint64(1)) + np.uint64(1)
    if x.inf is None:
        return place
    last = np.uint64((1 << 64) - 1)
    place = np.where(x.inf < 0, np.uint64(0), place)
    return np.where(x.inf > 0, last, place)


def extreme(x: Value, y: Value, how: Interpretation, largest: bool) -> Value:
    """The larger, or the smaller, of two values."""
    if not isinstance(x, Float) or not isinstance(y, Float):
        return np.maximum(x, y) if largest else np.minimum(x, y)  # pyrefly: ignore
    a, b = order(x, how), order(y, how)
    chosen = choose(a >= b if largest else a <= b, x, y)
    assert isinstance(chosen, Float)
    return Float(chosen.p, chosen.q, chosen.inf, bad_of(x, y))


def choose(condition: Array, x: Value, y: Value) -> Value:
    """X where the condition holds, else y; what is not chosen may be undefined."""
    if not isinstance(x, Float) or not isinstance(y, Float):
        return np.where(condition, x, y)  # pyrefly: ignore
    both = x.q is not None and y.q is not None
    marks = []
    for a, b in ((x.inf, y.inf), (x.bad, y.bad)):
        if a is None and b is None:
            marks.append(None)
            continue
        zero = np.zeros((1,) * condition.ndim, np.int8 if a is x.inf else np.bool_)
        marks.append(
            np.where(condition, zero if a is None else a, zero if b is None else b)
        )
    return Float(
        np.where(condition, x.p, y.p),
        np.where(condition, x.q, y.q) if both else None,  # pyrefly: ignore
        *marks,
    )


def finite(x: Value) -> Value:
    """X where it is not -inf, else zero."""
    if not isinstance(x, Float) or x.inf is None:
        return x
    low = x.inf < 0
    q = None if x.q is None else np.where(low, np.uint64(0), x.q)
    inf = np.where(low, 0, x.inf).astype(np.int8)
    return Float(np.where(low, np.uint64(0), x.p), q, inf, x.bad)


_CONCRETE: dict[str, Callable[[Array, Array], Array]] = {
    "lt": np.less,
    "le": np.less_equal,
    "eq": np.equal,
    "ne": np.not_equal,
}
_MIRRORED = {"gt": "lt", "ge": "le"}


def compare(name: str, x: Value, y: Value, how: Interpretation) -> Array:
    """A comparison: concrete of integers, else a random relation."""
    if name in _MIRRORED:
        name, x, y = _MIRRORED[name], y, x
    if not isinstance(x, Float) and not isinstance(y, Float):
        return _CONCRETE[name](x, y)
    how.opaque["comparison of floats"] = None
    symmetric = name in ("eq", "ne")
    bits = how.hash("eq" if symmetric else name, x, y, symmetric=symmetric)
    return (bits & np.uint64(1) == 1) ^ (name == "ne")


def fold(name: str, x: Value, axes: tuple[int, ...], how: Interpretation) -> Value:
    """A reduction over `axes`."""
    if not isinstance(x, Float):
        folds = {"sum": np.sum, "max": np.max, "min": np.min}
        return folds[name](x, axis=axes)
    if name == "sum":
        return _fold_sum(x, axes)
    if name in ("max", "min"):
        return _fold_extreme(x, axes, how, name == "max")
    how.opaque[name] = None
    with np.errstate(over="ignore"):
        bits = ff.mix(how.hash(name, x).sum(axis=axes), 5)
    bad = None if x.bad is None else _anywhere(x.bad, x, axes)
    return Float(bits % P, ff.mix(bits, 3) % Q, None, bad)


def _fold_sum(x: Float, axes: tuple[int, ...]) -> Float:
    q = None if x.q is None else ff.total(x.q, axes, Q)
    bad = None if x.bad is None else _anywhere(x.bad, x, axes)
    if x.inf is None:
        return Float(ff.total(x.p, axes, P), q, None, bad)
    low, high = (_anywhere(m, x, axes) for m in (x.inf < 0, x.inf > 0))
    inf = np.asarray(high.astype(np.int8) - low.astype(np.int8))
    return Float(ff.total(x.p, axes, P), q, inf, any_of(bad, np.asarray(low & high)))


def _anywhere(mark: Array, x: Float, axes: tuple[int, ...]) -> Array:
    return np.asarray(np.broadcast_to(mark, x.p.shape).any(axis=axes))


def _fold_extreme(
    x: Float, axes: tuple[int, ...], how: Interpretation, largest: bool
) -> Float:
    shape = x.p.shape
    kept = [i for i in range(len(shape)) if i not in axes]

    def flat(part: Array) -> Array:
        moved = np.broadcast_to(part, shape).transpose(*kept, *axes)
        return moved.reshape((*(shape[i] for i in kept), -1))

    place = flat(order(x, how))
    at = (place.argmax(axis=-1) if largest else place.argmin(axis=-1))[..., None]
    chosen = x.move(lambda part: np.take_along_axis(flat(part), at, -1)[..., 0])
    bad = None if x.bad is None else _anywhere(x.bad, x, axes)
    return Float(chosen.p, chosen.q, chosen.inf, bad)


Meaning: TypeAlias = Callable[[tuple[Value, ...], Attr, Interpretation], Value]


def _comparison(name: str) -> Meaning:
    return lambda a, _, how: compare(name, a[0], a[1], how)


def _logic(name: str, of: Callable[..., Array]) -> tuple[str, Meaning]:
    return name, lambda a, _, __: of(*a)


MEANINGS: dict[str, Meaning] = {
    "lit": lambda _, attr, __: literal(attr),  # pyrefly: ignore
    "int": lambda _, attr, __: np.full(1, attr, np.int64),  # pyrefly: ignore
    "add": lambda a, _, __: sums(a),
    "mul": lambda a, _, __: products(a),
    "pow": lambda a, attr, how: power(a[0], attr, how),  # pyrefly: ignore
    "exp": lambda a, _, how: exponential(a[0], how),  # pyrefly: ignore
    "logistic": lambda a, _, how: logistic(a[0], how),  # pyrefly: ignore
    "tanh": lambda a, _, how: tanh(a[0], how),  # pyrefly: ignore
    "max": lambda a, _, how: extreme(a[0], a[1], how, largest=True),
    "min": lambda a, _, how: extreme(a[0], a[1], how, largest=False),
    "finite": lambda a, _, __: finite(a[0]),
    "to_float": lambda a, _, __: (
        a[0] if isinstance(a[0], Float) else from_integer(a[0])
    ),
    "select": lambda a, _, __: choose(a[0], a[1], a[2]),  # pyrefly: ignore
    **{name: _comparison(name) for name in ("lt", "le", "gt", "ge", "eq", "ne")},
    **dict((_logic("and", np.logical_and), _logic("or", np.logical_or))),
    **dict((_logic("not", np.logical_not),)),
}
"""Elementwise meanings. Leaves that need a place (`input`, `iota`, `extent`, `ref`) are
those of `verify.evaluate`; a field name that is not here is an error, except
`opaque`."""


def apply(term: Term, values: tuple[Value, ...], how: Interpretation) -> Value:
    """The meaning of an elementwise op, its operands' axes aligned.

    Raises:
      UnsupportedError: when the op table names a meaning that does not exist.
    """
    row = OPS[term.op]
    if row.field in MEANINGS and row.kind is not Kind.REDUCE:
        return MEANINGS[row.field](values, term.attr, how)
    if row.field != "opaque":
        raise UnsupportedError(f"op `{term.op}` has no meaning called `{row.field}`")
    how.opaque[term.op] = None
    name = term.op if term.attr is None else f"{term.op} {term.attr!r}"
    if row.yields == "bool":
        bits = how.hash(name, *values, symmetric=row.commutative)
        return bits & np.uint64(1) == 1
    return how.function(name, *values, symmetric=row.commutative)
