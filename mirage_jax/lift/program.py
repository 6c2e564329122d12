"""Lifting: a region's jaxpr becomes a `Program` of labelled terms.

Two phases. First one walk over the equations factors every axis into atoms and makes
axes the same that the equations make the same (`axes`). Then every output is demanded
with a label per atom, and the demand goes down to the inputs, a term for every *use*:
in `x @ x.T` the rows of x have two roles and get two labels.
"""

from typing import Any

from jax.extend.core import ClosedJaxpr, JaxprEqn

from mirage_jax.errors import UnsupportedError
from mirage_jax.lift.axes import Factorization
from mirage_jax.lift.base import (
    RULES,
    Context,
    Demand,
    Namer,
    Rule,
    Step,
    common_refusal,
)
from mirage_jax.lift.constants import FLOATS, INT32
from mirage_jax.lift.elementwise import constant, table_rule
from mirage_jax.lift.flatten import (
    DTYPES,
    Flat,
    Node,
    Refused,
    Value,
    flatten,
    flatten_equation,
)
from ugraph.program import Program, Store, Tensor, bound_labels, reads
from ugraph.terms import Axes, Term, read, subterms, yields

MOST_USES = 20_000
# Terms are walked recursively by most of what comes after.
DEEPEST = 150


class LiftError(UnsupportedError):
    """A region cannot be lifted.

    Args:
      message: the primitive, its arrays and the reason.
      equation: index of the region's equation where it failed, or None.
    """

    def __init__(self, message: str, equation: int | None = None) -> None:
        super().__init__(message)
        self.equation = equation

    def __reduce__(self) -> tuple[type, tuple[str, int | None]]:
        """Pickles by the arguments it was made from."""
        return type(self), (str(self), self.equation)


def refusal(eqn: JaxprEqn) -> str | None:
    """Why an equation cannot be lifted, or None; looks into nested calls.

    It judges the equation alone. What only a whole region shows (an axis cut in two
    incompatible ways, arithmetic that relies on rounding) `lift` finds out.
    """
    try:
        _link(flatten_equation(eqn))
    except Refused as error:
        return _message(error)
    return None


def boundary_refusal(aval: Any) -> str | None:
    """Why an array of this type cannot cross a region's boundary, or None."""
    dtype = str(getattr(aval, "dtype", type(aval).__name__))
    dtype = DTYPES.get(dtype, dtype)
    if dtype not in FLOATS | {"bool"}:
        return f"arrays of dtype {dtype} do not cross the boundary of a region"
    return "the array is empty" if 0 in getattr(aval, "shape", ()) else None


def lift(closed: ClosedJaxpr) -> Program:
    """The meaning of a region.

    Args:
      closed: the region's jaxpr, without constants.

    Raises:
      LiftError: an `UnsupportedError`, when some of it has no meaning in terms.
    """
    try:
        flat = flatten(closed)
        return _Lifter(flat, _link(flat)).program()
    except Refused as error:
        equation = error.node.equation if error.node is not None else None
        raise LiftError(_message(error), equation) from None


def _message(error: Refused) -> str:
    return f"{error.node}: {error.reason}" if error.node is not None else error.reason


def rule_of(node: Node) -> Rule:
    """The node's rule: one of the table, or its op's."""
    return RULES.get(node.primitive) or table_rule(node.primitive)


def _link(flat: Flat) -> Factorization:
    factors = Factorization()
    for node in flat.nodes:
        reason = common_refusal(node) or rule_of(node).check(node)
        if reason is not None:
            raise Refused(reason, node)
        try:
            rule_of(node).link(node, factors)
        except Refused as error:
            raise Refused(error.reason, node) from None
    return factors


