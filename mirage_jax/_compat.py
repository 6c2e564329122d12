"""What differs between the supported JAX versions, one function per difference.

Supported: jax 0.10.2 to 0.12. Everything else in this package uses names that are
public and alike in all of them; a new version is met by editing this file only.
"""

import contextlib
import inspect
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import jax
import jax.extend.core as jex

# `ClosedJaxpr` is `Jaxpr` from 0.11 on. Neither is subscriptable or generic, so plain
# aliases keep annotations readable.
Jaxpr = jex.Jaxpr
ClosedJaxpr = jex.ClosedJaxpr
JaxprEqn = jex.JaxprEqn
Var = jex.Var
Literal = jex.Literal


def is_literal(atom: object) -> bool:
    """Whether `atom` is a constant written in place."""
    return isinstance(atom, jex.Literal)


def is_drop(var: object) -> bool:
    """Whether `var` binds a result that nobody reads."""
    return isinstance(var, jex.DropVar)


def opened(jaxpr: Any) -> Any:
    """The jaxpr with its constants as variables (0.11 merged open and closed)."""
    return getattr(jaxpr, "jaxpr", jaxpr)


def constants(jaxpr: Any) -> tuple[Any, ...]:
    """The values bound to the constant variables of `jaxpr`."""
    return tuple(getattr(jaxpr, "consts", ()))


def closed(jaxpr: Any, consts: Sequence[Any] = ()) -> Any:
    """`jaxpr` closed over `consts`."""
    return jex.ClosedJaxpr(jaxpr, list(consts))


def with_equations(jaxpr: Any, outvars: Sequence[Any], eqns: Sequence[Any]) -> Any:
    """A copy of an open or closed `jaxpr` with another body of the same type."""
    body = opened(jaxpr).replace(outvars=list(outvars), eqns=list(eqns))
    if opened(jaxpr) is jaxpr and not hasattr(jaxpr, "consts"):
        return body
    return closed(body, constants(jaxpr))


def new_jaxpr(
    invars: Sequence[Any], outvars: Sequence[Any], eqns: Sequence[Any], name: str
) -> Any:
    """A closed jaxpr without constants and effects."""
    info = jex.DebugInfo("mirage_jax", name, None, None)
    body = jex.Jaxpr([], list(invars), list(outvars), list(eqns), jex.no_effects, info)
    return closed(body)


def sub_jaxprs(eqn: Any) -> tuple[Any, ...]:
    """Every jaxpr among the parameters of `eqn`, open or closed."""
    found = []
    for value in eqn.params.values():
        items = value if isinstance(value, (tuple, list)) else (value,)
        found += [v for v in items if isinstance(v, (jex.Jaxpr, jex.ClosedJaxpr))]
    return tuple(found)


def hoisted_constants(traced: Any) -> tuple[Any, ...]:
    """Tracers a jitted function closes over: leading inputs of `traced.jaxpr`.

    `jax.make_jaxpr` reads the same field; there is no public name for it.
    """
    return tuple(getattr(traced, "_consts", ()))


def is_high(jaxpr: Any) -> bool:
    """Whether `jaxpr` has types that are not plain arrays."""
    return bool(getattr(opened(jaxpr), "is_high", False))


def not_specified() -> object:
    """The value `jax.jit` has for its function where it is used as a factory."""
    return inspect.signature(jax.jit).parameters["fun"].default


def jit_parameters() -> dict[str, inspect.Parameter]:
    """The keyword parameters that `jax.jit` of the installed version has."""
    parameters = inspect.signature(jax.jit).parameters.values()
    return {p.name: p for p in parameters if p.kind is p.KEYWORD_ONLY}


def unspecified_sharding() -> object:
    """The value that stands for "no sharding given" in the parameters of a jit."""
    return jit_parameters()["in_shardings"].default


def keeps_call(inline: object) -> bool:
    """Whether a jit's `inline` parameter asks for a call (an enum from 0.11 on)."""
    return getattr(inline, "value", inline) == "xla_late"


def setting(name: str) -> Any:
    """A setting of JAX, as it is in this thread."""
    return getattr(jax.config, name)


def user_context(default: object) -> Callable[[Any], AbstractContextManager[Any]]:
    """A context whose value is part of every `jax.jit` cache key.

    The returned object is called with a value to make the context manager, and has
    the current value in its attribute `value`.
    """
    return jax.make_user_context(default)


def shape_of(aval: Any) -> jax.ShapeDtypeStruct:
    """The shape and dtype of an abstract value, for functions that take arrays."""
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype)


def absent_device(platform: str, kind: str) -> AbstractContextManager[Any]:
    """A context in which kernels can be lowered for a device that is not here.

    From 0.11 on, Pallas asks which GPU it lowers for; where there is none, an abstract
    one of this kind answers. Where there is one, or a mesh is set already, nothing
    changes.
    """
    device = getattr(jax.sharding, "AbstractDevice", None)
    use = getattr(jax.sharding, "use_abstract_mesh", None)
    current = jax.sharding.get_abstract_mesh()
    if platform != "cuda" or device is None or use is None or not current.empty:
        return contextlib.nullcontext()
    try:
        jax.devices(platform)
    except RuntimeError:
        gpu = device(kind, None, platform)
        mesh = jax.sharding.AbstractMesh((1,), ("x",), abstract_device=gpu)
        return use(mesh)
    return contextlib.nullcontext()


def is_partitioned(context: Any) -> bool:
    """Whether XLA divides among devices what is lowered in a lowering rule's `context`.

    Under `shard_map` over all axes of a mesh it does not: shapes there are a device's.
    """
    axes = context.module_context.axis_context
    if hasattr(axes, "manual_axes"):
        whole = frozenset(axes.mesh.axis_names) - axes.manual_axes
        return any(axes.mesh.shape[name] > 1 for name in whole)
    return getattr(axes, "num_devices", 1) > 1
