"""Rules of elementwise primitives: the op table's, arithmetic, casts and selects."""

import math
from collections.abc import Callable, Iterable
from fractions import Fraction
from functools import reduce as fold_left
from typing import TypeAlias

from mirage_jax.lift.axes import Atoms, Factorization
from mirage_jax.lift.base import (
    Check,
    Context,
    Demand,
    Rule,
    Step,
    all_floats,
    register,
    same_kind,
)
from mirage_jax.lift.constants import FLOATS, Scalar
from mirage_jax.lift.flatten import Node, Refused, Value
from ugraph.ops import BY_PRIMITIVE
from ugraph.terms import (
    MINUS_ONE,
    Axes,
    Term,
    add,
    divide,
    integer,
    lit,
    make,
    mul,
    neg,
    power,
    yields,
)

Builder: TypeAlias = Callable[..., Term]

INFINITY = float("inf")
ZERO, UNIT = integer(0), integer(1)
TRUE = make("eq", (integer(0), integer(0)))
FALSE = make("ne", (integer(0), integer(0)))
LARGEST_POWER = 64
ROUNDING = "it relies on rounding: exact arithmetic makes it trivial"


def constant(number: Scalar, dtype: str) -> Term:
    """The term of a number.

    Raises:
      Refused: for NaN.
    """
    if dtype == "bool":
        return TRUE if number else FALSE
    if dtype == "i32":
        return integer(int(number))
    if math.isnan(number):
        raise Refused("a NaN constant has no meaning in a term")
    return lit(number)


def link_elementwise(node: Node, factors: Factorization) -> None:
    """Every operand has the result's axes, save those of size one; or is a scalar."""
    (result,) = node.results
    axes: list[Atoms | None] = [None] * len(result.shape)
    for v in node.operands:
        for i, mine in enumerate(factors.axes(v) if v.splat is None else ()):
            known = axes[i]
            if known is None and v.shape[i] == result.shape[i]:
                axes[i] = mine
            elif known is not None and mine:
                factors.unify(known, mine)
    sizes = zip(axes, result.shape, strict=True)
    factors.assign(result, (factors.fresh(n) if a is None else a for a, n in sizes))


def _fits(value: Value, shape: tuple[int, ...]) -> bool:
    """Whether an operand is a scalar, or has `shape` save for axes of size one."""
    if not value.shape:
        return True
    alike = len(value.shape) == len(shape)
    return alike and all(n in (1, m) for n, m in zip(value.shape, shape, strict=True))


def elementwise(check: Check, build: Callable[..., Term]) -> Rule:
    """The rule of a primitive that maps `build(node, *operands)` over elements."""

    def checked(node: Node) -> str | None:
        if all(_fits(v, node.results[0].shape) for v in node.operands):
            return check(node)
        return "its operands differ in shape"

    def step(node: Node, position: int, labels: Axes, context: Context) -> Step:
        del position, context
        needs = []
        for v in node.operands:
            own = zip(v.shape, labels, strict=False)
            needs.append(Demand(v, tuple(a if n > 1 else () for n, a in own)))
        return Step(tuple(needs), lambda *terms: build(node, *terms))

    return Rule(checked, link_elementwise, step)


def table_rule(primitive: str) -> Rule:
    """The rule of a primitive that is a row of the op table."""
    row = BY_PRIMITIVE[primitive]

    def check(node: Node) -> str | None:
        given = sorted(k for k, x in node.params.items() if x is not None)
        if given:
            return f"its parameters {given} have no meaning in the op table"
        if row.arity is not None and row.arity != len(node.operands):
            return f"op `{row.name}` takes {row.arity} operands"
        kinds = {v.dtype for v in node.operands}
        comparable = row.yields == "bool" and kinds == {"i32"}
        if comparable or kinds <= FLOATS:
            return None
        return "it is lifted on floating-point arrays only"

    def build(node: Node, *terms: Term) -> Term:
        if row.yields == "bool":
            _same_after_rounding(node, terms)
        for x, y in (terms, terms[::-1]) if len(terms) == 2 else ():
            if (row.name, x.op, x.attr) in _IDENTITIES:
                return y
        return make(row.name, terms)

    return elementwise(check, build)


