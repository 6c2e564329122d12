"""The primitive that stands for a region in a program.

It carries the original and the winner. On the winner's platform it lowers to the winner,
anywhere else to the original; it is differentiated and batched as the original, whose own
derivative rules are intact inside. None of these rules calls the pipeline.
"""

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.extend.core as jex
from jax.interpreters import ad, batching, mlir

from mirage_jax import _compat
from mirage_jax.errors import MirageWarning
from mirage_jax.report import Outcome

region_p = jex.Primitive("mirage_region")
region_p.multiple_results = True

PLATFORMS = ("cpu", "cuda")


def original(jaxpr: Any) -> Callable[..., list[Any]]:
    """The function that a region's jaxpr was made from, on flat arguments."""

    def mirage_original(*args: Any) -> list[Any]:
        return jax.core.eval_jaxpr(
            _compat.opened(jaxpr), _compat.constants(jaxpr), *args
        )

    return mirage_original


def _bind(*args: Any, jaxpr: Any, outcome: Outcome) -> list[Any]:
    return region_p.bind(*args, jaxpr=jaxpr, outcome=outcome)


_jitted = jax.jit(_bind, static_argnames=("jaxpr", "outcome"))


@region_p.def_impl
def _impl(*args: Any, jaxpr: Any, outcome: Outcome) -> list[Any]:
    return _jitted(*args, jaxpr=jaxpr, outcome=outcome)


@region_p.def_abstract_eval
def _abstract_eval(*avals: Any, jaxpr: Any, outcome: Outcome) -> Sequence[Any]:
    del avals, outcome
    return jaxpr.out_avals


def _jvp(
    primals: Sequence[Any], tangents: Sequence[Any], *, jaxpr: Any, outcome: Outcome
) -> tuple[list[Any], list[Any]]:
    """The winner's values and the original's tangents."""
    moving = [i for i, t in enumerate(tangents) if not isinstance(t, ad.Zero)]
    function = original(jaxpr)

    def of_moving(*args: Any) -> list[Any]:
        inputs = list(primals)
        for i, arg in zip(moving, args, strict=True):
            inputs[i] = arg
        return function(*inputs)

    _, slopes = jax.jvp(
        of_moving, [primals[i] for i in moving], [tangents[i] for i in moving]
    )
    values = region_p.bind(*primals, jaxpr=jaxpr, outcome=outcome)
    return values, [
        ad.Zero.from_primal_value(value) if slope.dtype == jax.dtypes.float0 else slope
        for value, slope in zip(values, slopes, strict=True)
    ]


ad.primitive_jvps[region_p] = _jvp


def _batch(
    args: Sequence[Any], dims: Sequence[Any], *, jaxpr: Any, outcome: Outcome
) -> tuple[list[Any], list[int]]:
    del outcome
    values = jax.vmap(original(jaxpr), in_axes=tuple(dims))(*args)
    return values, [0] * len(values)


batching.primitive_batchers[region_p] = _batch


def _lowering(platform: str | None) -> Callable[..., Any]:
    def rule(ctx: Any, *args: Any, jaxpr: Any, outcome: Outcome) -> Any:
        plain = mlir.lower_fun(original(jaxpr), multiple_results=True)
        if outcome.call is None or outcome.platform != platform:
            return plain(ctx, *args)
        try:
            return mlir.lower_fun(outcome.call, multiple_results=True)(ctx, *args)
        except Exception as error:
            warnings.warn(
                f"the kernel of region {outcome.region_key} does not lower here; "
                f"the original runs instead: {type(error).__name__}: {error}",
                MirageWarning,
                stacklevel=2,
            )
            return plain(ctx, *args)

    return rule


mlir.register_lowering(region_p, _lowering(None))
for _platform in PLATFORMS:
    mlir.register_lowering(region_p, _lowering(_platform), platform=_platform)
