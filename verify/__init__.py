"""Proof of equality of plans with programs, and the floating-point numerics guard.

`check` evaluates a plan as scheduled, and the program it must equal, at random points
of two finite fields, and says how likely a wrong plan is to pass. `guard` compares
emitted code with the program in floating point. Neither knows the emitter: that checker
and emitter are independent is the soundness argument.
"""

from verify.certificate import CertificateError as CertificateError
from verify.certificate import Verdict as Verdict
from verify.equivalence import check as check
from verify.equivalence import recheck as recheck
from verify.numbers import emulate as emulate
from verify.numbers import reference as reference
from verify.numeric import NumericVerdict as NumericVerdict
from verify.numeric import guard as guard

__all__ = [
    "CertificateError",
    "NumericVerdict",
    "Verdict",
    "check",
    "emulate",
    "guard",
    "recheck",
    "reference",
]