_IDENTITIES = frozenset({("maximum", "lit", -INFINITY), ("minimum", "lit", INFINITY)})


def _same_after_rounding(node: Node, terms: tuple[Term, ...]) -> None:
    """Refuses to compare a value with a rounding of itself."""
    alike = len(terms) == 2 and terms[0] is terms[1] and yields(terms[0]) == "float"
    if alike and node.operands[0] is not node.operands[1]:
        raise Refused(ROUNDING)


def _signed(term: Term, sign: int) -> Iterable[tuple[Term, int]]:
    """The summands of a term and their signs, sums and negations opened."""
    if term.op == "add":
        for a in term.args:
            yield from _signed(a, sign)
    elif term.op == "mul" and len(term.args) == 2 and MINUS_ONE in term.args:
        yield from _signed(term.args[term.args[0] is MINUS_ONE], -sign)
    elif term.op == "lit" and term.attr < 0:  # pyrefly: ignore
        yield lit(-term.attr), -sign  # pyrefly: ignore
    elif term.op != "lit" or term.attr != 0:
        yield term, sign


def total(*terms: Term) -> Term:
    """The sum, unless exact arithmetic would cancel a summand.

    What is left of `(x + c) - x` or `x - float32(bfloat16(x))` is a rounding error, and
    a program that computes one means it.

    Raises:
      Refused: when a summand cancels.
    """
    if yields(terms[0]) == "float":
        found = [set(_signed(t, 1)) for t in terms]
        for i, mine in enumerate(found):
            for theirs in found[i + 1 :]:
                if any((t, -sign) in theirs for t, sign in mine):
                    raise Refused(ROUNDING)
        return add(*terms)
    return add(*([t for t in terms if t is not ZERO] or [ZERO]))


def product(x: Term, y: Term) -> Term:
    """The product; on integers without ones."""
    if UNIT in (x, y):
        return y if x is UNIT else x
    return mul(x, y)


def negated(x: Term) -> Term:
    """-x, folded on literals."""
    if x.op in ("lit", "int"):
        return make(x.op, (), -x.attr)  # pyrefly: ignore
    return neg(x)


def quotient(x: Term, y: Term) -> Term:
    """X / y; by a literal, the product with its exact reciprocal."""
    if y.op == "lit" and isinstance(y.attr, Fraction) and y.attr:
        return mul(x, lit(1 / y.attr))
    return divide(x, y)


def raised(x: Term, exponent: Fraction) -> Term:
    """X to a constant power."""
    return lit(Fraction(1)) if exponent == 0 else power(x, exponent)


def both(x: Term, y: Term) -> Term:
    """Conjunction, constants folded."""
    if FALSE in (x, y):
        return FALSE
    return y if x is TRUE else x if y is TRUE else make("and", (x, y))


def either(x: Term, y: Term) -> Term:
    """Disjunction, constants folded."""
    if TRUE in (x, y):
        return TRUE
    return y if x is FALSE else x if y is FALSE else make("or", (x, y))


def negation(x: Term) -> Term:
    """Not x, constants folded."""
    return {TRUE: FALSE, FALSE: TRUE}.get(x) or make("not", (x,))


def choose(condition: Term, on_true: Term, on_false: Term) -> Term:
    """A select; among booleans, by conjunctions."""
    if condition in (TRUE, FALSE) or on_true is on_false:
        return on_false if condition is FALSE else on_true
    if yields(on_true) == "bool":
        return either(both(condition, on_true), both(negation(condition), on_false))
    return make("select", (condition, on_true, on_false))


def all_of(conditions: Iterable[Term]) -> Term:
    """The conjunction of any number of conditions."""
    return fold_left(both, conditions, TRUE)


def exponent_of(node: Node) -> Fraction | None:
    """The constant a `pow` raises to, where it is one that terms can hold."""
    splat = node.operands[1].splat
    if splat is None or isinstance(splat, float):
        return None
    exponent = Fraction(splat)
    small = exponent.denominator <= 2 and abs(exponent) <= LARGEST_POWER
    return exponent if small else None


def _pow(node: Node, x: Term, y: Term) -> Term:
    del y
    exponent = exponent_of(node)
    assert exponent is not None
    return raised(x, exponent)


