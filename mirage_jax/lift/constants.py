"""Numbers known while lifting: decoding literals and folding what is made of them.

A floating-point constant is an exact `Fraction` of the value as stored, or a float
where it is infinite or NaN. Folding is exact: nothing is rounded, so a folded constant
is at least as near to the mathematics as what the program would have computed.
"""

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import TypeAlias

import jax.numpy as jnp
import numpy as np

Scalar: TypeAlias = Fraction | float | int | bool

FLOATS = frozenset({"bf16", "f16", "f32"})
INT32 = range(-(2**31), 2**31)
_NUMPY: Mapping[str, np.dtype] = {
    "bf16": np.dtype(jnp.bfloat16),
    "f16": np.dtype(np.float16),
    "f32": np.dtype(np.float32),
}


def decode(number: object, dtype: str) -> Scalar | None:
    """A literal's value as stored in its dtype.

    None when the IR cannot hold it: another dtype, or a negative zero.
    """
    item = np.asarray(number).reshape(()).item()
    if dtype == "bool":
        return bool(item)
    if dtype == "i32":
        return int(item)
    return _stored(float(item), dtype) if dtype in FLOATS else None


def _stored(number: float, dtype: str) -> Fraction | float | None:
    with np.errstate(over="ignore"):
        number = float(np.asarray(number).astype(_NUMPY[dtype]))
    if number == 0 and math.copysign(1, number) < 0:
        return None
    return Fraction(number) if math.isfinite(number) else number


def _convert(x: Scalar, dtype: str) -> Scalar | None:
    if dtype in FLOATS:
        return _stored(float(x), dtype)
    if dtype == "bool":
        return bool(x)
    whole = isinstance(x, int) or (isinstance(x, Fraction) and x.denominator == 1)
    return int(x) if dtype == "i32" and whole else None


_ARITHMETIC: Mapping[str, Callable[..., Scalar]] = {
    "add": operator.add,
    "add_any": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "neg": operator.neg,
    "square": lambda x: x * x,
}
_ANY: Mapping[str, Callable[..., Scalar]] = {
    "max": max,
    "min": min,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "eq": operator.eq,
    "ne": operator.ne,
}
_BOOLEAN: Mapping[str, Callable[..., Scalar]] = {
    "and": operator.and_,
    "or": operator.or_,
    "not": operator.not_,
}
_SAME = frozenset(
    {
        "broadcast_in_dim",
        "reshape",
        "squeeze",
        "transpose",
        "expand_dims",
        "rev",
        "stop_gradient",
        "copy",
        "copy_p",
        "name",
    }
)


def fold(
    primitive: str, args: Sequence[Scalar | None], dtype: str, params: Mapping
) -> Scalar | None:
    """What `primitive` makes of constants everywhere; None when that is not folded."""
    number = _folded(primitive, [a for a in args if a is not None], dtype, params)
    if dtype == "i32" and number is not None and number not in INT32:
        return None
    return number


def _folded(
    primitive: str, args: Sequence[Scalar], dtype: str, params: Mapping
) -> Scalar | None:
    if primitive in _SAME:
        return args[0]
    if primitive == "convert_element_type":
        return _convert(args[0], dtype)
    if primitive in _BOOLEAN and dtype == "bool":
        return _BOOLEAN[primitive](*args)
    if primitive in _ANY and not any(map(math.isnan, args)):
        return _ANY[primitive](*args)
    exact = not any(isinstance(a, float | bool) for a in args)
    return _exact(primitive, args, dtype, params) if exact else None


def _exact(
    primitive: str, args: Sequence[Scalar], dtype: str, params: Mapping
) -> Scalar | None:
    """Arithmetic on fractions and integers."""
    if primitive in _ARITHMETIC:
        return _ARITHMETIC[primitive](*args)
    if primitive == "integer_pow" and args[0] and abs(params["y"]) <= 16:
        return args[0] ** params["y"] if dtype in FLOATS else None
    if primitive == "div" and dtype in FLOATS and args[1]:
        return args[0] / args[1]  # pyrefly: ignore
    return None
