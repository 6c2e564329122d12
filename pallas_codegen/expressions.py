"""From terms to Python expressions and statements, the part that backends share.

A `Writer` writes the statements of one function body. Every value knows its axes
(labels) and dtype; operands are aligned by inserting axes. How an op is written comes
from its row of the op table; what is written here by hand is how sums, products and
powers read best.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Final

from pallas_codegen.layout import Layout
from pallas_codegen.naming import Namer
from pallas_codegen.source import EmitError
from ugraph.ops import OPS, Kind
from ugraph.terms import MINUS_ONE, Access, Extent, Reduction, Ref, Term, subterms

LONGEST_INLINE = 44
DTYPES: Final = {
    "bf16": "jnp.bfloat16",
    "f16": "jnp.float16",
    "f32": "jnp.float32",
    "bool": "jnp.bool_",
    "i32": "jnp.int32",
}
NEUTRAL: Final = {"sum": "0.0", "max": "-jnp.inf", "min": "jnp.inf"}
FLOATS = ("f32", "bf16", "f16")


@dataclass(frozen=True, slots=True)
class Value:
    """An expression.

    Attributes:
      text: Python source.
      axes: labels of its axes.
      dtype: `f32`, `bf16`, `f16`, `i32`, `bool`, or `weak` for a Python number.
      atomic: needs no parentheses as an operand.
    """

    text: str
    axes: tuple[str, ...]
    dtype: str
    atomic: bool = True

    @property
    def operand(self) -> str:
        """The text as an operand."""
        return self.text if self.atomic else f"({self.text})"


class Writer(ABC):
    """Writes statements that compute terms; one per scope of a function."""

    def __init__(self, layout: Layout, namer: Namer, uses: Counter[Term]) -> None:
        self.layout, self.namer, self.uses = layout, namer, uses
        self.lines: list[str] = []
        self.values: dict[Term, Value] = {}
        self._widened: dict[Value, Value] = {}

    # What a backend decides.

    @abstractmethod
    def load(self, term: Term, access: Access) -> Value:
        """The tile of a tensor in memory."""

    @abstractmethod
    def reduction(self, term: Term, attr: Reduction) -> Value:
        """A reduction, matrix products among them."""

    @abstractmethod
    def index(self, label: str) -> Value:
        """The position along a label."""

    def scope(self, term: Term) -> "Writer":
        """The scope that computes `term`; this one unless the backend hoists."""
        del term
        return self

    # What they share.

    def value(self, term: Term) -> Value:
        """The value of a term, computed once, in the scope it belongs to."""
        home = self.scope(term)
        if term not in home.values:
            value = home.named(term, home.expression(term))
            if home is not self and value.axes and not value.text.isidentifier():
                value = home.assign(_wish(term), value)
            home.values[term] = value
        return home.values[term]

    def named(self, term: Term, value: Value) -> Value:
        """A variable for values used again or long; else the expression itself."""
        if value.text.isidentifier() or (not value.axes and value.dtype == "weak"):
            return value
        short = len(value.text) <= LONGEST_INLINE
        if short and self.uses[term] <= 1 and OPS[term.op].kind is Kind.MAP:
            return value
        return self.assign(_wish(term), value)

    def assign(self, wish: str, value: Value) -> Value:
        """A new variable that holds the value."""
        name = self.namer.fresh(wish)
        self.lines += wrapped(f"{name} = {value.text}", 76)
        return replace(value, text=name, atomic=True)

    def expression(self, term: Term) -> Value:
        """The expression of a term over its operands' values."""
        match term.attr:
            case Access():
                return self.load(term, term.attr)
            case Reduction():
                return self.reduction(term, term.attr)
            case Extent(label):
                return Value(str(self.layout.extents[label]), (), "weak")
            case Ref():
                raise EmitError(f"{term} is not defined here")
        if term.op == "iota":
            return self.index(str(term.attr))
        if term.op in ("lit", "int"):
            return literal(term)
        return self._map(term)

    def _map(self, term: Term) -> Value:
        axes = self.layout.axes(term.labels)
        row = OPS[term.op]
        if term.op in ("add", "mul"):
            text = (
                self._sum(term, axes) if term.op == "add" else self._product(term, axes)
            )
        elif term.op == "pow":
            text = _power(self.operand(term.args[0], axes), Fraction(term.attr))  # pyrefly: ignore
        else:
            args = [self.operand(a, axes) for a in term.args]
            if row.emit.endswith("({0})"):
                args = [bare(a) for a in args]
            text = row.emit.format(*args, f=DTYPES["f32"])
        if term.op == "to_float" and self.value(term.args[0]).dtype == "weak":
            return Value(f"float({self.value(term.args[0]).text})", (), "weak")
        dtype = self._dtype(term, row.yields)
        return Value(text, axes, dtype, atomic=_is_atomic(text))

    def _dtype(self, term: Term, yields: str) -> str:
        if yields == "bool":
            return "bool"
        kinds = {self.value(a).dtype for a in term.args[-2:]}
        if yields == "int" or (kinds & {"i32", "bool"} and yields == "same"):
            return "i32" if "i32" in kinds else "bool"
        return "weak" if kinds == {"weak"} and term.op in ("add", "mul") else "f32"

    def _sum(self, term: Term, axes: tuple[str, ...]) -> str:
        plus, minus = [], []
        for a in term.args:
            negated = _negated(a)
            (plus if negated is None else minus).append(negated or a)
        if not plus:
            return "-" + " - ".join(self.operand(a, axes) for a in minus)
        text = " + ".join(self.operand(a, axes) for a in plus)
        return " - ".join([text, *(self.operand(a, axes) for a in minus)])

    def _product(self, term: Term, axes: tuple[str, ...]) -> str:
        above = [a for a in term.args if _inverted(a) is None]
        below = [b for b in map(_inverted, term.args) if b is not None]
        if MINUS_ONE in above and len(above) > 1:
            above.remove(MINUS_ONE)
            text = "-" + " * ".join(self.operand(a, axes) for a in above)
        else:
            text = " * ".join(self.operand(a, axes) for a in above) or "1.0"
        return " / ".join([text, *(self.operand(b, axes) for b in below)])

    def operand(self, term: Term, axes: tuple[str, ...]) -> str:
        """A term's value as an operand of an op with these axes, floats in float32."""
        return self.align(self.widened(term), axes)

    def widened(self, term: Term) -> Value:
        """A term's value, floats in float32."""
        return self.scope(term).wide(self.value(term))

    def wide(self, value: Value) -> Value:
        """A value in float32 if it is a narrower float."""
        if value.dtype not in ("bf16", "f16"):
            return value
        if value not in self._widened:
            cast = self.cast(value, "f32")
            self._widened[value] = self.assign(f"{value.text}_f32", cast)
        return self._widened[value]

    def cast(self, value: Value, dtype: str) -> Value:
        """A value as another dtype."""
        if value.dtype == dtype:
            return value
        if value.dtype == "weak":
            return Value(f"{DTYPES[dtype]}({value.text})", (), dtype)
        text = f"{value.operand}.astype({DTYPES[dtype]})"
        return Value(text, value.axes, dtype)

    def align(self, value: Value, axes: tuple[str, ...]) -> str:
        """The value's text with axes inserted so that it broadcasts to `axes`."""
        return align(value.operand, value.axes, axes)

    def broadcast(self, value: Value, axes: tuple[str, ...]) -> Value:
        """The value with exactly `axes`."""
        if value.axes == axes:
            return value
        text = align(value.text if not value.axes else value.operand, value.axes, axes)
        shape = shape_text(self.layout.shape(axes))
        return Value(f"jnp.broadcast_to({text}, {shape})", axes, value.dtype)

    def transposed(self, value: Value, axes: tuple[str, ...]) -> Value:
        """The value with its axes in another order."""
        if value.axes == axes:
            return value
        if len(axes) == 2:
            return Value(f"{value.operand}.T", axes, value.dtype)
        order = ", ".join(str(value.axes.index(x)) for x in axes)
        return Value(f"jnp.transpose({value.text}, ({order}))", axes, value.dtype)


