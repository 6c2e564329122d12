"""Tuning: the fastest of the candidates, measured where the target is present.

Candidates and the original run in the same process, on the same inputs, in turn. An
exception is a result: a candidate that fails to compile or run is out and says why. A
candidate must beat the original by more than the noise that the original shows against
itself; else the original stays.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from statistics import median

import jax
import numpy as np

Arrays = Sequence[jax.Array]
LEAST_GAIN = 1.08
ROUNDS = 9
HOPELESS = 1.5
"""A candidate this many times slower than the best is dropped after two rounds."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Times of one function in seconds.

    Attributes:
      name: whose times they are.
      samples: every timed call.
      error: why there are none, or empty.
    """

    name: str
    samples: tuple[float, ...] = ()
    error: str = ""

    @property
    def median(self) -> float:
        """Median; infinite without samples."""
        return median(self.samples) if self.samples else inf

    @property
    def fastest(self) -> float:
        """Minimum; infinite without samples."""
        return min(self.samples, default=inf)


def inputs_like(avals: Sequence[jax.ShapeDtypeStruct], seed: int) -> list[jax.Array]:
    """Random arrays: normal, scaled so that products of a thousand stay near one."""
    generator = np.random.default_rng(seed)
    arrays = []
    for aval in avals:
        if aval.dtype == np.bool_:
            values = generator.random(aval.shape) < 0.5
        else:
            values = generator.standard_normal(aval.shape, dtype=np.float32) * 0.1
        arrays.append(jax.numpy.asarray(values, aval.dtype))
    return arrays


def measure(
    functions: dict[str, Callable[..., object]],
    arguments: Arrays,
    *,
    seconds: float,
) -> dict[str, Timing]:
    """Times every function in turn until `ROUNDS` rounds or `seconds` are over.

    Args:
      functions: name to function; the first is the one others are compared with.
      arguments: what each is called with.
      seconds: wall time for the timed calls; compiling is not counted.

    Returns:
      Name to timing, in the order given.
    """
    samples: dict[str, list[float]] = {}
    errors: dict[str, str] = {}
    compiled = {}
    for name, function in functions.items():
        try:
            compiled[name] = jax.jit(function)
            jax.block_until_ready(compiled[name](*arguments))
            samples[name] = []
        except Exception as error:
            errors[name] = f"{type(error).__name__}: {error}"[:300]
    stop = time.perf_counter() + seconds
    for round_number in range(ROUNDS):
        order = list(samples)
        for name in order if round_number % 2 else reversed(order):
            start = time.perf_counter()
            jax.block_until_ready(compiled[name](*arguments))
            samples[name].append(time.perf_counter() - start)
        if round_number == 1:
            samples = _hopeful(samples)
        if time.perf_counter() > stop and round_number >= 2:
            break
    return {
        name: Timing(name, tuple(samples.get(name, ())), errors.get(name, ""))
        for name in functions
    }


def _hopeful(samples: dict[str, list[float]]) -> dict[str, list[float]]:
    first = next(iter(samples), "")
    best = min((min(times) for times in samples.values()), default=inf)
    return {
        name: times
        for name, times in samples.items()
        if name == first or min(times) <= HOPELESS * best
    }


def faster(timings: dict[str, Timing], original: str) -> tuple[str, ...]:
    """Names that beat the original by more than the noise, fastest first."""
    reference = timings[original]
    bar = reference.fastest / LEAST_GAIN
    found = [t for t in timings.values() if t.name != original and t.median <= bar]
    return tuple(t.name for t in sorted(found, key=lambda t: t.fastest))
