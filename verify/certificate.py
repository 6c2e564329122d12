"""Verdicts and their certificates: what was proved, how surely, on what assumptions."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ugraph import text
from ugraph.graph import Plan
from ugraph.program import Program
from verify import bounds, field

VERSION = 1
ASSUMPTIONS = (
    "equality at the verification extents stands for equality at all extents: terms "
    "know no sizes, and every tile, edge and label is present more than once",
    "values that differ as rational expressions differ modulo the two primes",
    "casts between floating types are the identity (rounding is the numerics guard's)",
    "the numbers of tests and the seeds were not chosen by whoever made the plan",
)
ORDER = (
    "maxima, comparisons of floats and boolean inputs were drawn at random in each "
    "test; the bound is for a difference that shows under the choices of as many tests "
    "as it counts"
)
OPAQUE = (
    "an opaque op may be any function of its operands (a keyed 64-bit hash stood in)"
)


class CertificateError(ValueError):
    """A certificate is malformed; the message says what is missing."""


@dataclass(frozen=True, slots=True)
class Tested:
    """What was done at one set of extents."""

    extents: Mapping[str, int]
    plan_extents: Mapping[str, int]
    tiles: Mapping[str, Mapping[str, int]]
    literals: Mapping[str, int]
    seed: int
    bound: bounds.Bound
    total: float

    def summary(self) -> dict[str, Any]:
        """As JSON data."""
        return {
            "extents": dict(self.extents),
            "plan_extents": dict(self.plan_extents),
            "tiles": {k: dict(v) for k, v in self.tiles.items()},
            "literals": dict(self.literals),
            "seed": self.seed,
            "tests": self.bound.tests,
            "tests_counted": self.bound.counted,
            "theorem": self.bound.theorem,
            "degree": self.bound.degree,
            "exponentials": self.bound.exponentials,
            "why_no_better_theorem": self.bound.why,
            "per_test": self.bound.per_test,
            "bound": self.total,
        }


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a plan equals a program.

    Attributes:
      equal: every test passed.
      reason: why not; empty when equal.
      program: what was checked.
      plan: against what.
      tested: what was done at each set of extents.
      opaque: ops that were interpreted as opaque functions.
      failure_probability: what was asked for.
    """

    equal: bool
    reason: str
    program: Program
    plan: Plan
    tested: tuple[Tested, ...] = ()
    opaque: tuple[str, ...] = ()
    failure_probability: float = 1e-9

    @property
    def bound(self) -> float:
        """Probability that a wrong plan passes, by the theorem; 1 if rejected."""
        return max((t.total for t in self.tested), default=1.0)

    def certificate(self) -> dict[str, Any]:
        """All that is needed to judge and to repeat the check, as JSON data."""
        assumptions = list(ASSUMPTIONS)
        if any(t.bound.counted < t.bound.tests for t in self.tested):
            assumptions.append(ORDER)
        if self.opaque:
            assumptions.append(OPAQUE)
        if self.bound > self.failure_probability:
            assumptions.append(
                f"the bound of {self.bound:.2g} is weaker than the "
                f"{self.failure_probability:g} asked for: more would take independence "
                "of the exponents, which was not established"
            )
        return {
            "version": VERSION,
            "equal": self.equal,
            "reason": self.reason,
            "fields": {"p": field.P, "q": field.Q},
            "seeds": [t.seed for t in self.tested],
            "extents": [dict(t.extents) for t in self.tested],
            "tests": sum(t.bound.tests for t in self.tested),
            "theorem": " / ".join(dict.fromkeys(t.bound.theorem for t in self.tested)),
            "bound": self.bound,
            "failure_probability": self.failure_probability,
            "runs": [t.summary() for t in self.tested],
            "assumptions": assumptions,
            "opaque": list(self.opaque),
            "program": text.dump(self.program),
            "plan": text.dump(self.plan),
        }