def align(
    text: str, have: tuple[str, ...], want: tuple[str, ...], *, full: bool = False
) -> str:
    """`text`, an operand with axes `have`, indexed so that it broadcasts to `want`.

    Leading axes are left to broadcasting unless `full`.
    """
    if not have or (
        have == want[len(want) - len(have) :] and not (full and have != want)
    ):
        return text
    first = 0 if full else want.index(have[0])
    index = ", ".join(":" if x in have else "None" for x in want[first:])
    return f"{text}[{index}]"


def shape_text(shape: Sequence[int]) -> str:
    """A shape as Python source."""
    return "(" + ", ".join(map(str, shape)) + ("," if len(shape) == 1 else "") + ")"


def literal(term: Term) -> Value:
    """A literal as Python source: the nearest float64, or an integer."""
    if term.op == "int":
        return Value(str(term.attr), (), "weak", atomic=term.attr >= 0)  # pyrefly: ignore
    if term.attr in (float("inf"), float("-inf")):
        sign = "-" if term.attr == float("-inf") else ""
        return Value(f"{sign}jnp.inf", (), "weak", atomic=not sign)
    number = float(term.attr)  # pyrefly: ignore
    return Value(repr(number), (), "weak", atomic=number >= 0)


def count_uses(roots: Sequence[Term]) -> Counter[Term]:
    """How often each term is an operand; a root counts once more."""
    uses = Counter(roots)
    for term in subterms(*roots):
        uses.update(term.args)
    return uses


