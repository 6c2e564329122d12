"""The numerics guard: emitted code against the program, in floating point.

Equality over the fields says nothing of rounding, overflow or cancellation. Here the
code is run on several distributions of inputs, in the program's own dtypes, and its
error against float64 must not exceed a small multiple of that of the program as
written. A NaN or an infinity where the program as written has none is a rejection.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import jax.numpy as jnp
import numpy as np

from ugraph.program import Program, Tensor
from verify.numbers import DTYPES, Array, emulate, reference

Run: TypeAlias = Callable[[list[Array]], Sequence[Array]]
Maker: TypeAlias = Callable[[Tensor, np.random.Generator], Array]

Measures: TypeAlias = tuple[float, float, float]

MEASURES = ("norm", "quantile", "maximum")
QUANTILE = 0.999
NOISY = 2
SLACK_ULPS = 4.0
LARGE = 30.0
OFFSET = 1000.0
UNMASKED = 0.7


def _normal(t: Tensor, rng: np.random.Generator) -> Array:
    return rng.standard_normal(t.shape)


def _wide(t: Tensor, rng: np.random.Generator) -> Array:
    return rng.standard_normal(t.shape) * 10 ** rng.uniform(-2, 2, t.shape)


def _constant(t: Tensor, rng: np.random.Generator) -> Array:
    rows = rng.standard_normal((*t.shape[:-1], 1) if t.shape else ())
    return np.broadcast_to(rows, t.shape)


DISTRIBUTIONS: Mapping[str, Maker] = {
    "normal": _normal,
    "large": lambda t, rng: LARGE * _normal(t, rng),
    "tiny": lambda t, rng: 1e-3 * _normal(t, rng),
    "wide": _wide,
    "constant rows": _constant,
    "offset": lambda t, rng: OFFSET * (t.dtype == "f32") + _normal(t, rng),
}
MASKED = "masked rows"


@dataclass(frozen=True, slots=True)
class Errors:
    """Errors on one distribution: of the program as written, and of the winner.

    Each is the worst over outputs of: the norm, the quantile and the maximum of the
    error relative to the scale of its row.
    """

    distribution: str
    original: Measures
    winner: Measures


@dataclass(frozen=True, slots=True)
class NumericVerdict:
    """Whether code is as accurate as the program it replaces.

    Attributes:
      ok: on every distribution.
      reason: why not; empty when ok.
      errors: for each distribution that was run.
      factor: by which the winner's error may exceed the original's.
    """

    ok: bool
    reason: str
    errors: tuple[Errors, ...]
    factor: float

    def summary(self) -> dict[str, Any]:
        """As JSON data: per distribution the norms of the errors against float64."""
        return {
            e.distribution: {
                "original": e.original[0],
                "winner": e.winner[0],
                "original_max": e.original[2],
                "winner_max": e.winner[2],
            }
            for e in self.errors
        }


def inputs_for(program: Program, distribution: str, seed: int) -> list[Array]:
    """Inputs drawn from a distribution, in the program's dtypes."""
    found = []
    make = DISTRIBUTIONS.get(distribution, _normal)
    for number, t in enumerate(program.inputs):
        rng = np.random.default_rng([seed, number])
        if t.dtype == "bool":
            value = rng.random(t.shape) < UNMASKED
            if distribution == MASKED and t.shape:
                value[..., :1, :] = False
        elif t.dtype == "i32":
            value = rng.integers(0, 2, t.shape)
        else:
            value = make(t, rng)
        found.append(np.asarray(value).astype(DTYPES[t.dtype]))
    return found


def distributions(program: Program) -> tuple[str, ...]:
    """The distributions that are meaningful for a program's dtypes."""
    dtypes = {t.dtype for t in program.inputs}
    names = [n for n in DISTRIBUTIONS if n != "offset" or "f32" in dtypes]
    masks = any(t.dtype == "bool" and len(t.shape) > 1 for t in program.inputs)
    return (*names, MASKED) if masks else tuple(names)


