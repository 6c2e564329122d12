"""Values over the fields, and the random interpretation they are computed under.

The first axis of every array is the trial (or of size one: the same in all trials).
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from ugraph.terms import Term
from verify import field as ff
from verify.field import Array, P, Q


class UnsupportedError(NotImplementedError):
    """A construct has no meaning over the fields; the message says which."""


@dataclass(frozen=True, slots=True)
class Float:
    """Floats: one element per trial and position.

    Attributes:
      p: residues mod P.
      q: residues mod Q; None after an exponential.
      inf: -1 or 1 where infinite, else 0; None when nowhere infinite.
      bad: where undefined; None when nowhere.
      sign: of a literal, its sign; else None.
    """

    p: Array
    q: Array | None
    inf: Array | None = None
    bad: Array | None = None
    sign: int | None = None

    def parts(self) -> tuple[Array | None, ...]:
        """The arrays, for functions that move elements about."""
        return (self.p, self.q, self.inf, self.bad)

    def move(self, how: Callable[[Array], Array]) -> "Float":
        """The value with its elements moved alike in every part."""
        moved = (None if x is None else how(x) for x in self.parts())
        return Float(*moved)  # pyrefly: ignore


Value: TypeAlias = Float | Array


@dataclass
class Interpretation:
    """Random but fixed: the root of unity, and all opaque functions.

    Attributes:
      seed: where the randomness comes from.
      trials: how many interpretations at once.
      blind: exponential ops that are taken to be opaque too.
      opaque: names of the ops interpreted as opaque functions so far.
      watched: terms whose values are noted.
      seen: the values they had: a hash over all trials of the residues mod Q.
    """

    seed: int
    trials: int
    blind: frozenset[str] = frozenset()
    opaque: dict[str, None] = field(default_factory=dict)
    watched: frozenset[Term] = frozenset()
    seen: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        """Draws the roots of unity and the key of every trial."""
        rng = np.random.default_rng([self.seed, 1])
        self.roots = ff.roots_of_unity(rng, self.trials)
        self.key = rng.integers(0, 1 << 63, size=self.trials, dtype=np.uint64)

    def note(self, term: Term, value: "Value") -> None:
        """Notes the values of a watched term."""
        if term in self.watched and isinstance(value, Float) and value.q is not None:
            keys = self.key.reshape((-1, *(1,) * (value.q.ndim - 1)))
            with np.errstate(over="ignore"):
                words = ff.mix(value.q + keys, 7).sum(axis=0)
            self.seen.update(np.unique(words).tolist())

    def hash(self, name: str, *values: Value, symmetric: bool = False) -> Array:
        """A 64-bit random function called `name` of the values, element by element."""
        rank = max((_leading(v).ndim for v in values), default=1)
        key = self.key.reshape((-1, *(1,) * (rank - 1)))
        state = ff.mix(key, int.from_bytes(name.encode()[:40], "little"))
        mixed = [ff.mix(word, 1) for v in values for word in _words(v)]
        if symmetric:
            with np.errstate(over="ignore"):
                return ff.mix(state + sum(mixed[1:], mixed[0]), 2)
        for number, word in enumerate(mixed):
            state = ff.mix(state ^ word, number)
        return state

    def function(self, name: str, *values: Value, symmetric: bool = False) -> Float:
        """A random float-valued function of the values."""
        bits = self.hash(name, *values, symmetric=symmetric)
        return Float(bits % P, ff.mix(bits, 3) % Q, None, bad_of(*values))


def _leading(value: Value) -> Array:
    return value.p if isinstance(value, Float) else value


def _words(value: Value) -> tuple[Array, ...]:
    """What an opaque function sees of a value, in one word each."""
    if not isinstance(value, Float):
        return (value.astype(np.int64).astype(np.uint64),)
    if value.inf is None:
        return (value.p,)
    with np.errstate(over="ignore"):
        mark = value.inf.astype(np.int64).astype(np.uint64) << np.uint64(40)
    return (np.where(value.inf != 0, np.uint64(0), value.p) + mark,)


def bad_of(*values: Value) -> Array | None:
    """Where any of the values is undefined."""
    return any_of(*(v.bad for v in values if isinstance(v, Float)))


def any_of(*marks: Array | None) -> Array | None:
    """Where any of the marks is set; None where there are none."""
    found = [m for m in marks if m is not None]
    return np.logical_or.reduce(np.broadcast_arrays(*found)) if found else None


def infinite(value: Float) -> Array:
    """-1, 0, 1: which infinity each element is, if any."""
    return np.zeros((1,) * value.p.ndim, np.int8) if value.inf is None else value.inf
