"""From a jaxpr to a flat list of nodes over values.

Nested calls are inlined, scalar constants are folded (a value that is the same number
everywhere is a *splat*, whatever its shape), a select by a constant is one of its
cases, and what no output needs is dropped.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var

from mirage_jax import _compat
from mirage_jax.lift.constants import Scalar, decode, fold

DTYPES: Mapping[str, str] = {
    "bfloat16": "bf16",
    "float16": "f16",
    "float32": "f32",
    "bool": "bool",
    "int32": "i32",
}
CALLS: Mapping[str, str] = {
    "jit": "jaxpr",
    "pjit": "jaxpr",
    "closed_call": "call_jaxpr",
    "core_call": "call_jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
    "checkpoint": "jaxpr",
    "remat": "jaxpr",
    "remat2": "jaxpr",
}


class Refused(Exception):
    """Why something cannot be lifted; `node` is filled in where it is known."""

    def __init__(self, reason: str, node: "Node | None" = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.node = node


@dataclass(eq=False, slots=True)
class Value:
    """An array of the region.

    Attributes:
      shape: its shape.
      dtype: short name of its dtype (numpy's name where the IR has none).
      node: what computes it; None for inputs and splats.
      position: which result of its node, or which input, it is.
      splat: the number it holds everywhere, or None.
    """

    shape: tuple[int, ...]
    dtype: str
    node: "Node | None" = None
    position: int = 0
    splat: Scalar | None = None

    def __str__(self) -> str:
        return f"{self.dtype}{list(self.shape)}"


@dataclass(eq=False, slots=True)
class Node:
    """One equation, its nested calls inlined.

    Attributes:
      primitive: the primitive's name.
      params: the equation's parameters.
      operands: values read.
      results: values made.
      equation: index of the region's equation that it comes from.
      source: the equation itself.
    """

    primitive: str
    params: Mapping[str, object]
    operands: tuple[Value, ...]
    equation: int
    source: JaxprEqn
    results: tuple[Value, ...] = ()

    def __str__(self) -> str:
        reads = ", ".join(map(str, self.operands))
        makes = ", ".join(map(str, self.results))
        return f"`{self.primitive}` ({reads}) -> ({makes})"


@dataclass(frozen=True)
class Flat:
    """A region as nodes in order of evaluation, all of them needed."""

    inputs: tuple[Value, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[Value, ...]


Environment: TypeAlias = dict[Var, Value]


def flatten(closed: ClosedJaxpr) -> Flat:
    """The jaxpr without nesting, constants folded.

    Raises:
      Refused: for effects and for nested calls that cannot be inlined.
    """
    jaxpr = closed.jaxpr
    if jaxpr.constvars:
        raise Refused("the region has constants that are not among its inputs")
    inputs = tuple(_value(v, None, i) for i, v in enumerate(jaxpr.invars))
    return _finish(_Flattener(), jaxpr, inputs)


def flatten_equation(eqn: JaxprEqn) -> Flat:
    """One equation as a region of its own; its literals stay literals.

    Raises:
      Refused: as `flatten` does.
    """
    flattener = _Flattener()
    known: Environment = {}
    for v in eqn.invars:
        if isinstance(v, Var) and v not in known:
            known[v] = _value(v, None, len(known))
    inputs = tuple(known.values())
    flattener.equation(eqn, known, 0)
    outputs = tuple(known[v] for v in eqn.outvars if not _compat.is_drop(v))
    return Flat(inputs, _live(flattener.nodes, outputs), outputs)


def _finish(flattener: "_Flattener", jaxpr: Jaxpr, inputs: tuple[Value, ...]) -> Flat:
    known = dict(zip(jaxpr.invars, inputs, strict=True))
    for i, eqn in enumerate(jaxpr.eqns):
        flattener.equation(eqn, known, i)
    outputs = tuple(_read(v, known) for v in jaxpr.outvars)
    return Flat(inputs, _live(flattener.nodes, outputs), outputs)


def _live(nodes: Sequence[Node], outputs: Iterable[Value]) -> tuple[Node, ...]:
    needed = {v.node for v in outputs}
    kept = []
    for node in reversed(nodes):
        if node in needed:
            kept.append(node)
            needed |= {v.node for v in node.operands}
    return tuple(reversed(kept))


class _Flattener:
    """Collects nodes; one per flattening."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []

    def equation(self, eqn: JaxprEqn, known: Environment, index: int) -> None:
        """Adds one equation and binds its results in `known`."""
        operands = tuple(_read(v, known) for v in eqn.invars)
        name = eqn.primitive.name
        node = Node(name, eqn.params, operands, index, eqn)
        node.results = tuple(_value(v, node, i) for i, v in enumerate(eqn.outvars))
        if eqn.effects:
            raise Refused("it has side effects", node)
        called = name in CALLS
        results = self._call(node, index) if called else self._simplified(node)
        known.update(zip(eqn.outvars, results, strict=True))

    def _call(self, node: Node, index: int) -> tuple[Value, ...]:
        reason = _call_refusal(node)
        if reason is not None:
            raise Refused(reason, node)
        body = node.params[CALLS[node.primitive]]
        jaxpr, consts = body, ()
        if isinstance(body, ClosedJaxpr):
            jaxpr, consts = body.jaxpr, tuple(body.consts)
        assert isinstance(jaxpr, Jaxpr)
        known = dict(zip(jaxpr.invars, node.operands, strict=True))
        for v, c in zip(jaxpr.constvars, consts, strict=True):
            if np.size(c) != 1:
                raise Refused("its body has an array constant", node)
            known[v] = _value(v, None, 0, decode(c, _dtype(v)))
        for eqn in jaxpr.eqns:
            self.equation(eqn, known, index)
        return tuple(_read(v, known) for v in jaxpr.outvars)

    def _simplified(self, node: Node) -> tuple[Value, ...]:
        if len(node.results) == 1:
            (result,) = node.results
            chosen = _chosen(node)
            if chosen is not None:
                return (chosen,)
            splats = [v.splat for v in node.operands]
            if splats and all(s is not None for s in splats):
                number = fold(node.primitive, splats, result.dtype, node.params)
                if number is not None:
                    return (Value(result.shape, result.dtype, splat=number),)
        self.nodes.append(node)
        return node.results


def _chosen(node: Node) -> Value | None:
    """The case that a select by a constant takes, if it has the result's shape."""
    if node.primitive != "select_n" or node.operands[0].splat is None:
        return None
    case = node.operands[1 + int(node.operands[0].splat)]
    return case if case.shape == node.results[0].shape else None


def _call_refusal(node: Node) -> str | None:
    params = node.params
    if params.get("differentiated"):
        return "it recomputes on purpose (a differentiated checkpoint)"
    for name in ("in_shardings", "out_shardings"):
        given = params.get(name) or ()
        if any(type(s).__name__ != "UnspecifiedValue" for s in given):  # pyrefly: ignore
            return f"its `{name}` are part of its meaning"
    for name in ("in_layouts", "out_layouts"):
        if any(x is not None for x in params.get(name) or ()):  # pyrefly: ignore
            return f"its `{name}` are part of its meaning"
    if params.get("compiler_options_kvs"):
        return "it has compiler options of its own"
    return None


def _read(v: Var | Literal, known: Environment) -> Value:
    if not isinstance(v, Literal):
        return known[v]
    if np.size(v.val) != 1:
        raise Refused("it has an array constant")
    return _value(v, None, 0, decode(v.val, _dtype(v)))


def _dtype(v: Var | Literal) -> str:
    name = str(getattr(v.aval, "dtype", type(v.aval).__name__))
    return DTYPES.get(name, name)


def _value(
    v: Var | Literal, node: Node | None, position: int, splat: Scalar | None = None
) -> Value:
    shape = tuple(getattr(v.aval, "shape", ()))
    return Value(shape, _dtype(v), node, position, splat)
