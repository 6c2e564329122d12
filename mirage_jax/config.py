"""Settings: one frozen, hashable value, and the one reader of the environment.

A setting comes from, first match wins: the innermost `with config.use(...)`, the
`config=` of the call, the environment (`MIRAGE_JAX_<FIELD>`), the default.
"""

import dataclasses
import math
import os
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from mirage_jax import _compat
from mirage_jax.errors import ConfigError
from ugraph import target as targets

_SWITCH = ("auto", "on", "off")
_CHOICES: Mapping[str, tuple[str, ...]] = {
    "measure": _SWITCH,
    "progress": _SWITCH,
    "interpret": _SWITCH,
    "on_miss": ("search", "xla", "error"),
}
# Smallest and largest value of each number.
_RANGES: Mapping[str, tuple[float, float]] = {
    "max_kernel_ops": (1, 64),
    "max_block_ops": (1, 256),
    "search_seconds": (0, math.inf),
    "max_states": (1, 2**63 - 1),
    "seed": (0, 2**63 - 1),
}
_ENVIRONMENT_PREFIX = "MIRAGE_JAX_"


@dataclass(frozen=True, kw_only=True)
class Config:
    """How to optimize.

    Attributes:
      target: device to optimize for: a name out of `mirage_jax.targets`, a `Target`, or
        "auto" for the device that is present.
      max_kernel_ops: most custom kernels a candidate may have.
      max_block_ops: most operators inside one kernel.
      search_seconds: time limit of the search of one region.
      max_states: limit of the search of one region in states, for determinism.
      failure_probability: most that the equivalence proof may leave open.
      measure: whether candidates are timed on the device: "on", "off", or "auto" where
        the target is present. True and False are accepted too.
      interpret: whether emitted kernels are run in interpret mode, at small extents, to
        check their numbers when the target is absent: "on" (as is "auto") or "off".
      database: folder of stored winners: a path, "auto" for the user's cache folder, or
        "off" (or None) for none.
      on_miss: what to do with a region the database has no winner for: "search" now,
        leave it to "xla", or raise an "error".
      strict: whether a failure of the optimizer raises instead of costing the
        optimization only.
      seed: of every random choice.
      progress: whether a search that takes long says so: "on", "off" or "auto" (only
        on a terminal).
    """

    target: Any = "auto"
    max_kernel_ops: int = 5
    max_block_ops: int = 11
    search_seconds: float = 20.0
    max_states: int = 100_000
    failure_probability: float = 1e-9
    measure: Any = "auto"
    interpret: Any = "auto"
    database: Any = "auto"
    on_miss: str = "search"
    strict: bool = False
    seed: int = 0
    progress: Any = "auto"

    def __post_init__(self) -> None:
        """Checks every field, and gives equal settings equal values."""
        _check_target(self.target)
        for name, choices in _CHOICES.items():
            object.__setattr__(self, name, _choice(name, getattr(self, name), choices))
        for name, limits in _RANGES.items():
            value = getattr(self, name)
            whole = name != "search_seconds"
            object.__setattr__(self, name, _number(name, value, limits, whole=whole))
        _check_probability(self.failure_probability)
        if not isinstance(self.strict, bool):
            raise _bad("strict", self.strict, "True or False")
        object.__setattr__(self, "database", _database(self.database))

    def replace(self, **changes: Any) -> "Config":
        """A copy with some fields changed."""
        return dataclasses.replace(self, **changes)

    @property
    def target_name(self) -> str:
        """The target's name, or "auto"."""
        return self.target if isinstance(self.target, str) else self.target.name


def _bad(field: str, value: object, allowed: str) -> ConfigError:
    return ConfigError(f"`{field}` is {value!r}, but must be {allowed}.")


def _check_target(value: object) -> None:
    if isinstance(value, targets.Target):
        return
    if not isinstance(value, str) or (value != "auto" and value not in targets.TARGETS):
        known = ", ".join(repr(name) for name in ("auto", *sorted(targets.TARGETS)))
        raise _bad("target", value, f"a `Target` or one of {known}")


def _choice(name: str, value: object, choices: tuple[str, ...]) -> str:
    if isinstance(value, bool) and choices == _SWITCH:
        return "on" if value else "off"
    if isinstance(value, str) and value in choices:
        return value
    raise _bad(name, value, f"one of {', '.join(map(repr, choices))}")


def _number(
    name: str, value: object, limits: tuple[float, float], *, whole: bool
) -> int | float:
    low, high = limits
    kind = "an integer" if whole else "a number"
    bound = f"at least {low:g}" if high > 2**62 else f"from {low:g} to {high:g}"
    right = isinstance(value, int if whole else (int, float))
    if not right or isinstance(value, bool) or not low <= float(value) <= high:  # type: ignore[arg-type]
        raise _bad(name, value, f"{kind}, {bound}")
    return value if whole else float(value)  # type: ignore[return-value,arg-type]


def _check_probability(value: object) -> None:
    if not isinstance(value, float) or not 0 < value < 1:
        raise _bad(
            "failure_probability", value, "a number between 0 and 1, both excluded"
        )


def _database(value: object) -> str:
    if value is None:
        return "off"
    if isinstance(value, (str, os.PathLike)) and os.fspath(value):
        return str(os.fspath(value))
    raise _bad("database", value, '"auto", "off", None, or the path of a folder')


_override: Any = _compat.user_context(None)


def use(config: Config) -> AbstractContextManager[Any]:
    """A context manager under which `config` replaces every other configuration.

    It is part of the key of JAX's caches: a function that was jitted outside is traced
    and optimized again inside.
    """
    if not isinstance(config, Config):
        raise _bad("config", config, "a `mirage_jax.Config`")
    return _override(config)


def resolve(config: Config | None = None) -> Config:
    """The configuration in effect for a call that was given `config`."""
    if config is not None and not isinstance(config, Config):
        raise _bad("config", config, "None or a `mirage_jax.Config`")
    return _override.value or config or from_environment()


def environment() -> Mapping[str, str]:
    """Every environment variable this package looks at; nothing else reads any."""
    names = ("XDG_CACHE_HOME", "HOME")
    return {
        name: value
        for name, value in os.environ.items()
        if name in names or name.startswith(_ENVIRONMENT_PREFIX)
    }


def from_environment() -> Config:
    """The defaults with what `MIRAGE_JAX_<FIELD>` variables say."""
    variables = environment()
    changes: dict[str, Any] = {}
    for field in dataclasses.fields(Config):
        variable = _ENVIRONMENT_PREFIX + field.name.upper()
        if variables.get(variable):
            changes[field.name] = _parse(variable, variables[variable], field.default)
    return Config(**changes)


def _parse(variable: str, text: str, default: object) -> object:
    """Reads `text` as a value of the type `default` has."""
    if isinstance(default, bool):
        words = {"1": True, "true": True, "on": True}
        words |= {"0": False, "false": False, "off": False}
        if text.lower() not in words:
            raise _bad(variable, text, "one of '1', 'true', '0', 'false'")
        return words[text.lower()]
    if isinstance(default, (int, float)):
        try:
            return type(default)(text)
        except ValueError:
            kind = "an integer" if isinstance(default, int) else "a number"
            raise _bad(variable, text, kind) from None
    return text
