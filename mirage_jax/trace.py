"""Trace: a function and its arguments → a jaxpr, and the way back to the trees."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax import tree_util

from mirage_jax import _compat


@dataclass(frozen=True)
class Program:
    """A traced call.

    Attributes:
      name: of the function.
      jaxpr: the closed jaxpr.
      args: the values of its inputs.
      finish: makes the function's result of the jaxpr's.
    """

    name: str
    jaxpr: Any
    args: tuple[Any, ...]
    finish: Callable[[Sequence[Any]], Any]


def name_of(function: object) -> str:
    """What to call a function; not every callable has a name."""
    name = getattr(function, "__name__", None)
    return name if isinstance(name, str) else type(function).__name__


def trace(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Program:
    """Traces a call of `function` on arrays or tracers.

    Only arrays are abstracted: Python numbers, strings and whatever else is in the
    trees are given to the function as they are, and given back as they are. Each call
    traces anew, inside the trace it is in: axis names are in scope.
    """
    leaves, in_tree = tree_util.tree_flatten((tuple(args), dict(kwargs)))
    places = [i for i, leaf in enumerate(leaves) if _is_array(leaf)]
    result: dict[str, Any] = {}

    def flat_function(*arrays: Any) -> list[Any]:
        filled = list(leaves)
        for i, array in zip(places, arrays, strict=True):
            filled[i] = array
        call_args, call_kwargs = tree_util.tree_unflatten(in_tree, filled)
        outputs, result["tree"] = tree_util.tree_flatten(
            function(*call_args, **call_kwargs)
        )
        result["leaves"] = [None if _is_array(x) else x for x in outputs]
        return [x for x in outputs if _is_array(x)]

    arrays = tuple(leaves[i] for i in places)
    name = name_of(function)
    flat_function.__name__ = flat_function.__qualname__ = name
    jaxpr = jax.make_jaxpr(flat_function)(*arrays)

    def finish(values: Sequence[Any]) -> Any:
        rest = iter(values)
        filled = [next(rest) if x is None else x for x in result["leaves"]]
        return tree_util.tree_unflatten(result["tree"], filled)

    return Program(name, jaxpr, arrays, finish)


def trace_jitted(
    jitted: Any, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Program:
    """Traces a call of a jitted function through JAX's own trace cache.

    To be called under a trace: what is a tracer is an input, all else is static.
    """
    traced = jitted.trace(*args, **kwargs)
    leaves = tree_util.tree_leaves((tuple(args), dict(kwargs)))
    arrays = tuple(x for x in leaves if isinstance(x, jax.core.Tracer))
    inputs = (*_compat.hoisted_constants(traced), *arrays)

    def finish(values: Sequence[Any]) -> Any:
        return tree_util.tree_unflatten(traced.out_tree, values)

    return Program(name, traced.jaxpr, inputs, finish)


def evaluate(jaxpr: Any, args: Sequence[Any]) -> list[Any]:
    """Evaluates a closed jaxpr equation by equation, each in its own context."""
    return jax.core.eval_jaxpr(_compat.opened(jaxpr), _compat.constants(jaxpr), *args)


def _is_array(leaf: object) -> bool:
    kinds = (jax.Array, np.ndarray, jax.core.Tracer, jax.ShapeDtypeStruct)
    return isinstance(leaf, kinds)
