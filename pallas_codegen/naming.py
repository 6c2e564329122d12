"""Names of variables in emitted code: readable, and never twice the same."""

import keyword
import re

RESERVED = frozenset(
    {"jax", "jnp", "pl", "plgpu", "run", "reference", "check", "interpret", "block"}
)


class Namer:
    """Gives out names of one function."""

    def __init__(self, taken: frozenset[str] = RESERVED) -> None:
        self._taken = set(taken)

    def fresh(self, wish: str) -> str:
        """`wish`, with a number where it is taken or no identifier."""
        base = re.sub(r"\W", "_", wish, flags=re.ASCII) or "v"
        if base[0].isdigit() or keyword.iskeyword(base):
            base = f"{base}_" if keyword.iskeyword(base) else f"v{base}"
        name, number = base, 0
        while name in self._taken:
            number += 1
            name = f"{base}_{number}"
        self._taken.add(name)
        return name
