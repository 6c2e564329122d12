"""The primitive that stands for a region in a program.

It carries the original and the winner. On the winner's platform it lowers to the
winner, anywhere else to the original, and so where XLA partitions the program over
devices: a kernel is made for whole arrays (under `shard_map`, for a device's part of
them). It is differentiated and transposed as the original, whose own derivative rules
are intact inside; batched, it is a region of its own that is planned again.
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
        ad.Zero(jax.typeof(slope)) if slope.dtype == jax.dtypes.float0 else slope
        for slope in slopes
    ]


ad.primitive_jvps[region_p] = _jvp


def _transpose(
    cotangents: Sequence[Any], *args: Any, jaxpr: Any, outcome: Outcome
) -> list[Any]:
    """The transpose of the original, in its linear arguments."""
    del outcome
    linear = [i for i, a in enumerate(args) if ad.is_undefined_primal(a)]
    function = original(jaxpr)

    def of_linear(*values: Any) -> list[Any]:
        inputs = list(args)
        for i, value in zip(linear, values, strict=True):
            inputs[i] = value
        return function(*inputs)

    avals = [_compat.shape_of(args[i].aval) for i in linear]
    given = [ad.instantiate_zeros(c) for c in cotangents]
    results = dict(
        zip(linear, jax.linear_transpose(of_linear, *avals)(given), strict=True)
    )
    return [results.get(i) for i in range(len(args))]


ad.primitive_transposes[region_p] = _transpose


def _batch(
    args: Sequence[Any], dims: Sequence[Any], *, jaxpr: Any, outcome: Outcome
) -> tuple[list[Any], list[int]]:
    batched = jax.vmap(original(jaxpr), in_axes=tuple(dims))
    wider = jax.make_jaxpr(batched)(*args)
    found = None if outcome.again is None else outcome.again(wider)
    if found is None or found.call is None:
        values = batched(*args)
    else:
        values = region_p.bind(*args, jaxpr=wider, outcome=found)
    return values, [0] * len(values)


batching.primitive_batchers[region_p] = _batch


def _lowering(platform: str | None) -> Callable[..., Any]:
    def rule(ctx: Any, *args: Any, jaxpr: Any, outcome: Outcome) -> Any:
        plain = mlir.lower_fun(original(jaxpr), multiple_results=True)
        if (
            outcome.call is None
            or outcome.platform != platform
            or _compat.is_partitioned(ctx)
        ):
            return plain(ctx, *args)
        try:
            kind = f"NVIDIA {outcome.report.target.upper()}"
            with _compat.absent_device(platform or "", kind):
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
