"""The stages of a jitted function: traced, lowered, compiled.

They wrap the stages of `jax.jit` and have everything those have. Tracing and lowering
search nothing; the search happens when something that only it can give is asked for:
`compile()`, or the program as StableHLO.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax

from mirage_jax import lift, sites, substitute, targets
from mirage_jax.config import Config
from mirage_jax.region import Region
from mirage_jax.report import Report

Lower = Callable[..., Any]


def report_of(name: str, jaxpr: Any, config: Config) -> Report:
    """Optimizes a closed jaxpr, unless that was done before, and says what happened."""
    result = substitute.optimize_jaxpr(jaxpr, config)
    target = targets.resolve(config.target)
    return Report(name, target.name, result.reports, result.skipped)


@dataclass(frozen=True, eq=False)
class Traced:
    """A function traced for the types of some arguments.

    Attributes:
      inner: the stage of `jax.jit`, of the user's function as it is.
      name: of the function.
      config: settings in effect when it was traced.
      lower_optimized: lowers the optimized function for the same arguments.
    """

    inner: Any
    name: str
    config: Config
    lower_optimized: Lower

    @property
    def jaxpr(self) -> Any:
        """The user's program."""
        return self.inner.jaxpr

    @functools.cached_property
    def regions(self) -> tuple[Region, ...]:
        """The parts of it that can be optimized."""
        if sites.unfit(self.jaxpr) is not None:
            return ()
        return sites.find_regions(self.jaxpr).all_regions()

    def lower(self, **options: Any) -> "Lowered":
        """Goes on to the next stage, with the options of `jax.stages.Traced.lower`."""
        return Lowered(self, functools.partial(self.lower_optimized, **options))

    def __getattr__(self, name: str) -> Any:
        """Anything else that the stage of `jax.jit` has."""
        return getattr(object.__getattribute__(self, "inner"), name)


@dataclass(frozen=True, eq=False)
class Lowered:
    """A function lowered for the types of some arguments.

    Attributes:
      traced: the stage before.
      lower_optimized: lowers the optimized function.
    """

    traced: Traced
    lower_optimized: Lower

    @functools.cached_property
    def inner(self) -> Any:
        """The stage of `jax.jit`, of the optimized function; this searches."""
        return self.lower_optimized()

    def as_text(self, dialect: str | None = None, **options: Any) -> str:
        """The program as text.

        Args:
          dialect: "jaxpr", "ugraph" (each region as lifted), or what `jax.jit` knows:
            "stablehlo" (the default), "hlo".
          **options: those of `jax.stages.Lowered.as_text`.
        """
        if dialect == "jaxpr":
            return str(self.traced.jaxpr)
        if dialect == "ugraph":
            return "\n\n".join(map(_lifted, self.traced.regions))
        return self.inner.as_text(dialect, **options)

    def compile(self, *args: Any, **options: Any) -> "Compiled":
        """Optimizes and compiles, with the options of `jax.stages.Lowered.compile`."""
        return Compiled(self.inner.compile(*args, **options), self.traced)

    def __getattr__(self, name: str) -> Any:
        """Anything else that the stage of `jax.jit` has; nothing else searches."""
        if not hasattr(jax.stages.Lowered, name):
            raise AttributeError(f"a lowered function has no attribute `{name}`")
        return getattr(self.inner, name)


@dataclass(frozen=True, eq=False)
class Compiled:
    """A function optimized and compiled for the types of some arguments.

    Attributes:
      inner: the stage of `jax.jit`, of the optimized function.
      traced: the first stage.
    """

    inner: Any
    traced: Traced

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the compiled function."""
        return self.inner(*args, **kwargs)

    def report(self) -> Report:
        """What happened to every part of the function."""
        return report_of(self.traced.name, self.traced.jaxpr, self.traced.config)

    def as_text(self, dialect: str = "hlo") -> str:
        """The program as text.

        Args:
          dialect: "hlo" for what XLA compiled, "ugraph" for the winning μGraphs,
            "pallas" for the source of the emitted kernels.
        """
        if dialect == "hlo":
            return self.inner.as_text()
        if dialect not in ("ugraph", "pallas"):
            raise ValueError(
                f"`dialect` is {dialect!r}, but must be 'hlo', 'ugraph' or 'pallas'."
            )
        field = "winner" if dialect == "ugraph" else "pallas"
        texts = (getattr(r, field) for r in self.report().regions)
        return "\n\n".join(dict.fromkeys(t for t in texts if t))

    def __getattr__(self, name: str) -> Any:
        """Anything else that the stage of `jax.jit` has."""
        return getattr(object.__getattribute__(self, "inner"), name)


def _lifted(region: Region) -> str:
    """A region's lifted program, or why there is none."""
    try:
        return f"{region.where}\n{lift.lift(region.jaxpr)}"
    except Exception as error:
        return f"{region.where}\nnot lifted: {type(error).__name__}: {error}"
