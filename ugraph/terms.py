"""Terms: what a tensor computes, with every axis named by an index label.

A term is an immutable, interned expression over *index labels* (einsum style): the
labels of a map are the union of its operands' labels, a reduction binds labels, a
broadcast is the absence of a label. A term knows no sizes: one term stands for the
program at every size. Equal terms are the same object, and a term's `digest` is the
same in every process, so that sorting by it is deterministic.

Quotients and roots are products with rational powers: a / b is `mul(a, pow(b, -1))` and
rsqrt(x) is `pow(x, -1/2)`. Nothing cancels: x - x and x / x stay what they are, because
floating-point infinities and NaN make such identities false.
"""

import hashlib
import weakref
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from math import isnan
from typing import NamedTuple, TypeAlias

from ugraph.ops import OPS, Kind

Attr: TypeAlias = object


class Fixed(NamedTuple):
    """One index of an axis factor, held fixed: position `index` of `size`."""

    index: int
    size: int


Factor: TypeAlias = str | Fixed
Axes: TypeAlias = tuple[tuple[Factor, ...], ...]


class Access(NamedTuple):
    """How a term reads a tensor in device memory.

    Attributes:
      tensor: the tensor's name.
      axes: for each axis of the tensor its factors, major first; an axis of size one
        has none.
      yields: `float` or `bool`.
    """

    tensor: str
    axes: Axes
    yields: str = "float"


class Reduction(NamedTuple):
    """Which labels a reduction binds, and what its operands may be rounded to.

    `dtype` is the dtype in which the program as written multiplies (`bf16`, `f16`,
    `f32`); a plan may round to it before a matrix unit, and never below it.
    """

    labels: tuple[str, ...]
    dtype: str = "f32"


class Ref(NamedTuple):
    """A value of a block graph: an accumulator, now or before this iteration."""

    name: str
    labels: tuple[str, ...]
    when: str = "now"


class Extent(NamedTuple):
    """The extent of a label, as a value that no label varies."""

    label: str


class Term:
    """An interned expression over labelled tensors. Make one with the functions below.

    Attributes:
      op: name of its row in the op table.
      args: operand terms.
      attr: the op's parameter (`Access`, `Reduction`, `Ref`, a `Fraction`, a label...).
      labels: free index labels, sorted.
      digest: hash of the structure, equal in every process.
    """

    __slots__ = ("__weakref__", "args", "attr", "digest", "labels", "op")

    op: str
    args: tuple["Term", ...]
    attr: Attr
    labels: tuple[str, ...]
    digest: str

    def __repr__(self) -> str:
        return show(self)

    def __reduce__(self) -> tuple[Callable[..., "Term"], tuple[object, ...]]:
        return make, (self.op, self.args, self.attr)


_INTERNED: "weakref.WeakValueDictionary[tuple[object, ...], Term]" = (
    weakref.WeakValueDictionary()
)


def make(op: str, args: Iterable[Term] = (), attr: Attr = None) -> Term:
    """The term of `op` over `args`; the only constructor.

    Raises:
      KeyError: when the op table has no such op.
    """
    args = tuple(args)
    row = OPS[op]
    if row.commutative:
        args = tuple(sorted(args, key=lambda t: t.digest))
    key = (op, tuple(map(id, args)), type(attr), attr)
    found = _INTERNED.get(key)
    if found is not None:
        return found
    term = Term()
    term.op, term.args, term.attr = op, args, attr
    term.labels = _labels(row.kind, args, attr)
    text = f"{op}|{attr!r}|{'|'.join(a.digest for a in args)}"
    term.digest = hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
    return _INTERNED.setdefault(key, term)


def _labels(kind: Kind, args: tuple[Term, ...], attr: Attr) -> tuple[str, ...]:
    free = {label for a in args for label in a.labels}
    match attr:
        case Access(axes=axes):
            free = {f for axis in axes for f in axis if isinstance(f, str)}
        case Ref(labels=labels):
            free = set(labels)
        case Reduction(labels=labels) if kind is Kind.REDUCE:
            free -= set(labels)
        case str() if kind is Kind.LEAF:
            free = {attr}
        case Extent():
            free = set()
    return tuple(sorted(free))


def read(tensor: str, axes: Axes, yields: str = "float") -> Term:
    """The elements of `tensor`, its axes named by `axes`."""
    return make("input", (), Access(tensor, axes, yields))


def lit(value: Fraction | float) -> Term:
    """A floating-point literal, exact; infinities stay floats.

    Raises:
      ValueError: for NaN.
    """
    if isinstance(value, float) and value in (float("inf"), float("-inf")):
        return make("lit", (), value)
    if isinstance(value, float) and isnan(value):
        raise ValueError("a NaN literal has no meaning in a term")
    return make("lit", (), Fraction(value))


def integer(value: int) -> Term:
    """An integer literal."""
    return make("int", (), value)


def iota(label: str) -> Term:
    """The position along `label`, an integer."""
    return make("iota", (), label)


