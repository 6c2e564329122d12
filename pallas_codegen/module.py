"""A plan as the text of a module: header, kernels, `run`, and a check of its own."""

from collections.abc import Callable
from dataclasses import replace

from pallas_codegen import triton, xla
from pallas_codegen.expressions import DTYPES, shape_text, wrapped
from pallas_codegen.source import EmitError, Source
from ugraph.graph import BlockGraph, Plan, Predefined, reads_of
from ugraph.program import Program, Tensor
from ugraph.search import widen
from ugraph.show import describe
from ugraph.target import Target

BACKENDS: dict[str, Callable[[BlockGraph, Plan], str]] = {
    "triton": triton.kernel,
    "xla": xla.kernel,
}
IMPORTS = {
    "triton": (
        "from jax.experimental import pallas as pl",
        "from jax.experimental.pallas import triton as plgpu",
    ),
    "xla": (),
}
CHECK = '''
def check():
    """Runs on random inputs and compares with the original in float32."""
    keys = jax.random.split(jax.random.key(0), {count})
    inputs = ({inputs})
    outputs = jax.jit(lambda *a: run(*a, interpret={interpret}))(*inputs)
    for got, want in zip(outputs, jax.jit(reference)(*inputs), strict=True):
        got, want = got.astype(jnp.float32), want.astype(jnp.float32)
        error = jnp.linalg.norm(got - want) / (jnp.linalg.norm(want) + 1e-30)
        print(f"{{got.shape}}: relative error {{error:.1e}}")
        assert error < 2e-2, "the kernel disagrees with the original"


if __name__ == "__main__":
    check()
'''


def emit(plan: Plan, backend: str, *, target: Target, program: Program) -> Source:
    """The source of a plan.

    Args:
      plan: what to run.
      backend: `triton` or `xla`.
      target: what it is for (named in the header).
      program: the original, which the module's check compares with.

    Raises:
      EmitError: when the backend cannot express the plan, or there is no such backend.
    """
    if backend not in BACKENDS:
        known = ", ".join(sorted(BACKENDS))
        raise EmitError(f"there is no backend `{backend}`; there are {known}")
    parts = [_header(plan, backend, target)]
    for kernel in plan.kernels:
        if isinstance(kernel, BlockGraph):
            parts.append(BACKENDS[backend](kernel, plan))
        else:
            parts.append(xla.kernel(kernel, plan))
    parts += [_run(plan), _reference(program), _check(plan, backend)]
    return Source(backend, "\n\n\n".join(p.strip("\n") for p in parts) + "\n")


def _header(plan: Plan, backend: str, target: Target) -> str:
    tensors = [*plan.inputs, *plan.outputs]
    shapes = [f"    {t.name}: {t.dtype}{list(t.shape)}" for t in tensors]
    extents = " ".join(f"{label}={size}" for label, size in plan.extents)
    graph = [f"    {line}".rstrip() for line in describe(plan).splitlines()]
    lines = [
        f'"""Emitted by mirage_jax for {target.name}, backend {backend}.',
        "",
        *shapes,
        "",
        f"    {extents}",
        "",
        *graph,
        '"""',
        "",
        "import jax",
        "import jax.numpy as jnp",
        *IMPORTS[backend],
    ]
    return "\n".join(lines)


def _run(plan: Plan) -> str:
    names = [t.name for t in plan.inputs]
    lines = [f"def run({', '.join([*names, '*', 'interpret=False'])}):"]
    for kernel in plan.kernels:
        outputs = [s.tensor.name for s in kernel.outputs]
        call = f"{kernel.name}({', '.join([*_inputs(kernel), 'interpret=interpret'])})"
        names = ", ".join(outputs) if len(outputs) > 1 else f"[{outputs[0]}]"
        lines += wrapped(f"    {names} = {call}")
    results = ", ".join(t.name for t in plan.outputs)
    lines.append(f"    return ({results}{',' * (len(plan.outputs) == 1)})")
    return "\n".join(lines)


def _inputs(kernel: BlockGraph | Predefined) -> list[str]:
    return sorted({a.tensor for a in reads_of(kernel)})


def _reference(program: Program) -> str:
    stores = tuple(replace(s, term=widen(s.term)) for s in program.outputs)
    graph = Predefined("original", stores)
    outputs = tuple(s.tensor for s in stores)
    plan = Plan(program.extents, program.inputs, outputs, (graph,))
    text = xla.kernel(graph, plan)
    names = ", ".join(t.name for t in program.inputs)
    call = f"    return original({', '.join(_inputs(graph))})"
    return f"{text}\n\n\ndef reference({names}):\n{call}"


def _check(plan: Plan, backend: str) -> str:
    inputs = "".join(f"\n        {_random(i, t)}," for i, t in enumerate(plan.inputs))
    interpret = backend == "triton"
    return CHECK.format(
        count=max(1, len(plan.inputs)),
        inputs=f"{inputs}\n    " if inputs else "",
        interpret=interpret,
    )


def _random(number: int, tensor: Tensor) -> str:
    shape = shape_text(tensor.shape)
    if tensor.dtype == "bool":
        return f"jax.random.bernoulli(keys[{number}], 0.5, {shape})"
    return f"jax.random.normal(keys[{number}], {shape}, {DTYPES[tensor.dtype]}) * 0.1"
