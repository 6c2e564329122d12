"""How likely a wrong plan is to pass: theorems, and the number of tests.

Let f be the difference of an output element of the program and of the plan, and suppose
that f is not zero as a formal expression.

Schwartz-Zippel (no exponentials). With denominators cleared f is a non-zero polynomial
of total degree at most D in the inputs; at a uniform point of Z_P it vanishes with
probability at most D/P.

Theorem A (exponentials of independent arguments). Let every argument of exp in both
programs be Σ c_i·U_i with integers c_i, over the same U_1..U_n, and let the U_i be
jointly uniform over Z_Q and independent of the residues mod P. Then Y_i = ω^(U_i) are
independent and uniform on the subgroup S, exp of an argument is the Laurent monomial Π
Y_i^(c_i), and with denominators cleared f is a non-zero polynomial of degree at most D
in the Y_i and the inputs mod P. Schwartz-Zippel over S and Z_P gives at most D/Q a
test. Rational coefficients are whole multiples of a common unit, which goes into U_i. A
constant in an argument is a multiple of one more such unit c: ω^c is as uniform as ω.

The condition is checked on the program: the U_i are the *atoms* of the arguments (see
`verify.degrees`), and `verify.independence` finds whether they are jointly uniform.
That the plan's atoms are the program's is seen from their values at the drawn points
(`verify.equivalence`).

An opaque function is random: its values at different operands are further variables.
Two operands that are formally different are equal at the drawn point with probability
at most δ/P, for operands of degree δ: for n values of one function n(n-1)/2 · δ is
added to D.

Theorem 2 of the paper (otherwise): at most 8·d·k^4/Q + Q^(-1/k²) a test for k
exponentials and degree d. Tests are independent, so their probabilities multiply.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from ugraph.graph import Plan
from ugraph.program import Program, bound_labels
from ugraph.terms import Term
from verify import independence
from verify.degrees import Analysis, Units, units_of
from verify.field import P, Q

MOST_TESTS = 256
MOST_PER_TEST = 0.9
LEAST_TESTS = 4
LEAST_COUNTED = 2
LEAST_TESTS_WITH_CHOICES = 32


@dataclass(frozen=True, slots=True)
class Bound:
    """How likely a wrong plan is to pass.

    Attributes:
      theorem: which of the three statements of this module holds.
      degree: D, at the verification extents.
      exponentials: k of Theorem 2.
      per_test: probability that one test passes a wrong plan.
      tests: how many tests are run.
      counted: how many of them the bound counts: fewer than are run where something is
        chosen at random, since a difference may show under some choices only.
      why: why no better theorem applies; empty when one does.
      atoms: of both programs: whose values must be the same.
    """

    theorem: str
    degree: int
    exponentials: int
    per_test: float
    tests: int
    counted: int
    why: str
    atoms: tuple[frozenset[Term], frozenset[Term]]

    @property
    def total(self) -> float:
        """Probability that all counted tests pass a wrong plan."""
        return self.per_test**self.counted


def bound(
    program: Program,
    plan: Plan,
    probability: float,
    *,
    blind: frozenset[str] = frozenset(),
    why: str = "",
) -> Bound:
    """The best bound that holds for a program and plan at their extents.

    Args:
      program: at verification extents.
      plan: at verification extents.
      probability: that all tests together may pass a wrong plan.
      blind: exponential ops that are taken to be opaque too.
      why: why Theorem A cannot be used, where that was found out elsewhere.
    """
    walks = _analyses(program, plan, Units(), blind)
    units = units_of(f for w in walks for f in w.exponents)
    walks = _analyses(program, plan, units, blind)
    pairs = [
        (walks[0].stored[a.tensor.name].degree, walks[1].stored[b.name].degree)
        for a, b in zip(program.outputs, plan.outputs, strict=True)
    ]
    degree = max((max(d.top + e.bottom, e.top + d.bottom) for d, e in pairs), default=0)
    degree = max(degree, 1) + _collisions(*(w.opaque for w in walks))
    ours, theirs = (frozenset(a for f in w.exponents for a in f.atoms) for w in walks)
    count = sum(w.exponentials for w in walks)
    if count and not why:
        found = independence.of(program, ours)
        why, degree = found.why, degree + found.degree
    theorem, per_test = _per_test(degree, count, why)
    needed = MOST_TESTS
    if per_test < 1:
        needed = math.ceil(math.log(probability) / math.log(per_test))
        needed = min(max(needed, LEAST_COUNTED), MOST_TESTS)
    choices = walks[0].choices or walks[1].choices
    tests = max(needed, LEAST_TESTS_WITH_CHOICES if choices else LEAST_TESTS)
    counted = needed if choices else tests
    return Bound(theorem, degree, count, per_test, tests, counted, why, (ours, theirs))


def _analyses(
    program: Program, plan: Plan, units: Units, blind: frozenset[str]
) -> tuple[Analysis, Analysis]:
    roots = [r for k in plan.kernels for r in k.roots]
    bound = bound_labels(*roots, *(o.term for o in program.outputs))
    ours, theirs = (Analysis(units, frozenset(bound), blind=blind) for _ in range(2))
    ours.of_program(program)
    theirs.of_plan(plan)
    return ours, theirs


def _collisions(*opaque: Mapping[str, tuple[int, int]]) -> int:
    """What the chance that two operands of an opaque function collide adds to D."""
    total = 0
    for name in {n for o in opaque for n in o}:
        found = [o[name] for o in opaque if name in o]
        count = sum(n for n, _ in found)
        total += count * (count - 1) // 2 * max(degree for _, degree in found)
    return total


def _per_test(degree: int, exponentials: int, why: str) -> tuple[str, float]:
    if not exponentials:
        return "Schwartz-Zippel", min(1.0, degree / P)
    simple = min(1.0, degree / Q)
    if not why and simple <= MOST_PER_TEST:
        return "Theorem A", simple
    k = exponentials
    return "Theorem 2", min(1.0, 8 * degree * k**4 / Q + Q ** (-1 / k**2))
