"""Outcomes: what the pipeline makes of each region, made once per process.

Whatever fails here costs the optimization only: the region keeps its original.
"""

import dataclasses
import functools
import threading
import warnings
from collections.abc import Callable
from typing import Any

import jax

from mirage_jax import isolate, pipeline
from mirage_jax.config import Config
from mirage_jax.errors import (
    MirageWarning,
    MissError,
    RegionError,
    UnsupportedError,
)
from mirage_jax.region import Region
from mirage_jax.report import Outcome, RegionReport


class _Memo:
    """Outcomes by region and configuration; each is made once, by one thread."""

    def __init__(self) -> None:
        self.outcomes: dict[tuple[Any, ...], Outcome] = {}
        self.locks: dict[tuple[Any, ...], threading.Lock] = {}
        self.lock = threading.Lock()

    def get(self, key: tuple[Any, ...], make: Callable[[], Outcome]) -> Outcome:
        with self.lock:
            lock = self.locks.setdefault(key, threading.Lock())
        with lock:
            if key not in self.outcomes:
                self.outcomes[key] = make()
            return self.outcomes[key]

    def clear(self) -> None:
        with self.lock:
            self.outcomes.clear()
            self.locks.clear()


_memo = _Memo()


def forget() -> None:
    """Forgets every outcome of this process; the winners database is untouched."""
    _memo.clear()


def outcome_of(region: Region, config: Config) -> Outcome:
    """What the pipeline makes of `region`; made once per process and configuration."""
    key = (region.key, config, jax.default_backend())
    return _memo.get(key, lambda: _optimize(region, config))


def _again(config: Config, path: str, source: str, jaxpr: Any) -> Outcome:
    """The outcome of a region that a transformation made of another one."""
    return outcome_of(Region(jaxpr, path=f"{path} (batched)", source=source), config)


def _optimize(region: Region, config: Config) -> Outcome:
    """Runs the pipeline away from the user's trace; a failure keeps the original."""
    try:
        outcome = isolate.run(pipeline.optimize_region, region, config)
        again = functools.partial(_again, config, region.path, region.source)
        return dataclasses.replace(outcome, again=again)
    except MissError:
        raise
    except UnsupportedError as error:
        return _left(region, config, str(error))
    except Exception as error:
        if config.strict:
            if isinstance(error, RegionError):
                raise
            reason = f"{type(error).__name__}: {error}"
            raise RegionError(region.where, "optimizing it", reason) from error
        reason = f"the optimizer failed: {type(error).__name__}: {error}"
        warnings.warn(
            f"{region.where} stays with XLA: {reason}", MirageWarning, stacklevel=2
        )
        return _left(region, config, reason)


def _left(region: Region, config: Config, reason: str) -> Outcome:
    report = RegionReport(
        index=region.index,
        path=region.path,
        source=region.source,
        key=region.key,
        target=config.target_name,
        reason=reason,
        jaxpr=str(region.jaxpr),
    )
    return Outcome(region.key, report=report)
