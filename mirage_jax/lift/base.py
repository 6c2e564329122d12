"""What a lifting rule is, and the table of them.

A rule knows one primitive in three ways: whether an equation of it can be lifted at all
(`check`), which axes it makes the same (`link`), and which uses of its operands a use
of its result needs and what is built of them (`step`). Rules never call each other: the
driver walks uses with a stack of its own, so that depth is no limit.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from mirage_jax.lift.axes import Atoms, Factorization
from mirage_jax.lift.constants import FLOATS
from mirage_jax.lift.flatten import DTYPES, Node, Value
from ugraph.ops import BY_PRIMITIVE, Kind
from ugraph.terms import Axes, Term

LETTERS = "abcdefghijklmnopqrstuvwxyz"


class Demand(NamedTuple):
    """A use of a value: its axes named by labels."""

    value: Value
    labels: Axes


class Step(NamedTuple):
    """How a use is made: of which other uses, and by what."""

    needs: tuple[Demand, ...]
    build: Callable[..., Term]


class Namer:
    """Allots labels: each atom has a letter, and numbered ones for further roles.

    Attributes:
      extents: every label allotted so far and its extent, in order.
    """

    def __init__(self, factors: Factorization) -> None:
        self.extents: dict[str, int] = {}
        self._factors = factors
        self._letters: dict[int, str] = {}

    def label(self, atom: int, taken: Iterable[str]) -> str:
        """The first label of `atom` that is not taken."""
        if atom not in self._letters:
            count, i = divmod(len(self._letters), len(LETTERS))
            self._letters[atom] = LETTERS[i] * (count + 1)
        letter, taken, number = self._letters[atom], set(taken), 0
        while (name := f"{letter}{number or ''}") in taken:
            number += 1
        self.extents.setdefault(name, self._factors.size(atom))
        return name

    def labels(self, axes: Iterable[Atoms], taken: Iterable[str]) -> Axes:
        """A label for every atom of every axis, all different and none taken."""
        taken = set(taken)
        named = []
        for axis in axes:
            names = []
            for atom in self._factors.leaves(axis):
                names.append(self.label(atom, taken))
                taken.add(names[-1])
            named.append(tuple(names))
        return tuple(named)


@dataclass(frozen=True)
class Context:
    """What a step may ask: the finished factorization and the namer."""

    factors: Factorization
    namer: Namer


Link: TypeAlias = Callable[[Node, Factorization], None]
Check: TypeAlias = Callable[[Node], str | None]
Build: TypeAlias = Callable[[Node, int, Axes, Context], Step]


@dataclass(frozen=True)
class Rule:
    """How one primitive lifts."""

    check: Check
    link: Link
    step: Build


RULES: dict[str, Rule] = {}


def register(names: str, rule: Rule) -> None:
    """Adds a rule for primitives, their names separated by spaces.

    Raises:
      ValueError: when one of them has a rule.
    """
    for name in names.split():
        if name in RULES:
            raise ValueError(f"primitive `{name}` already has a lifting rule")
        RULES[name] = rule


def anything(node: Node) -> str | None:
    """The check of rules that need no more than the common one."""
    del node
    return None


def same_kind(node: Node) -> str | None:
    """Refuses nothing but a change of dtype."""
    result = node.results[0].dtype
    kept = all(v.dtype == result for v in node.operands)
    return None if kept else "its operands differ in dtype"


def all_floats(node: Node) -> str | None:
    """Refuses operands and results that are not floating point."""
    if all(v.dtype in FLOATS for v in (*node.operands, *node.results)):
        return None
    return "it is lifted on floating-point arrays only"


def common_refusal(node: Node) -> str | None:
    """What no rule takes: unknown dtypes, empty arrays, placement, contexts."""
    known = frozenset(DTYPES.values())
    for v in (*node.operands, *node.results):
        if v.dtype not in known:
            return f"dtype {v.dtype} has no meaning in the op table"
        if 0 in v.shape:
            return "an array is empty"
    for name in ("sharding", "out_sharding"):
        if node.params.get(name) is not None:
            return f"its `{name}` is part of its meaning"
    context = getattr(node.source, "ctx", None)
    if getattr(context, "compute_type", None) is not None:
        return "it is placed by `compute_on`"
    if node.primitive not in RULES and not is_elementwise(node.primitive):
        return "the op table has no meaning for it"
    return None


def is_elementwise(primitive: str) -> bool:
    """Whether a row of the op table lifts this primitive elementwise."""
    row = BY_PRIMITIVE.get(primitive)
    return row is not None and row.kind is Kind.MAP
