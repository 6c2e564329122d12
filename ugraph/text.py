"""Programs and plans as JSON, for the winners database and certificates.

`dump` and `load` are inverse: `load(dump(plan)) == plan`. Terms are written once each,
as a table in which operands come before their users.
"""

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any, TypeAlias

from ugraph.graph import Accumulator, BlockGraph, Pass, Plan, Predefined, Range
from ugraph.program import Program, Store, Tensor
from ugraph.terms import (
    Access,
    Axes,
    Extent,
    Fixed,
    Reduction,
    Ref,
    Term,
    make,
    subterms,
)

Json: TypeAlias = dict[str, "Json"] | list["Json"] | str | int | float | bool | None
VERSION = 1


class FormatError(ValueError):
    """A text is not a program or plan of this version."""


def dump(value: Program | Plan) -> Json:
    """`value` as JSON data."""
    if isinstance(value, Program):
        roots = [*(s.term for s in value.outputs), *(t for t, _ in value.roundings)]
        table = _Table(roots)
        body: dict[str, Json] = {
            "outputs": [_store(s, table) for s in value.outputs],
            "roundings": [[table[t], d] for t, d in value.roundings],
        }
        kind = "program"
    else:
        table = _Table([r for k in value.kernels for r in k.roots])
        body = {
            "outputs": [_tensor(t) for t in value.outputs],
            "kernels": [_kernel(k, table) for k in value.kernels],
        }
        kind = "plan"
    return {
        "kind": kind,
        "version": VERSION,
        "extents": [list(e) for e in value.extents],
        "inputs": [_tensor(t) for t in value.inputs],
        "terms": table.rows,
        **body,
    }


def load(data: Json) -> Program | Plan:
    """The program or plan that `dump` wrote.

    Raises:
      FormatError: when `data` is not one.
    """
    try:
        if not isinstance(data, Mapping) or data.get("version") != VERSION:
            raise FormatError("not a program or plan of this version")
        return _loaded(data)
    except (KeyError, IndexError, TypeError, ValueError) as error:
        if isinstance(error, FormatError):
            raise
        raise FormatError(f"damaged program or plan: {error!r}") from error


def _loaded(data: Any) -> Program | Plan:
    extents = tuple((str(n), int(s)) for n, s in data["extents"])
    inputs = tuple(map(_read_tensor, data["inputs"]))
    terms: list[Term] = []
    for op, args, attr in data["terms"]:
        terms.append(make(op, [terms[i] for i in args], _read_attr(attr)))
    if data["kind"] == "program":
        outputs = tuple(_read_store(s, terms) for s in data["outputs"])
        roundings = tuple((terms[i], d) for i, d in data["roundings"])
        return Program(extents, inputs, outputs, roundings)
    kernels = tuple(_read_kernel(k, terms) for k in data["kernels"])
    return Plan(extents, inputs, tuple(map(_read_tensor, data["outputs"])), kernels)


class _Table:
    """Term to row number, and the rows."""

    def __init__(self, roots: list[Term]) -> None:
        order = subterms(*roots)
        self.number = {t: i for i, t in enumerate(order)}
        self.rows: list[Json] = [
            [t.op, [self.number[a] for a in t.args], _attr(t.attr)] for t in order
        ]

    def __getitem__(self, term: Term) -> int:
        return self.number[term]


def _attr(attr: object) -> Json:
    row: tuple[str, Any]
    match attr:
        case None | int() | str():
            return attr
        case Access(tensor, axes, yields):
            row = ("access", [tensor, _axes(axes), yields])
        case Reduction(labels, dtype):
            row = ("reduction", [list(labels), dtype])
        case Ref(name, labels, when):
            row = ("ref", [name, list(labels), when])
        case Extent(label):
            row = ("extent", [label])
        case Fraction():
            row = ("fraction", [attr.numerator, attr.denominator])
        case float():
            row = ("float", [repr(attr)])
        case _:
            raise TypeError(f"no text form for attribute {attr!r}")
    kind, value = row
    return {kind: value}


def _read_attr(data: Json) -> object:
    if not isinstance(data, Mapping):
        return data
    ((kind, value),) = data.items()
    readers: dict[str, Callable[..., object]] = {
        "access": lambda t, a, y: Access(t, _read_axes(a), y),
        "reduction": lambda labels, d: Reduction(tuple(labels), d),
        "ref": lambda n, labels, w: Ref(n, tuple(labels), w),
        "extent": Extent,
        "fraction": Fraction,
        "float": float,
    }
    return readers[kind](*value)  # pyrefly: ignore


def _axes(axes: Axes) -> Json:
    return [[list(f) if isinstance(f, Fixed) else f for f in axis] for axis in axes]


def _read_axes(data: Any) -> Axes:
    return tuple(
        tuple(f if isinstance(f, str) else Fixed(*f) for f in axis) for axis in data
    )


def _tensor(t: Tensor) -> Json:
    return [t.name, t.dtype, list(t.shape)]


def _read_tensor(data: Any) -> Tensor:
    name, dtype, shape = data
    return Tensor(name, dtype, tuple(shape))


def _store(s: Store, table: _Table) -> Json:
    return [_tensor(s.tensor), _axes(s.axes), table[s.term]]


def _read_store(data: Any, terms: list[Term]) -> Store:
    tensor, axes, term = data
    return Store(_read_tensor(tensor), _read_axes(axes), terms[term])


def _kernel(k: BlockGraph | Predefined, table: _Table) -> Json:
    stores: Json = [_store(s, table) for s in k.stores]
    if isinstance(k, Predefined):
        return {"predefined": k.name, "stores": stores}
    return {
        "block": k.name,
        "grid": [[r.label, r.tile] for r in k.grid],
        "loop": [k.loop.label, k.loop.tile] if k.loop else None,
        "passes": [
            [
                [
                    [a.name, a.op, table[a.body], _optional(a.rescale, table)]
                    for a in p.accumulators
                ],
                [_store(s, table) for s in p.stores],
            ]
            for p in k.passes
        ],
        "stores": stores,
        "launch": [k.num_warps, k.num_stages],
    }


def _optional(term: Term | None, table: _Table) -> int | None:
    return None if term is None else table[term]


def _read_kernel(data: Any, terms: list[Term]) -> BlockGraph | Predefined:
    stores = tuple(_read_store(s, terms) for s in data["stores"])
    if "predefined" in data:
        return Predefined(data["predefined"], stores)
    passes = tuple(
        Pass(
            tuple(
                Accumulator(n, op, terms[b], None if r is None else terms[r])
                for n, op, b, r in accumulators
            ),
            tuple(_read_store(s, terms) for s in inside),
        )
        for accumulators, inside in data["passes"]
    )
    return BlockGraph(
        data["block"],
        tuple(Range(*r) for r in data["grid"]),
        Range(*data["loop"]) if data["loop"] else None,
        passes,
        stores,
        *data["launch"],
    )
