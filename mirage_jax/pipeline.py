"""The order of the stages, for one region.

    lift ─▶ search ─▶ optimize ─▶ emit ─▶ tune ─▶ verify ─▶ winner
              ▲                                        │
              └──────────── winners database ◀─────────┘

Verification comes last because it costs most: candidates are proved and checked in the
order of their measured (or predicted) time, and the first that passes wins. Nothing is
used that did not pass.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import jax
import jax.extend.core as jex
import numpy as np
from absl import logging

import pallas_codegen
import verify
from mirage_jax import database, lift, targets, tune
from mirage_jax.config import Config
from mirage_jax.errors import MissError
from mirage_jax.record import Record, wants_progress
from mirage_jax.region import Region
from mirage_jax.report import Outcome
from ugraph import text
from ugraph.graph import Plan
from ugraph.optimize import optimize
from ugraph.program import Program
from ugraph.search import Candidate, Found, Limits, search
from ugraph.show import describe
from ugraph.shrink import shrink
from ugraph.target import Target
from ugraph.validate import validate

BACKENDS = {"cuda": "triton", "cpu": "xla"}
MOST_MEASURED = 8
MOST_PROVED = 4
LEAST_PREDICTED_GAIN = 1.03
LONGEST_CHECKED = 512


@dataclass(frozen=True)
class _Contender:
    """A candidate with its code, and how fast it is."""

    name: str
    candidate: Candidate
    plan: Plan
    source: Any
    call: Callable[..., Sequence[jax.Array]]


def optimize_region(region: Region, config: Config) -> Outcome:
    """Finds, proves and emits the best plan for a region, or keeps the original.

    Raises:
      UnsupportedError: when the region cannot be lifted.
      MissError: when `config.on_miss` is `error` and no winner is stored.
    """
    record = Record(region, wants_progress(config))
    target = targets.resolve(config.target)
    record.facts["target"] = target.name
    with record.stage("lift"):
        program = lift.lift(region.jaxpr)
    record.facts["program"] = str(program)
    winners = database.open_database(config)
    key = winner_key(program, target, config)
    entry = winners.get(key)
    if entry is not None:
        return _restored(region, program, target, entry, record)
    if config.on_miss == "error":
        raise MissError(f"no stored winner for {region.where} on {target.name}")
    if config.on_miss == "xla":
        reason = "no stored winner, and Config(on_miss='xla')"
        return Outcome(region.key, report=record.report(reason=reason))
    winner, reason = _search(region, program, target, config, record)
    winners.put(key, _entry(winner, reason, record))
    return _outcome(region, target, winner, reason, record)


def winner_key(program: Program, target: Target, config: Config) -> str:
    """What a stored winner depends on: program, target, limits, versions."""
    parts = (
        program.key,
        repr(target),
        repr((config.max_kernel_ops, config.max_block_ops, config.failure_probability)),
        _versions(),
    )
    return hashlib.sha256("\n".join(map(str, parts)).encode()).hexdigest()[:32]


def _versions() -> str:
    try:
        own = version("mirage-jax")
    except PackageNotFoundError:
        own = "source"
    return f"{own} jax {jax.__version__}"


def _search(
    region: Region, program: Program, target: Target, config: Config, record: Record
) -> tuple[_Contender | None, str]:
    limits = Limits(
        seconds=config.search_seconds,
        states=config.max_states,
        max_kernel_ops=config.max_kernel_ops,
        max_block_ops=config.max_block_ops,
    )
    with record.stage("search"):
        found = search(program, target, limits=limits)
    logging.vlog(1, "%s: %d plans", region.where, len(found.candidates))
    record.facts["counts"] = _counts(found, 0, 0)
    if found.stopped:
        record.notes.append(f"the search stopped: {found.stopped}")
    with record.stage("emit"):
        contenders = _emitted(program, found, target, record)
    contenders, reason = _ranked(region, contenders, found, target, config, record)
    proved = 0
    for contender in contenders[:MOST_PROVED]:
        why = _refuted(program, contender, target, config, record)
        proved += not why
        record.facts["counts"] = _counts(found, len(contenders), proved)
        if not why:
            record.facts["counts"]["kernels"] = len(contender.plan.kernels)
            if target.platform != "cpu":  # a CPU's plans are measured, not predicted
                record.facts["predicted_s"] = {
                    "winner": contender.candidate.seconds,
                    "XLA's plan": found.original_seconds,
                }
            return contender, reason
        record.notes.append(f"{contender.name} rejected: {why}")
    if contenders:
        reason = "no candidate passed verification and the numerics guard"
    return None, reason


def _counts(found: Found, tried: int, proved: int) -> dict[str, int]:
    return {
        "seen": found.counts.seen,
        "duplicates": found.counts.duplicates,
        "pruned": found.counts.pruned,
        "plans": len(found.candidates),
        "tried": tried,
        "verified": proved,
    }


def _emitted(
    program: Program, found: Found, target: Target, record: Record
) -> list[_Contender]:
    contenders = []
    for number, candidate in enumerate(found.candidates[:MOST_MEASURED]):
        name = f"plan {number}" + (f" ({candidate.note})" if candidate.note else "")
        try:
            plan = validate(optimize(validate(candidate.plan), target).plan)
            source = pallas_codegen.emit(
                plan, BACKENDS[target.platform], target=target, program=program
            )
            call = pallas_codegen.load(source)
        except NotImplementedError as error:
            record.notes.append(f"{name} not emitted: {error}")
            continue
        contenders.append(_Contender(name, candidate, plan, source, call))
    return contenders


def _ranked(
    region: Region,
    contenders: list[_Contender],
    found: Found,
    target: Target,
    config: Config,
    record: Record,
) -> tuple[list[_Contender], str]:
    """The contenders that promise to beat the original, best first, and why."""
    if not contenders:
        return [], "the search found no custom kernel better than XLA's plan"
    if config.measure != "off" and targets.is_present(target):
        with record.stage("tune"):
            return _measured(region, contenders, config, record)
    bar = found.original_seconds / LEAST_PREDICTED_GAIN
    better = [c for c in contenders if c.candidate.seconds <= bar]
    if target.platform == "cpu":
        return [], "the CPU's plans are chosen by measuring, which is off"
    if not better:
        return [], "no plan is predicted to beat XLA's"
    return better, "predicted to be the fastest (the target is not present)"


def _measured(
    region: Region, contenders: list[_Contender], config: Config, record: Record
) -> tuple[list[_Contender], str]:
    functions: dict[str, Callable[..., object]] = {
        "original": jex.jaxpr_as_fun(region.jaxpr)
    }
    functions |= {c.name: c.call for c in contenders}
    arguments = tune.inputs_like(region.in_avals, config.seed)
    timings = tune.measure(functions, arguments, seconds=config.search_seconds)
    for timing in timings.values():
        if timing.error:
            record.notes.append(f"{timing.name} failed: {timing.error}")
    if timings["original"].error:
        return [], "the original could not be timed"
    by_name = {c.name: c for c in contenders}
    order = tune.faster(timings, "original")
    record.facts["measured_s"] = {
        t.name: t.median for t in timings.values() if t.samples
    }
    if not order:
        return [], "no plan measured faster than the original"
    return [by_name[n] for n in order], "measured to be the fastest"


def _refuted(
    program: Program,
    contender: _Contender,
    target: Target,
    config: Config,
    record: Record,
) -> str:
    """Why the contender must not be used; empty when it passed every check."""
    with record.stage("verify"):
        verdict = verify.check(
            program,
            contender.plan,
            failure_probability=config.failure_probability,
            seed=config.seed,
        )
    if not verdict.equal:
        return f"not proved equal: {verdict.reason}"
    certificate = verdict.certificate()
    if certificate["bound"] > config.failure_probability:
        return f"proved only up to a probability of {certificate['bound']:.1e}"
    record.facts["certificate"] = certificate
    if config.interpret == "off" and not targets.is_present(target):
        record.notes.append("numbers were not checked: Config(interpret='off')")
        return ""
    with record.stage("numerics"):
        numeric = _numeric(program, contender.plan, target)
    record.facts["errors"] = numeric.summary()
    return "" if numeric.ok else f"numerics: {numeric.reason}"


def _numeric(program: Program, plan: Plan, target: Target) -> Any:
    """The numerics guard on the emitted code at small extents."""
    longest = LONGEST_CHECKED if target.platform == "cpu" else None
    small, small_plan = shrink(program, plan, longest=longest)
    source = pallas_codegen.emit(
        small_plan, BACKENDS[target.platform], target=target, program=small
    )
    run = pallas_codegen.load(source)
    interpret = target.platform != "cpu" and not targets.is_present(target)

    def call(inputs: list[np.ndarray]) -> list[np.ndarray]:
        outputs = jax.jit(lambda *a: run(*a, interpret=interpret))(*inputs)
        return [np.asarray(o) for o in outputs]

    return verify.guard(small, small.sizes, call)


def _entry(winner: _Contender | None, reason: str, record: Record) -> dict[str, Any]:
    """What the database stores of a decision, good or bad."""
    kept = ("counts", "certificate", "errors", "predicted_s", "measured_s")
    facts = {name: record.facts[name] for name in kept if name in record.facts}
    entry: dict[str, Any] = {"reason": reason, "facts": facts, "notes": record.notes}
    if winner is not None:
        entry["plan"] = text.dump(winner.plan)
        entry["derivation"] = [s.rule for s in winner.candidate.derivation]
    return entry


def _restored(
    region: Region,
    program: Program,
    target: Target,
    entry: dict[str, Any],
    record: Record,
) -> Outcome:
    """The outcome that the database holds."""
    record.facts |= {**entry["facts"], "from_database": True}
    record.notes += entry["notes"]
    if "plan" not in entry:
        report = record.report(reason=entry["reason"])
        return Outcome(region.key, report=report)
    with record.stage("emit"):
        plan = text.load(entry["plan"])
        if not isinstance(plan, Plan):
            raise text.FormatError("the database holds a program where a plan belongs")
        source = pallas_codegen.emit(
            validate(plan), BACKENDS[target.platform], target=target, program=program
        )
        call = pallas_codegen.load(source)
    return Outcome(
        region.key,
        target.platform,
        call,
        record.report(
            status="winner",
            reason=entry["reason"],
            winner=describe(plan),
            pallas=source.text,
            derivation=tuple(entry["derivation"]),
        ),
    )


def _outcome(
    region: Region,
    target: Target,
    winner: _Contender | None,
    reason: str,
    record: Record,
) -> Outcome:
    if winner is None:
        return Outcome(region.key, report=record.report(reason=reason))
    report = record.report(
        status="winner",
        reason=reason,
        winner=describe(winner.plan),
        pallas=winner.source.text,
        derivation=tuple(s.rule for s in winner.candidate.derivation),
    )
    return Outcome(region.key, target.platform, winner.call, report)
