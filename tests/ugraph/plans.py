"""Plans for tests: what the search finds, and random schedules of random programs."""

from functools import cache

import hypothesis.strategies as st
from hypothesis import assume

from tests.ugraph.programs import (
    attention,
    chain,
    gated,
    layer_norm,
    norm_linear,
    pulled,
    softmax,
    two_outputs,
)
from tests.ugraph.strategies import programs, ranges
from ugraph.graph import BlockGraph, Plan, Range
from ugraph.program import Program, bound_labels
from ugraph.schedule import block, grid_labels
from ugraph.search import Limits, search
from ugraph.target import TARGETS

LARGE: dict[str, Program] = {
    "norm_linear": norm_linear(16, 4096, 6144),
    "layer_norm": layer_norm(8192, 4096),
    "softmax": softmax(8192, 2048),
    "attention": attention(16, 512, 1024, 64),
    "decode": attention(8, 2, 8192, 64),
    "gated": gated(64, 4096, 4096),
    "chain": chain(4096, 64, 4096, 64),
    "two_outputs": two_outputs(4096, 2048),
}


@cache
def best(name: str) -> Plan:
    """The best plan that a short search finds for a large program."""
    found = search(LARGE[name], TARGETS["h200"], limits=Limits(forms=4))
    return found.candidates[0].plan


def scheduled(
    program: Program,
    grid: dict[str, int],
    loop: tuple[str, int],
    *,
    online: bool = True,
) -> Plan:
    """The program as one block graph with these tiles."""
    ranges_of = tuple(Range(x, n) for x, n in grid.items())
    kernel = block("kernel0", program.outputs, ranges_of, Range(*loop), online=online)
    assert kernel is not None
    return plan_with(program, kernel)


def plan_with(program: Program, kernel: BlockGraph) -> Plan:
    """The plan that has the one kernel."""
    outputs = tuple(o.tensor for o in program.outputs)
    return Plan(program.extents, program.inputs, outputs, (kernel,))


FLASH = scheduled(pulled(attention()), {"h": 1, "s": 16}, ("t", 32))


@st.composite
def plans(draw: st.DrawFn) -> tuple[Program, Plan]:
    """A random program and a random schedule of it in one kernel."""
    program = draw(programs)
    grid = draw(ranges(grid_labels(program.outputs)))
    bound = bound_labels(*(o.term for o in program.outputs))
    taken = {r.label for r in grid}
    loop = None
    if draw(st.booleans()):
        loops = [x for x in bound if x not in taken]
        assume(loops)
        loop = Range(draw(st.sampled_from(loops)), draw(st.integers(1, 4)))
    kernel = block("k", program.outputs, grid, loop, online=draw(st.booleans()))
    assume(kernel is not None)
    assert kernel is not None
    return program, plan_with(program, kernel)