def _check_pow(node: Node) -> str | None:
    if exponent_of(node) is None:
        return "its exponent is not a constant multiple of 1/2"
    ok = node.operands[0].dtype in FLOATS
    return None if ok else "it is lifted on floating-point arrays only"


def _check_integer_pow(node: Node) -> str | None:
    if abs(int(str(node.params["y"]))) > LARGEST_POWER:
        return f"its exponent is beyond ±{LARGEST_POWER}"
    return all_floats(node)


def _check_arithmetic(node: Node) -> str | None:
    kinds = {v.dtype for v in (*node.operands, *node.results)}
    fits = len(kinds) == 1 and kinds <= FLOATS | {"i32"}
    return None if fits else "its operands are not all of one number type"


def _float_operands(node: Node) -> str | None:
    fits = all(v.dtype in FLOATS for v in node.operands)
    return None if fits else "it is lifted on floating-point arrays only"


def _check_logic(node: Node) -> str | None:
    kinds = {v.dtype for v in node.operands}
    return None if kinds == {"bool"} else "it is lifted on booleans only"


def _check_select(node: Node) -> str | None:
    which, *cases = node.operands
    if which.dtype != "bool" or len(cases) != 2:
        return "it does not choose between two cases by a boolean"
    if not {v.dtype for v in cases} <= FLOATS | {"bool"}:
        return "it chooses between integers"
    return None


def _check_cast(node: Node) -> str | None:
    old, new = node.operands[0].dtype, node.results[0].dtype
    if new in FLOATS or new == old:
        return None
    return f"a cast from {old} to {new} is opaque"


def _cast(node: Node, x: Term) -> Term:
    if node.results[0].dtype not in FLOATS:
        return x
    if yields(x) == "bool":
        return choose(x, lit(Fraction(1)), lit(Fraction(0)))
    if x.op == "int":
        return lit(Fraction(x.attr))  # pyrefly: ignore
    return make("to_float", (x,)) if yields(x) == "int" else x


def narrowest(value: Value) -> str:
    """The dtype that a value is known to have been rounded to."""
    node = value.node
    if node is None or value.dtype != "f32" or node.primitive not in _CARRIES:
        return value.dtype
    source = narrowest(node.operands[0])
    return source if source in FLOATS else value.dtype


_CARRIES = frozenset(
    {
        "convert_element_type",
        "neg",
        "copy",
        "copy_p",
        "stop_gradient",
        "name",
        "broadcast_in_dim",
        "reshape",
        "transpose",
        "squeeze",
        "expand_dims",
        "tile",
        "slice",
        "split",
        "unstack",
    }
)


def _plain(build: Builder) -> Builder:
    return lambda node, *terms: build(*terms)


_HALF = Fraction(1, 2)

for _name in ("add", "add_any"):
    register(_name, elementwise(_check_arithmetic, _plain(total)))
for _name, _build in {
    "sub": lambda x, y: total(x, negated(y)),
    "mul": product,
    "neg": negated,
}.items():
    register(_name, elementwise(_check_arithmetic, _plain(_build)))
for _name, _build in {
    "div": quotient,
    "square": lambda x: power(x, 2),
    "sqrt": lambda x: power(x, _HALF),
    "rsqrt": lambda x: power(x, -_HALF),
    "one_minus_square": lambda x: total(lit(Fraction(1)), negated(power(x, 2))),
    "clamp": lambda low, x, high: make("minimum", (make("maximum", (x, low)), high)),
}.items():
    register(_name, elementwise(all_floats, _plain(_build)))
for _name, _build in {"and": both, "or": either, "not": negation}.items():
    register(_name, elementwise(_check_logic, _plain(_build)))
register(
    "is_finite",
    elementwise(
        _float_operands,
        _plain(lambda x: make("lt", (make("abs", (x,)), lit(INFINITY)))),
    ),
)
register("stop_gradient copy copy_p name", elementwise(same_kind, _plain(lambda x: x)))
register("convert_element_type", elementwise(_check_cast, _cast))
register(
    "select_n",
    elementwise(_check_select, _plain(lambda c, no, yes: choose(c, yes, no))),
)
register("pow", elementwise(_check_pow, _pow))
register(
    "integer_pow",
    elementwise(
        _check_integer_pow, lambda node, x: raised(x, Fraction(node.params["y"]))
    ),
)
