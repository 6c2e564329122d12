"""What users call: `jit`, `optimize`, `explain`."""

import contextlib
import functools
import inspect
import operator
import types
from collections.abc import Callable
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
    return Jitted(fun, config, options)


class Jitted:
    """A function made by `mirage_jax.jit`; it has all that a jitted function has."""

    # In slots, because whoever wraps the function copies its `__dict__`.
    __slots__ = ("__dict__", "__weakref__", "_config", "_jitted", "_plain")

    # No method: a call goes straight to the function of `jax.jit`, and costs no more.
    __call__ = property(operator.attrgetter("_jitted"))

    def __init__(
        self, fun: Callable[..., Any], config: Config | None, options: dict[str, Any]
    ) -> None:
        static = {k: v for k, v in options.items() if k.startswith("static_arg")}
        self._config = config
        self._plain: Any = jax.jit(fun, **static)
        self._jitted: Any = jax.jit(_jit_body(fun, self._plain, config), **options)
        functools.update_wrapper(self, fun, updated=())

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        """Binds the function as a method."""
        return self if instance is None else types.MethodType(self, instance)

    def trace(self, *args: Any, **kwargs: Any) -> Traced:
        """Traces for the types of `args`; searches nothing."""
        inner = self._plain.trace(*args, **kwargs)
        config = configuration.resolve(self._config)

        def lower_optimized(**options: Any) -> Any:
            same = configuration.resolve(self._config) == config
            with contextlib.nullcontext() if same else configuration.use(config):
                return self._jitted.trace(*args, **kwargs).lower(**options)

        return Traced(inner, name_of(self.__wrapped__), config, lower_optimized)

    def lower(self, *args: Any, **kwargs: Any) -> Lowered:
        """Traces and lowers for the types of `args`; searches nothing."""
        return self.trace(*args, **kwargs).lower()

    def eval_shape(self, *args: Any, **kwargs: Any) -> Any:
        """Types of the result for the types of `args`; searches nothing."""
        return self._plain.eval_shape(*args, **kwargs)

    def report(self, *args: Any, config: Config | None = None, **kwargs: Any) -> Report:
        """What happens to every part of the function for the types of `args`."""
        jaxpr = self._plain.trace(*args, **kwargs).jaxpr
        settings = configuration.resolve(config or self._config)
        return report_of(name_of(self.__wrapped__), jaxpr, settings)

    def clear_cache(self) -> None:
        """Forgets what was traced and compiled."""
        self._jitted.clear_cache()
        self._plain.clear_cache()

    def __getattr__(self, name: str) -> Any:
        """Anything else that the jitted or the user's function has."""
        if name in (*Jitted.__slots__, "__wrapped__"):
            raise AttributeError(name)
        inner = self._jitted if hasattr(self._jitted, name) else self.__wrapped__
        return getattr(inner, name)

    def __repr__(self) -> str:
        """Names the function."""
        return f"<mirage_jax.jit of {self.__wrapped__!r}>"


def _jit_body(
    fun: Callable[..., Any], plain: Any, config: Config | None
) -> Callable[..., Any]:
    """The function that `jax.jit` traces: `plain` with its regions replaced."""

    def mirage_jit(*args: Any, **kwargs: Any) -> Any:
        if _compat.setting("jax_disable_jit"):
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
        if _compat.setting("jax_disable_jit"):
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
    if isinstance(fun, Jitted):
        return fun.report(*args, config=config, **kwargs)
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