def _negated(term: Term) -> Term | None:
    """X where the term is -1 · x."""
    if term.op == "mul" and len(term.args) == 2 and MINUS_ONE in term.args:
        return next((a for a in term.args if a is not MINUS_ONE), MINUS_ONE)
    return None


def _inverted(term: Term) -> Term | None:
    """X where the term is 1 / x."""
    return term.args[0] if term.op == "pow" and term.attr == -1 else None


def _power(base: str, exponent: Fraction) -> str:
    simple = {
        Fraction(-1): f"1.0 / {base}",
        Fraction(1, 2): f"jnp.sqrt({bare(base)})",
        Fraction(-1, 2): f"jax.lax.rsqrt({bare(base)})",
    }
    if exponent == 2 and base.isidentifier():
        return f"{base} * {base}"
    if exponent in simple:
        return simple[exponent]
    if exponent.denominator == 1:
        return f"jax.lax.integer_pow({bare(base)}, {exponent.numerator})"
    return f"{base} ** {float(exponent)!r}"


def bare(text: str) -> str:
    """The text without parentheses around all of it."""
    return text[1:-1] if text.startswith("(") and _closing(text) else text


def _is_atomic(text: str) -> bool:
    """Whether the text is one name or one call."""
    if text.isidentifier():
        return True
    head, bracket, _ = text.partition("(")
    named = bool(bracket) and head.replace(".", "").replace("_", "a").isalnum()
    return named and _closing(text)


def _closing(text: str) -> bool:
    """Whether the first parenthesis is closed by the last character."""
    depth = 0
    for i, c in enumerate(text):
        depth += (c == "(") - (c == ")")
        if c == ")" and depth == 0:
            return i == len(text) - 1
    return False


def indented(lines: Iterable[str]) -> list[str]:
    """The lines one level deeper."""
    return [f"    {line}" if line else "" for line in lines]


def wrapped(line: str, width: int = 88) -> list[str]:
    """A statement, its outermost call broken at the commas where it is too long."""
    start = line.find("(", 1)
    if len(line) <= width or start < 0 or not line.endswith(")"):
        return [line]
    parts, depth, begin, quoted = [], 0, start + 1, False
    for i in range(start, len(line)):
        quoted ^= line[i] == '"'
        if quoted:
            continue
        depth += (line[i] in "([{") - (line[i] in ")]}")
        if depth == 0 and i < len(line) - 1:
            return [line]
        if (line[i] == "," and depth == 1) or i == len(line) - 1:
            parts.append(line[begin:i].strip())
            begin = i + 1
    margin = " " * (len(line) - len(line.lstrip()))
    return [
        line[: start + 1],
        *(f"{margin}    {part}," for part in parts if part),
        f"{margin})",
    ]


def _wish(term: Term) -> str:
    if isinstance(term.attr, Access):
        return term.attr.tensor
    names = {"add": "total", "mul": "product", "pow": "power", "iota": "position"}
    names |= {"sum": "summed", "max": "largest", "min": "smallest"}
    return names.get(term.op, term.op)