def guard(
    program: Program,
    sizes: Mapping[str, int],
    run: Run,
    factor: float = 4.0,
    *,
    seed: int = 0,
) -> NumericVerdict:
    """Whether `run` is about as accurate as the program as written.

    Args:
      program: at the extents of `run`.
      sizes: label to extent.
      run: the emitted code, from a list of inputs to a list of outputs.
      factor: by which its error may exceed that of the program as written.
      seed: where the inputs come from.
    """
    errors: list[Errors] = []
    for name in distributions(program):
        inputs = inputs_for(program, name, seed)
        exact = reference(program, inputs, sizes)
        written = emulate(program, inputs, sizes)
        others = [emulate(program, inputs, sizes, noise=n) for n in range(NOISY)]
        got = [np.asarray(o) for o in run(list(inputs))]
        reason = _shapes(program, got)
        if not reason:
            reason, found = _judged(
                program, name, exact, (written, *others), got, factor
            )
            errors.append(found)
        if reason:
            return NumericVerdict(False, f"{name}: {reason}", tuple(errors), factor)
    return NumericVerdict(True, "", tuple(errors), factor)


def _shapes(program: Program, got: Sequence[Array]) -> str:
    if len(got) != len(program.outputs):
        return f"{len(got)} outputs, not {len(program.outputs)}"
    for store, value in zip(program.outputs, got, strict=True):
        t = store.tensor
        if value.shape != t.shape or value.dtype != DTYPES[t.dtype]:
            return f"`{t.name}` is {value.dtype}{list(value.shape)}, not {t}"
    return ""


def _judged(
    program: Program,
    name: str,
    exact: Sequence[Array],
    written: tuple[Sequence[Array], ...],
    got: Sequence[Array],
    factor: float,
) -> tuple[str, Errors]:
    worst = [(0.0, 0.0, 0.0), (0.0, 0.0, 0.0)]
    reason = ""
    for i, store in enumerate(program.outputs):
        tensor, ours, value = store.tensor, [w[i] for w in written], got[i]
        ok = np.isfinite(exact[i])
        for o in ours:
            ok &= np.isfinite(o.astype(np.float64))
        broken = ok & ~np.isfinite(value.astype(np.float64))
        if broken.any():
            where = [int(i) for i in np.argwhere(broken)[0]]
            reason = reason or (
                f"`{tensor.name}`{where} is {value[broken][0]}, where the program as "
                f"written gives {ours[0][broken][0]} ({broken.mean():.1%} of elements)"
            )
            continue
        own, theirs = _errors(exact[i], ours, value, ok)
        worst = [_worse(a, b) for a, b in zip(worst, (own, theirs), strict=True)]
        slack = SLACK_ULPS * _ulp(tensor.dtype)
        for what, a, b in zip(MEASURES, own, theirs, strict=True):
            if not b <= factor * a + slack:
                reason = reason or (
                    f"the {what} of the error of `{tensor.name}` is {b:.3g}, more than "
                    f"{factor:g} times the original's {a:.3g}"
                )
    return reason, Errors(name, worst[0], worst[1])  # pyrefly: ignore


def _worse(a: Measures, b: Measures) -> Measures:
    return max(a[0], b[0]), max(a[1], b[1]), max(a[2], b[2])


def _ulp(dtype: str) -> float:
    return 1e-3 if dtype in ("bool", "i32") else float(jnp.finfo(DTYPES[dtype]).eps)


def _errors(
    exact: Array, written: Sequence[Array], got: Array, ok: Array
) -> tuple[Measures, Measures]:
    """Norm, quantile and maximum of the errors of both, relative to their rows."""
    if not ok.any():
        return (0.0, 0.0, 0.0), (0.0, 0.0, 0.0)
    exact = np.where(ok, exact, 0).astype(np.float64)

    def error(value: Array) -> Array:
        return np.where(
            ok, np.abs(np.where(ok, value, 0).astype(np.float64) - exact), 0
        )

    own = np.max([error(w) for w in written], axis=0)
    axis = -1 if exact.ndim else None
    norm = float(np.sqrt(np.mean(exact[ok] ** 2)))
    row = np.sqrt(np.mean(exact**2, axis=axis, keepdims=True))
    row = row + np.max(own, axis=axis, keepdims=True) + 1e-6 * norm + 1e-30
    floor = max(norm, float(np.max(own)), 1e-30)

    def measures(e: Array) -> Measures:
        relative = (e / row)[ok]
        return (
            float(np.sqrt(np.mean(e[ok] ** 2)) / floor),
            float(np.quantile(relative, QUANTILE)),
            float(relative.max()),
        )

    return measures(own), measures(error(got))