def extent(label: str) -> Term:
    """The extent of `label`, an integer."""
    return make("extent", (), Extent(label))


def ref(name: str, labels: Iterable[str], when: str = "now") -> Term:
    """An accumulator's value inside a block graph."""
    return make("ref", (), Ref(name, tuple(sorted(labels)), when))


def add(*args: Term) -> Term:
    """The sum of the operands; of one operand, itself."""
    return args[0] if len(args) == 1 else make("add", args)


ONE = lit(Fraction(1))
MINUS_ONE = lit(Fraction(-1))


def mul(*args: Term) -> Term:
    """The product of the operands without literal ones; of none, the literal one."""
    args = tuple(a for a in args if a is not ONE)
    if not args:
        return ONE
    return args[0] if len(args) == 1 else make("mul", args)


def neg(x: Term) -> Term:
    """-x, as a product with the literal minus one (integer or float)."""
    return mul(integer(-1) if yields(x) == "int" else MINUS_ONE, x)


def power(x: Term, exponent: Fraction | int) -> Term:
    """The rational power of x."""
    exponent = Fraction(exponent)
    return x if exponent == 1 else make("pow", (x,), exponent)


def divide(x: Term, y: Term) -> Term:
    """The quotient x / y."""
    return mul(x, power(y, -1))


def exp(x: Term) -> Term:
    """The exponential."""
    return make("exp", (x,))


def finite(x: Term) -> Term:
    """The operand where it is not -inf, else zero: a safe shift for an exponential."""
    return make("finite", (x,))


def reduce(op: str, x: Term, labels: Iterable[str], dtype: str = "f32") -> Term:
    """The reduction of `x` by `op` (`sum`, `max`, `min`) over those labels it has."""
    bound = tuple(sorted(set(labels) & set(x.labels)))
    return make(op, (x,), Reduction(bound, dtype)) if bound else x


def yields(term: Term) -> str:
    """The type a term has: `float`, `bool` or `int`."""
    row = OPS[term.op]
    if isinstance(term.attr, Access):
        return term.attr.yields
    return yields(term.args[-1]) if row.yields == "same" else row.yields


def rebuild(term: Term, args: tuple[Term, ...]) -> Term:
    """`term` with other operands; reductions drop labels that are gone."""
    if all(a is b for a, b in zip(args, term.args, strict=True)):
        return term
    if isinstance(term.attr, Reduction):
        return reduce(term.op, args[0], term.attr.labels, term.attr.dtype)
    if term.op == "mul":
        return mul(*args)
    return make(term.op, args, term.attr)


def subterms(*roots: Term) -> tuple[Term, ...]:
    """Every distinct subterm, operands first; deterministic."""
    seen: dict[Term, None] = {}

    def visit(term: Term) -> None:
        if term not in seen:
            for a in term.args:
                visit(a)
            seen[term] = None

    for root in roots:
        visit(root)
    return tuple(seen)


def replace(term: Term, table: Mapping[Term, Term]) -> Term:
    """`term` with every occurrence of a key of `table` replaced, outermost first."""
    done: dict[Term, Term] = {}

    def visit(t: Term) -> Term:
        if t in table:
            return table[t]
        if t not in done:
            done[t] = rebuild(t, tuple(visit(a) for a in t.args))
        return done[t]

    return visit(term)


def factors(term: Term) -> tuple[Term, ...]:
    """The factors of a product, nested products opened; of others, the term itself."""
    if term.op != "mul":
        return (term,)
    return tuple(f for a in term.args for f in factors(a))


def is_reduction(term: Term) -> bool:
    """Whether the term's op binds labels."""
    return OPS[term.op].kind is Kind.REDUCE


def show(term: Term) -> str:
    """The term as text, such as `sum[d](in0[b,d] * in1[d,n])`."""
    a = [show(x) for x in term.args]
    text = f"{term.op}({', '.join(a)})"
    match term.op, term.attr:
        case _, Access(tensor, axes):
            text = f"{tensor}[{','.join(_axis(x) for x in axes)}]"
        case _, Ref(name, _, when):
            text = name if when == "now" else f"{name}.before"
        case _, Reduction(labels):
            text = f"{term.op}[{','.join(labels)}]({a[0]})"
        case "extent", Extent(label):
            text = f"extent[{label}]"
        case "iota", label:
            text = f"iota[{label}]"
        case "lit" | "int", value:
            text = _number(value)
        case "add", _:
            text = f"({' + '.join(a)})"
        case "mul", _:
            text = f"({' * '.join(a)})"
        case "pow", exponent:
            text = f"{a[0]}^({exponent})"
    return text


def _number(value: Attr) -> str:
    if isinstance(value, Fraction) and len(str(value)) > 8:
        return f"{float(value):.6g}"
    return str(value)


def _axis(axis: tuple[Factor, ...]) -> str:
    names = [f if isinstance(f, str) else f"{f.index}/{f.size}" for f in axis]
    return names[0] if len(names) == 1 else f"({' '.join(names)})"
