"""The exceptions and the warning that users of mirage_jax may see.

Meanings are fixed: `UnsupportedError` says "this cannot be optimized" and is caught
inside (the program stays with XLA), `ConfigError` says "you called it wrong" and never
is. Errors of the user's own function pass through untouched.
"""


class MirageError(Exception):
    """Base of every exception of this package."""


class UnsupportedError(MirageError, NotImplementedError):
    """Something cannot be optimized; the caller leaves it to XLA and says so."""


class ConfigError(MirageError, ValueError):
    """A setting has a value that is not allowed; says which ones are."""


class DatabaseError(MirageError):
    """The winners database cannot be read or written (only in strict mode)."""


class MissError(MirageError):
    """`Config(on_miss="error")` and the winners database has no entry."""


class RegionError(MirageError):
    """Optimizing a region failed (only in strict mode).

    Args:
      where: the region: its number, its path and the user's source line.
      operation: the equation or the stage that failed.
      reason: what went wrong.
    """

    def __init__(self, where: str, operation: str, reason: str) -> None:
        super().__init__(
            f"cannot optimize {where}: {operation}: {reason}. Without "
            "`Config(strict=True)` the original program runs instead."
        )
        self.where = where
        self.operation = operation
        self.reason = reason

    def __reduce__(self) -> tuple[type, tuple[str, str, str]]:
        """Pickles by the arguments it was made from."""
        return type(self), (self.where, self.operation, self.reason)


class MirageWarning(UserWarning):
    """An optimization was lost; the program runs as `jax.jit` would run it."""
