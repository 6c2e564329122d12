"""What emission yields: the text of a Python module that runs a plan."""

import hashlib
from dataclasses import dataclass


class EmitError(NotImplementedError):
    """A plan that a backend cannot emit; the message names the kernel and why."""


@dataclass(frozen=True, slots=True)
class Source:
    """A self-contained Python module.

    Its function `run(*inputs, interpret=False)` takes the plan's inputs in order and
    returns a tuple of its outputs. Run as a script, the module checks itself.

    Attributes:
      backend: `triton` or `xla`.
      text: the module.
    """

    backend: str
    text: str

    @property
    def key(self) -> str:
        """Hash of the text."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:16]
