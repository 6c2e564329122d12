"""Block graphs as Pallas kernels for Triton.

Arrays stay in device memory as they are; a block computes the positions of its tile
along every label and loads, masks and stores by them, so that any shape works with
tiles that are powers of two. Labels tell where a statement goes: what depends on no
loop is written before it, what depends on the walked label inside it.
"""

from collections.abc import Sequence

from pallas_codegen.expressions import (
    DTYPES,
    NEUTRAL,
    count_uses,
    indented,
    shape_text,
    wrapped,
)
from pallas_codegen.layout import padded
from pallas_codegen.naming import RESERVED, Namer
from pallas_codegen.tile import Places, Scope
from ugraph.graph import (
    Accumulator,
    BlockGraph,
    Pass,
    Plan,
    grid_counts,
    loop_count,
    reads_of,
)

INDENT = "    "


def kernel(block: BlockGraph, plan: Plan) -> str:
    """The Pallas kernel of a block graph, and the function that calls it."""
    return _Kernel(block, plan).text()


class _Kernel:
    """A kernel being written: its scopes are the prologue, loops and the epilogue."""

    def __init__(self, block: BlockGraph, plan: Plan) -> None:
        self.block, self.plan = block, plan
        self.inputs = sorted({a.tensor for a in reads_of(block)})
        self.outputs = [s.tensor.name for s in block.outputs]
        refs = {f"{name}_ref" for name in (*self.inputs, *self.outputs)}
        names = {a.name for p in block.passes for a in p.accumulators}
        names |= {f"{name}_before" for name in names}
        self.layout = padded(block, plan.sizes)
        self.namer = Namer(RESERVED | refs | names)
        uses = count_uses(block.roots)
        places = Places(block, plan, self.layout, self.namer, uses)
        numbers = range(len(block.passes))
        self.fixed = places.fixed
        self.fixed += [Scope(places, i, inside=False) for i in (*numbers, len(numbers))]
        self.inside = [Scope(places, i, inside=True) for i in numbers]
        self._positions()

    def _positions(self) -> None:
        """Which block this is along each label of the grid."""
        scope, counts = self.fixed[0], grid_counts(self.block, self.plan.sizes)
        if not counts:
            return
        left = "pl.program_id(0)"
        for number, (walked, count) in enumerate(
            zip(self.block.grid, counts, strict=True)
        ):
            if count == 1:
                continue
            rest = counts[number + 1 :]
            inner = 1
            for n in rest:
                inner *= n
            text = left if inner == 1 else f"{left} // {inner}"
            if any(n > 1 for n in counts[:number]):
                text = f"{text} % {count}"
            name = self.namer.fresh(f"block_{walked.label}")
            scope.lines.append(f"{name} = {text}")
            scope.starts[walked.label] = name

    def text(self) -> str:
        """The kernel and its caller."""
        loops = [
            self._loop(number, walk, self.inside[number])
            for number, walk in enumerate(self.block.passes)
        ]
        for store in self.block.stores:
            self.fixed[-1].store(store)
        body: list[str] = []
        for scope, loop in zip(self.fixed, [*loops, []], strict=True):
            body += [*scope.lines, *loop]
        return "\n".join(self._assembled(body))

    def _loop(self, number: int, walk: Pass, scope: Scope) -> list[str]:
        for a in walk.accumulators:
            scope.accumulate(a)
        for store in walk.stores:
            scope.store(store)
        names = [a.name for a in walk.accumulators]
        tuple_of = _tuple_text(names)
        count = loop_count(self.block, self.plan.sizes)
        before = _tuple_text([f"{n}_before" for n in names])
        unpack = [f"{before} = carry"] if names else []
        starts = [self._empty(a) for a in walk.accumulators]
        inner = [*unpack, *scope.lines, f"return {tuple_of}"]
        lines = ["", f"def pass{number}({scope.step}, carry):", *indented(inner), ""]
        start = _tuple_text(starts)
        call = f"jax.lax.fori_loop(0, {count}, pass{number}, "
        if len(call) + len(start) + len(tuple_of) > 76 and starts:
            lines += ["start = (", *indented(f"{x}," for x in starts), ")"]
            start = "start"
        target = f"{tuple_of} = " if names else ""
        return [*lines, f"{target}{call}{start})"]

    def _empty(self, a: Accumulator) -> str:
        axes = self.layout.axes(a.body.labels)
        if not axes:
            return f"jnp.float32({NEUTRAL[a.op]})"
        shape = shape_text(self.layout.shape(axes))
        if a.op == "sum":
            return f"jnp.zeros({shape}, jnp.float32)"
        return f"jnp.full({shape}, {NEUTRAL[a.op]}, jnp.float32)"

    def _assembled(self, body: list[str]) -> list[str]:
        block, plan = self.block, self.plan
        refs = [f"{n}_ref" for n in (*self.inputs, *self.outputs)]
        counts = grid_counts(block, plan.sizes)
        blocks = 1
        for n in counts:
            blocks *= n
        tensors = plan.tensors
        shapes = [
            f"jax.ShapeDtypeStruct({shape_text(tensors[n].shape)}, "
            f"{DTYPES[tensors[n].dtype]}),"
            for n in self.outputs
        ]
        arguments = ", ".join(self.inputs)
        return [
            *_signature(f"{block.name}_block", refs),
            *indented(body),
            "",
            "",
            *_signature(block.name, [*self.inputs, "interpret=False"]),
            f"{INDENT}return pl.pallas_call(",
            f"{INDENT * 2}{block.name}_block,",
            f"{INDENT * 2}out_shape=(",
            *(f"{INDENT * 3}{s}" for s in shapes),
            f"{INDENT * 2}),",
            f"{INDENT * 2}grid=({blocks},),",
            f"{INDENT * 2}compiler_params=plgpu.CompilerParams(",
            f"{INDENT * 3}num_warps={block.num_warps}, num_stages={block.num_stages}",
            f"{INDENT * 2}),",
            f"{INDENT * 2}interpret=interpret,",
            f'{INDENT * 2}name="{block.name}",',
            *wrapped(f"{INDENT})({arguments})"),
        ]


def _tuple_text(names: Sequence[str]) -> str:
    if len(names) == 1:
        return f"({names[0]},)"
    return f"({', '.join(names)})"


def _signature(name: str, arguments: Sequence[str]) -> list[str]:
    line = f"def {name}({', '.join(arguments)}):"
    if len(line) <= 88:
        return [line]
    return [f"def {name}(", *(f"{INDENT}{a}," for a in arguments), "):"]
