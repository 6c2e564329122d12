"""The test of equality: same random inputs, every output element.

`check` never raises for a wrong plan: a verdict says which output element differs, or
what is wrong with the plan's structure, or what cannot be decided.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ugraph import text
from ugraph.graph import Plan
from ugraph.program import Program
from ugraph.terms import Term, subterms
from ugraph.validate import problems
from verify import bounds, degrees, evaluate
from verify.certificate import VERSION, CertificateError, Tested, Verdict
from verify.evaluate import PlanError
from verify.field import Array
from verify.small import Small, small
from verify.values import (
    Float,
    Interpretation,
    UnsupportedError,
    Value,
    infinite,
)

VARIANTS = 2
REDRAWS = 3
SEEDS = 2 * VARIANTS * (REDRAWS + 1)
SIGMOIDS = frozenset({"logistic", "tanh"})
MOST_ELEMENTS = 1 << 25
STRANGE = "the plan's exponents are not made of those of the program"


def check(
    program: Program,
    plan: Plan,
    *,
    failure_probability: float = 1e-9,
    seed: int = 0,
) -> Verdict:
    """Whether `plan`, run as scheduled, computes `program`.

    Args:
      program: the meaning.
      plan: the candidate.
      failure_probability: that a wrong plan may pass, at most, where a theorem reaches.
      seed: where all randomness comes from.

    Returns:
      A verdict; never an exception for a plan that is wrong or cannot be decided.
    """
    rejected = Verdict(False, "", program, plan, (), (), failure_probability)
    reason = _mismatch(program, plan)
    if reason:
        return replace(rejected, reason=reason)
    tested, opaque = [], {}
    for variant in range(VARIANTS):
        try:
            done = _tested(program, plan, variant, failure_probability, seed, opaque)
        except (PlanError, UnsupportedError) as error:
            return replace(rejected, reason=str(error), tested=tuple(tested))
        except (ValueError, LookupError, TypeError, AssertionError) as error:
            reason = f"the plan cannot be evaluated: {type(error).__name__}: {error}"
            return replace(rejected, reason=reason, tested=tuple(tested))
        if isinstance(done, str):
            return replace(rejected, reason=done, tested=tuple(tested))
        tested.append(done)
    return replace(rejected, equal=True, tested=tuple(tested), opaque=tuple(opaque))


def recheck(certificate: Mapping[str, Any], *, seed: int | None = None) -> Verdict:
    """Checks again what a certificate says, with fresh randomness.

    Args:
      certificate: what `Verdict.certificate` returned, possibly read from JSON.
      seed: where the randomness comes from; by default one not used before.

    Raises:
      CertificateError: when the certificate is malformed.
    """
    for key in ("version", "program", "plan", "seeds", "failure_probability"):
        if not isinstance(certificate, Mapping) or key not in certificate:
            raise CertificateError(f"the certificate has no `{key}`")
    if certificate["version"] != VERSION:
        raise CertificateError(
            f"certificate of version {certificate['version']}, not {VERSION}"
        )
    try:
        program, plan = (
            text.load(certificate["program"]),
            text.load(certificate["plan"]),
        )
        used = max(map(int, certificate["seeds"]), default=0)
        probability = float(certificate["failure_probability"])
    except (text.FormatError, TypeError, ValueError) as error:
        raise CertificateError(f"the certificate cannot be read: {error}") from error
    if not isinstance(program, Program) or not isinstance(plan, Plan):
        raise CertificateError("`program` and `plan` of the certificate are exchanged")
    if not 0 < probability < 1:
        raise CertificateError(f"failure probability {probability} is not in (0, 1)")
    fresh = used + 1 if seed is None else seed
    return check(program, plan, failure_probability=probability, seed=fresh)


def _mismatch(program: Program, plan: Plan) -> str:
    """What the plan's interface or structure has wrong."""
    found = problems(plan)
    if found:
        return "; ".join(found)
    if plan.inputs != program.inputs:
        return "the plan's inputs are not those of the program"
    wanted = tuple(o.tensor for o in program.outputs)
    if plan.outputs != wanted:
        return "the plan's outputs are not those of the program"
    if len({k.name for k in plan.kernels}) < len(plan.kernels):
        return "two kernels have one name"
    sizes = program.sizes
    for label, extent in plan.extents:
        if sizes.get(label, extent) != extent:
            return f"label `{label}` has extent {extent}, not {sizes[label]}"
    return ""


