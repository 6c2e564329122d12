"""Times of the zoo under `mirage_jax.jit` against `jax.jit`, and their errors.

    python -m mirage_jax.benchmarks.kernels --target=cpu
    python -m mirage_jax.benchmarks.kernels --target=h200 --only=rmsnorm,gqa

Where the target is present the two run in turn (A/B, B/A, ...) in one process on the
same inputs, and the table has medians, minima and the error against float64. Where it
is not, the table has predictions, and says so.
"""

import dataclasses
import json
import math
import platform
import statistics
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from absl import app, flags

import mirage_jax
from mirage_jax import targets
from mirage_jax.benchmarks import zoo

_TARGET = flags.DEFINE_string("target", "auto", "Target to optimize for.")
_ONLY = flags.DEFINE_list("only", [], "Names of cases; all by default.")
_BATCH = flags.DEFINE_integer("batch", 16, "Rows (or sequences) of a case.")
_DTYPE = flags.DEFINE_enum("dtype", "bfloat16", ["bfloat16", "float16", "float32"], "")
_ROUNDS = flags.DEFINE_integer("rounds", 15, "Timed rounds of each function.")
_OUT = flags.DEFINE_string("out", "", "File for the results as JSON.")


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """One line of the table.

    Attributes:
      case: the program's name.
      gain: time under jax.jit over time under mirage_jax.jit.
      measured: whether the gain was measured; else it is predicted.
      kernels: kernels of the winners (predictions only).
      first_call_s: seconds of search, checks and compilation.
      errors: of jax.jit and of mirage_jax.jit against float64, relative.
      jax_ms: every timed call of jax.jit.
      mirage_ms: every timed call of mirage_jax.jit.
    """

    case: str
    gain: float
    measured: bool
    kernels: int = 0
    first_call_s: float = 0.0
    errors: tuple[float, ...] = ()
    jax_ms: tuple[float, ...] = ()
    mirage_ms: tuple[float, ...] = ()


def main(argv: list[str]) -> None:
    """Prints the table; the last line is the geometric mean and the least gain."""
    del argv
    listed = zoo.cases(_BATCH.value)
    unknown = set(_ONLY.value) - set(listed)
    if unknown:
        raise app.UsageError(
            f"unknown cases {sorted(unknown)}; known: {sorted(listed)}"
        )
    config = mirage_jax.Config(target=_TARGET.value)
    target = targets.resolve(config.target)
    rows = [
        (_measured if targets.is_present(target) else _predicted)(case, config)
        for name, case in listed.items()
        if not _ONLY.value or name in _ONLY.value
    ]
    gains = [row.gain for row in rows]
    mean = math.exp(statistics.fmean(map(math.log, gains)))
    print(f"geometric mean {mean:.2f}x, least {min(gains):.2f}x")
    if _OUT.value:
        facts = {
            "target": target.name,
            "device": jax.devices()[0].device_kind,
            "machine": platform.processor() or platform.machine(),
            "jax": jax.__version__,
            "flags": {"batch": _BATCH.value, "dtype": _DTYPE.value},
            "rows": [dataclasses.asdict(row) for row in rows],
        }
        with open(_OUT.value, "w", encoding="utf-8") as file:
            json.dump(facts, file, indent=1)


def _measured(case: zoo.Case, config: mirage_jax.Config) -> Row:
    arguments = case.arguments(_DTYPE.value)
    plain = jax.jit(case.function)
    ours = mirage_jax.jit(case.function, config=config)
    start = time.perf_counter()
    jax.block_until_ready(ours(*arguments))
    first = time.perf_counter() - start
    reference = _float64(case.function, arguments)
    errors = [_error(f(*arguments), reference) for f in (plain, ours)]
    samples = _in_turn([plain, ours], arguments, _ROUNDS.value)
    fast = [min(s) for s in samples]
    row = Row(
        case.name,
        fast[0] / fast[1],
        measured=True,
        first_call_s=first,
        errors=tuple(errors),
        jax_ms=tuple(1e3 * t for t in samples[0]),
        mirage_ms=tuple(1e3 * t for t in samples[1]),
    )
    medians = [1e3 * statistics.median(s) for s in samples]
    print(
        f"{case.name:12s} measured: "
        f"{medians[0]:8.2f} -> {medians[1]:8.2f} ms (median), "
        f"{1e3 * fast[0]:8.2f} -> {1e3 * fast[1]:8.2f} ms (min), {row.gain:5.2f}x, "
        f"error {errors[0]:.1e} -> {errors[1]:.1e}, first call {first:.1f} s",
        flush=True,
    )
    return row


def _predicted(case: zoo.Case, config: mirage_jax.Config) -> Row:
    start = time.perf_counter()
    report = mirage_jax.explain(case.function, *case.avals(_DTYPE.value), config=config)
    seconds = time.perf_counter() - start
    regions = [r for r in report.regions if r.status == "winner"]
    before = sum(r.predicted_s["XLA's plan"] for r in regions)
    after = sum(r.predicted_s["winner"] for r in regions)
    kernels = sum(r.counts["kernels"] for r in regions)
    gain = before / after if after else 1.0
    print(
        f"{case.name:12s} predicted: {1e6 * before:8.1f} -> {1e6 * after:8.1f} µs, "
        f"{gain:5.2f}x, {kernels} kernels, search and checks {seconds:.1f} s",
        flush=True,
    )
    return Row(case.name, gain, measured=False, kernels=kernels, first_call_s=seconds)


def _in_turn(
    functions: list[Callable[..., jax.Array]], arguments: list[jax.Array], rounds: int
) -> list[list[float]]:
    samples: list[list[float]] = [[] for _ in functions]
    for n in range(rounds + 2):
        order = list(enumerate(functions))
        for i, function in order if n % 2 else reversed(order):
            start = time.perf_counter()
            jax.block_until_ready(function(*arguments))
            if n >= 2:  # the first two rounds warm up
                samples[i].append(time.perf_counter() - start)
    return samples


def _float64(
    function: Callable[..., jax.Array], arguments: list[jax.Array]
) -> np.ndarray:
    with jax.enable_x64(True):
        wide = [jnp.asarray(np.asarray(a, np.float64)) for a in arguments]
        return np.asarray(jax.jit(function)(*wide), np.float64)


def _error(value: jax.Array, reference: np.ndarray) -> float:
    gap = np.asarray(value, np.float64) - reference
    return float(np.linalg.norm(gap) / np.linalg.norm(reference))


if __name__ == "__main__":
    app.run(main)
