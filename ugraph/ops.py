"""The op table: the only place that knows an op.

One row per op says all that the stages need: its arity, what type it yields, how an
abstract expression sees it (paper section 4), the name of its meaning over the finite
fields (implemented in `verify.semantics`), the Python expression it is emitted as, its
cost, and the JAX primitives that import to it. A row whose meaning is `"opaque"` needs
nothing else anywhere: it is verified as an unknown function of its operands' values.
"""

import enum
from collections.abc import Iterable
from dataclasses import dataclass


class Kind(enum.Enum):
    """How an op treats index labels."""

    LEAF = "leaf"
    MAP = "map"
    REDUCE = "reduce"


@dataclass(frozen=True, slots=True, kw_only=True)
class Op:
    """One row of the op table.

    Attributes:
      name: the op's name in terms and in printed μGraphs.
      kind: leaf, elementwise map over the union of its operands' labels, or reduction.
      arity: number of operands; None when any number of at least two is meant.
      field: name of the op's meaning over the finite fields.
      emit: Python expression with `{0}`, `{1}`... for operands; for a reduction the
        function applied to `(operand, axis=...)`.
      abstract: how abstract expressions see it: `add`, `mul`, `pow`, `sum`, `opaque`,
        `leaf` or `same` (identity).
      yields: `float`, `bool`, `int`, or `same` (the type of the last operand).
      cost: scalar operations an element costs on a GPU's scalar units.
      primitives: names of the jax primitives that lift to this op elementwise.
      commutative: operands may be exchanged.
    """

    name: str
    kind: Kind = Kind.MAP
    arity: int | None = 1
    field: str = "opaque"
    emit: str = ""
    abstract: str = "opaque"
    yields: str = "float"
    cost: float = 1.0
    primitives: tuple[str, ...] = ()
    commutative: bool = False


OPS: dict[str, Op] = {}
BY_PRIMITIVE: dict[str, Op] = {}


def register(op: Op) -> Op:
    """Adds a row to the op table.

    Raises:
      ValueError: when the name, or one of the primitives, is taken.
    """
    if op.name in OPS:
        raise ValueError(f"op `{op.name}` is already in the op table")
    for primitive in op.primitives:
        if primitive in BY_PRIMITIVE:
            owner = BY_PRIMITIVE[primitive].name
            raise ValueError(f"primitive `{primitive}` already lifts to op `{owner}`")
    OPS[op.name] = op
    BY_PRIMITIVE.update(dict.fromkeys(op.primitives, op))
    return op


def unregister(name: str) -> None:
    """Takes a row out of the op table again (for ops registered by a test)."""
    for primitive in OPS.pop(name).primitives:
        del BY_PRIMITIVE[primitive]


def _leaf(name: str, **facts: str) -> Op:
    return Op(name=name, kind=Kind.LEAF, arity=0, cost=0, **facts)  # pyrefly: ignore


def _reduce(name: str, emit: str, abstract: str) -> Op:
    return Op(
        name=name,
        kind=Kind.REDUCE,
        field=name,
        emit=emit,
        abstract=abstract,
        yields="same",
    )


def _compare(name: str, symbol: str) -> Op:
    return Op(
        name=name,
        arity=2,
        field=name,
        emit=f"{{0}} {symbol} {{1}}",
        yields="bool",
        primitives=(name,),
    )


def _opaque(name: str, emit: str, cost: float = 8.0) -> Op:
    return Op(name=name, emit=emit, cost=cost, primitives=(name,))


_TABLE: Iterable[Op] = (
    _leaf("input", field="input", abstract="leaf", yields="float"),
    _leaf("lit", field="lit", abstract="leaf", yields="float"),
    _leaf("int", field="int", abstract="leaf", yields="int"),
    _leaf("iota", field="iota", abstract="leaf", yields="int"),
    _leaf("extent", field="extent", abstract="leaf", yields="int"),
    _leaf("ref", field="ref", abstract="leaf", yields="float"),
    Op(
        name="add",
        arity=None,
        field="add",
        emit="{0} + {1}",
        abstract="add",
        yields="same",
        commutative=True,
    ),
    Op(
        name="mul",
        arity=None,
        field="mul",
        emit="{0} * {1}",
        abstract="mul",
        yields="same",
        commutative=True,
    ),
    Op(name="pow", field="pow", emit="{0} ** {1}", abstract="pow", cost=4.0),
    Op(name="exp", field="exp", emit="jnp.exp({0})", cost=4.0, primitives=("exp",)),
    Op(
        name="logistic",
        field="logistic",
        emit="jax.lax.logistic({0})",
        cost=8.0,
        primitives=("logistic",),
    ),
    Op(name="tanh", field="tanh", emit="jnp.tanh({0})", cost=8.0, primitives=("tanh",)),
    _opaque("log", "jnp.log({0})"),
    _opaque("log1p", "jnp.log1p({0})"),
    _opaque("expm1", "jnp.expm1({0})"),
    _opaque("erf", "jax.lax.erf({0})", 12.0),
    _opaque("sin", "jnp.sin({0})"),
    _opaque("cos", "jnp.cos({0})"),
    _opaque("abs", "jnp.abs({0})", 1.0),
    _opaque("sign", "jnp.sign({0})", 1.0),
    _opaque("floor", "jnp.floor({0})", 1.0),
    _opaque("ceil", "jnp.ceil({0})", 1.0),
    Op(
        name="maximum",
        arity=2,
        field="max",
        emit="jnp.maximum({0}, {1})",
        yields="same",
        primitives=("max",),
        commutative=True,
    ),
    Op(
        name="minimum",
        arity=2,
        field="min",
        emit="jnp.minimum({0}, {1})",
        yields="same",
        primitives=("min",),
        commutative=True,
    ),
    Op(
        name="finite",
        field="finite",
        emit="jnp.where({0} == -jnp.inf, 0.0, {0})",
        abstract="same",
        yields="same",
    ),
    Op(name="to_float", field="to_float", emit="{0}.astype({f})", abstract="same"),
    _compare("lt", "<"),
    _compare("le", "<="),
    _compare("gt", ">"),
    _compare("ge", ">="),
    _compare("eq", "=="),
    _compare("ne", "!="),
    Op(name="and", arity=2, field="and", emit="{0} & {1}", yields="bool"),
    Op(name="or", arity=2, field="or", emit="{0} | {1}", yields="bool"),
    Op(name="not", field="not", emit="~{0}", yields="bool"),
    Op(
        name="select",
        arity=3,
        field="select",
        emit="jnp.where({0}, {1}, {2})",
        yields="same",
    ),
    _reduce("sum", "jnp.sum", "sum"),
    _reduce("max", "jnp.max", "opaque"),
    _reduce("min", "jnp.min", "opaque"),
)

for _op in _TABLE:
    register(_op)