class _Lifter:
    """The second phase: terms by use."""

    def __init__(self, flat: Flat, factors: Factorization) -> None:
        self.flat = flat
        self.factors = factors
        self.context = Context(factors, Namer(factors))
        self.known: dict[Demand, Term] = {}
        self.roundings: dict[tuple[Term, str], None] = {}
        self.ranges: dict[Term, tuple[int, int]] = {}
        self.depths: dict[Term, int] = {}
        self.names = {v: f"in{i}" for i, v in enumerate(flat.inputs)}

    def program(self) -> Program:
        """All outputs, and the labels they use."""
        outputs = tuple(self.store(i, v) for i, v in enumerate(self.flat.outputs))
        roots = tuple(o.term for o in outputs)
        used = {f for o in outputs for axis in o.axes for f in axis}
        used |= {f for access in reads(*roots) for axis in access.axes for f in axis}
        used |= set(bound_labels(*roots))
        used |= {x for t in subterms(*roots) for x in t.labels}
        extents = self.context.namer.extents
        return Program(
            tuple((x, n) for x, n in extents.items() if x in used),
            tuple(self.tensor(name, v) for v, name in self.names.items()),
            outputs,
            tuple(self.roundings),
        )

    def tensor(self, name: str, value: Value) -> Tensor:
        """An input or output tensor."""
        if value.dtype not in DTYPES.values():
            raise Refused(f"{name} {value}: the IR has no such dtype", value.node)
        return Tensor(name, value.dtype, value.shape)

    def store(self, index: int, value: Value) -> Store:
        """One output, demanded with a label per atom."""
        if value.dtype == "i32":
            raise Refused(f"an output {value} is an array of integers", value.node)
        labels = self.context.namer.labels(self.factors.axes(value), ())
        term = self.demand(Demand(value, labels))
        return Store(self.tensor(f"out{index}", value), labels, term)

    def demand(self, root: Demand) -> Term:
        """The term of a use; walks what it needs with a stack of its own."""
        stack, steps = [root], {}
        while stack:
            use = stack[-1]
            if use in self.known:
                stack.pop()
                continue
            if use not in steps:
                steps[use] = self.step(use)
            missing = [n for n in steps[use].needs if n not in self.known]
            if missing:
                stack += missing[::-1]
                continue
            self.known[use] = self.built(use, steps.pop(use))
            if len(self.known) > MOST_USES:
                raise Refused("its arrays are used in too many roles", use.value.node)
        return self.known[root]

    def step(self, use: Demand) -> Step:
        """How to make a use."""
        value, labels = use
        node = value.node
        if node is None:
            return Step((), lambda: self.leaf(value, labels))
        return rule_of(node).step(node, value.position, labels, self.context)

    def leaf(self, value: Value, labels: Axes) -> Term:
        """A constant, or the read of an input."""
        if value.splat is not None:
            return constant(value.splat, value.dtype)
        if value not in self.names:
            raise Refused(f"a literal of {value} has no exact meaning")
        if value.dtype == "i32":
            raise Refused(f"its operand {value} is an integer input")
        kind = "bool" if value.dtype == "bool" else "float"
        return read(self.names[value], labels, kind)

    def built(self, use: Demand, step: Step) -> Term:
        """The term of a use whose needs are known; roundings noted."""
        value = use.value
        try:
            term = step.build(*(self.known[n] for n in step.needs))
        except Refused as error:
            raise Refused(error.reason, error.node or value.node) from None
        if self.depth(term) > DEEPEST:
            raise Refused(f"more than {DEEPEST} ops depend on each other", value.node)
        if value.dtype == "i32":
            low, high = self.range(term)
            if low not in INT32 or high not in INT32:
                raise Refused("its integers overflow", value.node)
        narrow = value.dtype in ("bf16", "f16") and yields(term) == "float"
        if narrow and term.op not in ("input", "lit"):
            self.roundings.setdefault((term, value.dtype))
        return term

    def depth(self, term: Term) -> int:
        """The number of ops on the longest path to an input."""
        if term not in self.depths:
            below = (self.depth(a) for a in term.args)
            self.depths[term] = 1 + max(below, default=0)
        return self.depths[term]

    def range(self, term: Term) -> tuple[int, int]:
        """The least and the greatest value of an integer term."""
        if term not in self.ranges:
            self.ranges[term] = self._range(term)
        return self.ranges[term]

    def _range(self, term: Term) -> tuple[int, int]:
        extents = self.context.namer.extents
        if term.op == "int":
            return (int(str(term.attr)),) * 2
        if term.op == "iota":
            return 0, extents[str(term.attr)] - 1
        if term.op == "extent":
            return (extents[term.attr.label],) * 2  # pyrefly: ignore
        parts = [self.range(a) for a in term.args]
        if term.op == "add":
            return sum(low for low, _ in parts), sum(high for _, high in parts)
        assert term.op == "mul"
        low, high = parts[0]
        for other in parts[1:]:
            corners = [x * y for x in (low, high) for y in other]
            low, high = min(corners), max(corners)
        return low, high
