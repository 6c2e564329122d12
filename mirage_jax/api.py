"""What users call: `jit`, `optimize`, `explain`."""

import contextlib
import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar

import jax

from mirage_jax import _compat, outcomes, sites, substitute
from mirage_jax import config as configuration
from mirage_jax.config import Config
from mirage_jax.report import Report
from mirage_jax.stages import Lowered, Traced, report_of
from mirage_jax.trace import evaluate, name_of, trace, trace_jitted

P = ParamSpec("P")
T = TypeVar("T")

_NOT_SPECIFIED: Any = _compat.not_specified()


def jit(
    fun: Any = _NOT_SPECIFIED, /, *, config: Config | None = None, **options: Any
) -> Any:
    """`jax.jit`, with the tensor algebra of the function superoptimized.

    Works as a function, a decorator, a decorator factory, and on methods.

    Args:
      fun: the function.
      config: how to optimize; see `mirage_jax.Config`.
      **options: every keyword that `jax.jit` of the installed version has.

    Returns:
      A function with the results, errors, signature and stages of `jax.jit(fun)`.

    Example:
      >>> import jax.numpy as jnp
      >>> @jit(config=Config(on_miss="xla"), static_argnames="n")
      ... def scaled(x, n=2):
      ...     return n * x
      >>> scaled(jnp.ones(3), n=4).tolist()
      [4.0, 4.0, 4.0]
    """
    known = _compat.jit_parameters()
    for name in options:
        if name not in known:
            raise TypeError(
                f"mirage_jax.jit has no keyword `{name}`; it has `config` and those of "
                f"jax.jit: {', '.join(known)}."
            )
    if fun is _NOT_SPECIFIED:
        return functools.partial(jit, config=config, **options)
    configuration.resolve(config)
    static = {k: v for k, v in options.items() if k.startswith("static_arg")}
    plain = jax.jit(fun, **static)
    jitted = jax.jit(_jit_body(fun, plain, config), **options)
    _Stages(fun, config, plain, jitted.trace, jitted.clear_cache).attach(jitted)
    return jitted


@dataclass(frozen=True, eq=False)
class _Stages:
    """What a function made by `jit` has besides being called.

    The function itself is one of `jax.jit`, so that a call costs no more; only its
    stages are exchanged, for ones that search late and say what was found.

    Attributes:
      fun: the user's function.
      config: settings given to `jit`.
      plain: the user's function under `jax.jit`.
      optimize: traces the optimized function.
      forget: forgets what was traced and compiled of it.
    """

    fun: Callable[..., Any]
    config: Config | None
    plain: Any
    optimize: Callable[..., Any]
    forget: Callable[[], None]

    def attach(self, jitted: Any) -> None:
        """Gives these stages to the optimized function."""
        jitted.trace = self.trace
        jitted.lower = self.lower
        jitted.eval_shape = self.plain.eval_shape
        jitted.clear_cache = self.clear_cache
        jitted.__wrapped__ = self.fun
        jitted.mirage_stages = self

    def trace(self, *args: Any, **kwargs: Any) -> Traced:
        """Traces for the types of `args`; searches nothing."""
        inner = self.plain.trace(*args, **kwargs)
        config = configuration.resolve(self.config)

        def lower_optimized(**options: Any) -> Any:
            same = configuration.resolve(self.config) == config
            with contextlib.nullcontext() if same else configuration.use(config):
                return self.optimize(*args, **kwargs).lower(**options)

        return Traced(inner, name_of(self.fun), config, lower_optimized)

    def lower(self, *args: Any, **kwargs: Any) -> Lowered:
        """Traces and lowers for the types of `args`; searches nothing."""
        return self.trace(*args, **kwargs).lower()

    def clear_cache(self) -> None:
        """Forgets what was traced and compiled."""
        self.forget()
        self.plain.clear_cache()


def _jit_body(
    fun: Callable[..., Any], plain: Any, config: Config | None
) -> Callable[..., Any]:
    """The function that `jax.jit` traces: `plain` with its regions replaced."""

    def mirage_jit(*args: Any, **kwargs: Any) -> Any:
        if jax.config.jax_disable_jit:
            return fun(*args, **kwargs)
        program = trace_jitted(plain, name_of(fun), args, kwargs)
        result = substitute.optimize_jaxpr(program.jaxpr, configuration.resolve(config))
        if result.jaxpr is program.jaxpr:
            return plain(*args, **kwargs)
        return program.finish(evaluate(result.jaxpr, program.args))

    return _dressed(mirage_jit, fun)


def optimize(fun: Callable[P, T], *, config: Config | None = None) -> Callable[P, T]:
    """`fun` with its tensor algebra superoptimized, and not jitted.

    The transformation that `mirage_jax.jit` is made of, to be used under `jax.jit`,
    `jax.grad`, `jax.vmap`, `jax.lax.scan` and the like. Every call traces `fun` anew.

    Args:
      fun: the function.
      config: how to optimize; see `mirage_jax.Config`.

    Returns:
      A function with the results, errors and signature of `fun`.
    """
    configuration.resolve(config)

    def mirage_optimize(*args: Any, **kwargs: Any) -> Any:
        if jax.config.jax_disable_jit:
            return fun(*args, **kwargs)
        program = trace(fun, args, kwargs)
        if sites.unfit(program.jaxpr) is not None:
            return fun(*args, **kwargs)
        result = substitute.optimize_jaxpr(program.jaxpr, configuration.resolve(config))
        return program.finish(evaluate(result.jaxpr, program.args))

    return _dressed(mirage_optimize, fun)


def explain(
    fun: Callable[..., Any], *args: Any, config: Config | None = None, **kwargs: Any
) -> Report:
    """Optimizes `fun` for the types of `args`, without running it, and reports.

    Args:
      fun: a function, jitted or not.
      *args: its arguments; `jax.ShapeDtypeStruct` will do for arrays.
      config: how to optimize; see `mirage_jax.Config`.
      **kwargs: its keyword arguments.

    Returns:
      What happened to every part of the function.
    """
    stages = getattr(fun, "mirage_stages", None)
    if isinstance(stages, _Stages):
        jaxpr = stages.plain.trace(*args, **kwargs).jaxpr
        config = config or stages.config
    else:
        jaxpr = trace(fun, args, kwargs).jaxpr
    return report_of(name_of(fun), jaxpr, configuration.resolve(config))


def clear_caches() -> None:
    """Forgets every outcome of this process; stored winners stay stored."""
    outcomes.forget()
    sites.forget()


def _dressed(wrapper: Callable[..., Any], fun: Callable[..., Any]) -> Callable[..., T]:
    """Gives `wrapper` the name and the signature of `fun`, which may have neither."""
    wrapper.__name__ = wrapper.__qualname__ = name_of(fun)
    updated = ("__dict__",) if inspect.isfunction(fun) else ()
    return functools.update_wrapper(wrapper, fun, updated=updated)