def _tested(
    program: Program,
    plan: Plan,
    variant: int,
    probability: float,
    seed: int,
    opaque: dict[str, None],
) -> Tested | str:
    """Tests at one set of extents: what was done, or why the plan is rejected.

    A wrong plan may pass any of the attempts: their probabilities add up.
    """
    tiny, attempts = _attempts(program, plan, variant, probability)
    number, total, outcome = seed * SEEDS + variant, 0.0, _Failure("")
    for blind, bound in attempts:
        if _elements(tiny) * bound.tests > MOST_ELEMENTS:
            return "not decided: the extents that must be kept are too large"
        used: dict[str, None] = {}
        outcome, known = _redrawn(tiny, bound, blind, number, used)
        if outcome is None and bound.theorem == "Theorem A" and not known:
            bound = bounds.bound(
                tiny.program, tiny.plan, probability, blind=blind, why=STRANGE
            )
            outcome, _ = _redrawn(tiny, bound, blind, number + SEEDS // 2, used)
        total += bound.total
        if outcome is None:
            opaque.update(used)
            return _done(tiny, number, bound, min(1.0, total))
    return outcome.reason


def _done(tiny: Small, number: int, bound: bounds.Bound, total: float) -> Tested:
    return Tested(
        tiny.program.sizes,
        tiny.plan.sizes,
        {k.name: _tiles(k) for k in tiny.plan.custom},
        {str(a): b for a, b in tiny.literals},
        number,
        bound,
        total,
    )


def _attempts(
    program: Program, plan: Plan, variant: int, probability: float
) -> tuple[Small, list[tuple[frozenset[str], bounds.Bound]]]:
    """Extents, and what to take for opaque: most first, as that proves most surely.

    A proof with an exponential op taken for any function at all holds of the op itself.
    Only where the laws of exponentials are used does it fail; then they are not opaque.
    """
    tiny = small(program, plan, variant)
    roots = [r for k in plan.kernels for r in k.roots]
    ops = {t.op for t in subterms(*roots, *(o.term for o in program.outputs))}
    some, every = SIGMOIDS & ops, degrees.EXPONENTIALS & ops
    bound = bounds.bound(tiny.program, tiny.plan, probability, blind=some)
    order = [some, frozenset()]
    if bound.why:
        tiny = small(program, plan, variant, roomy=_inner(bound.atoms[0]))
        bound = bounds.bound(tiny.program, tiny.plan, probability, blind=some)
        order = [every, some, frozenset()] if bound.why else order
    return tiny, [
        (b, bounds.bound(tiny.program, tiny.plan, probability, blind=b))
        for b in dict.fromkeys(order)
    ]


def _redrawn(
    tiny: Small,
    bound: bounds.Bound,
    blind: frozenset[str],
    number: int,
    opaque: dict[str, None],
) -> tuple["_Failure | None", bool]:
    """What `_compare` finds, again with another seed where it may be chance."""
    outcome, known = _compare(tiny, bound, blind, number, opaque)
    for redraw in range(1, REDRAWS):
        if outcome is None or not outcome.chance:
            break
        other = number + VARIANTS * redraw
        outcome, known = _compare(tiny, bound, blind, other, opaque)
    return outcome, known


def _inner(atoms: frozenset[Term]) -> frozenset[str]:
    """The labels that are contracted inside exponents."""
    return frozenset(
        x for a in atoms for t in subterms(a) for x in t.labels if x not in a.labels
    )


def _tiles(kernel: Any) -> dict[str, int]:
    ranges = (*kernel.grid, *((kernel.loop,) if kernel.loop else ()))
    return {r.label: r.tile for r in ranges}


def _elements(tiny: Small) -> int:
    """Elements of the largest value that either program forms."""
    sizes = {**tiny.plan.sizes, **tiny.program.sizes}
    roots = [r for k in tiny.plan.kernels for r in k.roots]
    roots += [o.term for o in tiny.program.outputs]
    return max(_largest(r, sizes) for r in roots)


def _largest(term: Term, sizes: Mapping[str, int]) -> int:
    own = math.prod(sizes[x] for x in term.labels)
    return max([own, *(_largest(a, sizes) for a in term.args)])


@dataclass(frozen=True, slots=True)
class _Failure:
    """Why tests failed, and whether it may be chance (an unlucky division by zero)."""

    reason: str
    chance: bool = False


def _compare(
    tiny: Small,
    bound: bounds.Bound,
    blind: frozenset[str],
    seed: int,
    opaque: dict[str, None],
) -> tuple[_Failure | None, bool]:
    """Why the values differ, if they do; whether the plan's atoms are the program's."""
    how = Interpretation(seed, bound.tests, blind)
    inputs = evaluate.draw(tiny.program.inputs, bound.tests, seed)
    ours, theirs = bound.atoms
    want, atoms = evaluate.watching(ours, how, lambda: evaluate.evaluate_program(
        tiny.program, inputs, how
    ))  # fmt: skip
    got, others = evaluate.watching(theirs, how, lambda: evaluate.evaluate_plan(
        tiny.plan, inputs, how
    ))  # fmt: skip
    opaque.update(how.opaque)
    for store, tensor in zip(tiny.program.outputs, tiny.plan.outputs, strict=True):
        failure = _differs(tensor.name, want[store.tensor.name], got[tensor.name])
        if failure is not None:
            return failure, False
    return None, others <= atoms


def _differs(name: str, want: Value, got: Value) -> _Failure | None:
    if not isinstance(want, Float) or not isinstance(got, Float):
        if isinstance(want, Float) or isinstance(got, Float):
            return _Failure(f"`{name}` is of another type than the program's")
        return _first(name, want != got, np.zeros_like(want, np.bool_), "differs")
    undefined = _mark(want.bad, want)
    never = np.asarray(undefined.all(axis=0))
    if never.any():
        where = _position(never)
        return _Failure(
            f"not decided: `{name}`{where} is undefined at every drawn point",
            chance=True,
        )
    failure = _first(name, _mark(got.bad, got), undefined, "is undefined in the plan")
    if failure is not None:
        return replace(failure, chance=True)
    a, b = (np.broadcast_to(infinite(v), v.p.shape) for v in (want, got))
    differs = (a != b) | ((a == 0) & (want.p != got.p))
    if want.q is not None and got.q is not None:
        differs |= (a == 0) & (want.q != got.q)
    return _first(name, differs, undefined, "differs")


def _mark(mark: Array | None, like: Float) -> Array:
    return np.zeros(like.p.shape, np.bool_) if mark is None else mark


def _first(name: str, wrong: Array, excused: Array, what: str) -> _Failure | None:
    wrong = wrong & ~excused
    if not wrong.any():
        return None
    places = np.asarray(wrong.any(axis=0))
    tests = wrong.reshape(len(wrong), -1).any(axis=1).sum()
    return _Failure(
        f"`{name}`{_position(places)} {what} in {tests} of {len(wrong)} tests "
        f"({places.mean():.0%} of its elements)"
    )


def _position(wrong: Array) -> str:
    return str([int(i) for i in np.argwhere(wrong)[0]])
