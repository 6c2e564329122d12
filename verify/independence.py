"""Whether the atoms of a program's exponents are jointly uniform (for Theorem A).

For one output element the atoms' elements that matter differ in the labels that some
reduction of the program binds. Group the atoms by an input that all of a group are
linear in and that no other atom reads. Given all other inputs, the group's elements are
M·(the input) + constants; they are jointly uniform over Z_Q exactly if M has full row
rank. The rank is computed at a random point; it is less at another random point with
probability at most (rows · degree)/Q, since some minor is a non-zero polynomial: that
is added to the degree of the bound.

Opaque values inside atoms are random by assumption, and are treated as inputs here.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from ugraph.ops import OPS, Kind
from ugraph.program import Program, Tensor, axes_shape, bound_labels
from ugraph.terms import Access, Term, read, subterms
from ugraph.terms import replace as substitute
from verify.evaluate import Memory, Scope, draw
from verify.field import Array, Q
from verify.values import Float, Interpretation

SEED = 271828
MOST_COLUMNS = 4096


@dataclass(frozen=True, slots=True)
class Independence:
    """Whether atoms are jointly uniform: why not, or what it adds to the degree."""

    why: str
    degree: int = 0


def of(program: Program, atoms: frozenset[Term]) -> Independence:
    """Whether `atoms` of `program` (at its extents) are jointly uniform."""
    bound = set(bound_labels(*(o.term for o in program.outputs)))
    plain, opaque = _without_opaque(atoms, program.sizes)
    inputs = (*program.inputs, *opaque)
    groups: dict[str, list[Term]] = {}
    for atom in plain:
        name = _own_input(atom, plain, bound)
        if name is None:
            return Independence(f"no input of its own makes `{atom}` uniform")
        groups.setdefault(name, []).append(atom)
    degree = 0
    for name, group in groups.items():
        if any(name in _reads(a) for a in plain if a not in group):
            return Independence(f"`{name}` is in exponents of two kinds")
        matrix = _coefficients(program, inputs, name, group, bound)
        if matrix is None or rank(matrix) < len(matrix):
            return Independence(
                f"`{name}` does not make {len(group)} exponents uniform"
            )
        degree += len(matrix) * max(_degree(a) for a in group)
    return Independence("", degree)


def _without_opaque(
    atoms: frozenset[Term], sizes: Mapping[str, int]
) -> tuple[list[Term], list[Tensor]]:
    """The atoms with opaque values as reads of further inputs, and those inputs."""
    table: dict[Term, Term] = {}
    tensors: dict[str, Tensor] = {}
    for t in subterms(*sorted(atoms, key=lambda t: t.digest)):
        if _is_opaque(t):
            name, axes = f"opaque {t.digest}", tuple((x,) for x in t.labels)
            table[t] = read(name, axes)
            tensors[name] = Tensor(name, "f32", axes_shape(axes, sizes))
    plain = {substitute(a, table): None for a in sorted(atoms, key=lambda t: t.digest)}
    return list(plain), list(tensors.values())


def _is_opaque(term: Term) -> bool:
    if term.op == "pow":
        return Fraction(term.attr).denominator != 1  # pyrefly: ignore
    field = OPS[term.op].field
    return (
        field in ("opaque", "exp", "logistic", "tanh")
        and OPS[term.op].kind is not Kind.LEAF
    )


def _reads(term: Term) -> set[str]:
    found = (t.attr for t in subterms(term))
    return {a.tensor for a in found if isinstance(a, Access) and a.yields == "float"}


def _own_input(atom: Term, atoms: list[Term], bound: set[str]) -> str | None:
    """An input that `atom`, and every atom that reads it, is linear in."""
    usable = [
        name
        for name in sorted(_reads(atom))
        if all(_power_of(a, name) == 1 for a in atoms if name in _reads(a))
    ]
    widest = {n: max(_width(atom, n, bound), default=(0, 0)) for n in usable}
    return max(usable, key=lambda n: widest[n], default=None)


def _width(atom: Term, name: str, bound: set[str]) -> list[tuple[int, int]]:
    """How many of the atom's bound labels, and labels, each read of an input has."""
    own = set(atom.labels)
    return [
        (len(set(t.labels) & own & bound), len(set(t.labels) & own))
        for t in subterms(atom)
        if isinstance(t.attr, Access) and t.attr.tensor == name
    ]


def _power_of(term: Term, name: str) -> int:
    """The degree of `term` in an input; 2 also stands for "not polynomial"."""
    if isinstance(term.attr, Access):
        return int(term.attr.tensor == name)
    if name not in _reads(term):
        return 0
    powers = [_power_of(a, name) for a in term.args]
    if term.op in ("add", "sum", "select"):
        return max(powers)
    return sum(powers) if term.op == "mul" else 2


def _degree(term: Term) -> int:
    """The degree of a polynomial term in all inputs; large where it is none."""
    if isinstance(term.attr, Access):
        return 1
    degrees = [_degree(a) for a in term.args]
    if term.op == "mul":
        return sum(degrees)
    if term.op == "pow":
        return 64 * max(degrees)
    return max(degrees, default=0)


def _coefficients(
    program: Program,
    inputs: tuple[Tensor, ...],
    name: str,
    group: list[Term],
    bound: set[str],
) -> Array | None:
    """How the group's elements of one output element depend on an input's elements.

    The trials are the unit vectors of that input, and zero. Equal elements count once.
    """
    (tensor,) = (t for t in inputs if t.name == name)
    columns = math.prod(tensor.shape)
    if columns > MOST_COLUMNS:
        return None
    memory = Memory(columns + 1)
    for t, value in zip(inputs, draw(inputs, 1, SEED).values(), strict=True):
        memory.put(t, value)
    units = np.zeros((columns + 1, columns), np.uint64)
    units[np.arange(columns), np.arange(columns)] = 1
    units = units.reshape((columns + 1, *tensor.shape))
    memory.put(tensor, Float(units, units))
    scope = Scope(program.sizes, {}, memory, Interpretation(SEED, columns + 1))
    rows = []
    for atom in group:
        value = scope.value(atom)
        if not isinstance(value, Float) or value.q is None:
            return None
        at = tuple(slice(None) if x in bound else 0 for x in atom.labels)
        picked = value.q[(slice(None), *at)].reshape(len(value.q), -1)
        if len(picked) != columns + 1:
            return None
        rows.append(np.vstack([(picked[:-1] + (Q - picked[-1])) % Q, picked[-1:]]))
    distinct = np.unique(np.concatenate(rows, axis=1).T, axis=0)
    return distinct[:, :-1]


def rank(matrix: Array) -> int:
    """The rank of a matrix over Z_Q."""
    rows = matrix.copy()
    found = 0
    for column in range(rows.shape[1]):
        candidates = np.flatnonzero(rows[found:, column])
        if not candidates.size:
            continue
        pivot = found + int(candidates[0])
        rows[[found, pivot]] = rows[[pivot, found]]
        inverse = pow(int(rows[found, column]), -1, Q)
        rows[found] = rows[found] * np.uint64(inverse) % Q
        below = rows[found + 1 :, column].copy()
        rows[found + 1 :] = (rows[found + 1 :] + (Q - below)[:, None] * rows[found]) % Q
        found += 1
        if found == len(rows):
            break
    return found
