"""Block graphs as Pallas kernels for Triton, run in interpret mode."""

import dataclasses
import re

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import assume, given, settings

from pallas_codegen import EmitError
from tests.pallas_codegen.running import (
    assert_close,
    emitted,
    plan_for,
    rounded,
    run,
)
from tests.ugraph import programs as made
from tests.ugraph.evaluator import evaluate_program
from tests.ugraph.programs import Maker, inputs_for
from tests.ugraph.strategies import positive_inputs, programs, ranges
from ugraph.graph import BlockGraph, Predefined, Range
from ugraph.program import Program, Store, Tensor, bound_labels
from ugraph.schedule import block, grid_labels, structures
from ugraph.search import widen
from ugraph.terms import Fixed, exp, read


def sized(kernel: BlockGraph, grid_tile: int, loop_tile: int) -> BlockGraph:
    """The kernel with these tiles."""
    return dataclasses.replace(
        kernel,
        grid=tuple(Range(r.label, grid_tile) for r in kernel.grid),
        loop=Range(kernel.loop.label, loop_tile) if kernel.loop else None,
    )


@given(programs, st.data())
@settings(max_examples=40)
def test_a_kernel_computes_the_program(program: Program, data: st.DataObject) -> None:
    inputs = rounded(program, positive_inputs(program))
    want = evaluate_program(program, inputs)
    assume(np.isfinite(want["out"]).all() and np.abs(want["out"]).max() < 1e6)
    grid = data.draw(ranges(grid_labels(program.outputs)))
    bound = bound_labels(program.outputs[0].term)
    taken = {r.label for r in grid}
    loops = [x for x in bound if x not in taken]
    loop = None
    if loops and data.draw(st.booleans()):
        loop = Range(data.draw(st.sampled_from(loops)), data.draw(st.integers(1, 4)))
    kernel = block(
        "kernel0", program.outputs, grid, loop, online=data.draw(st.booleans())
    )
    if kernel is not None:
        plan = plan_for(program, kernel)
        assert_close(run(program, plan, "triton", inputs), want, 2e-4)


@pytest.mark.parametrize("maker", made.MAKERS, ids=lambda m: m.__name__)
def test_every_structure_at_ragged_tiles(maker: Maker) -> None:
    program = maker()
    inputs = rounded(program, inputs_for(program))
    want = evaluate_program(program, inputs)
    for kernel in structures(program.outputs):
        plan = plan_for(program, sized(kernel, 7, 20))
        assert_close(run(program, plan, "triton", inputs), want, 2e-2)


@pytest.mark.parametrize("extents", [(17, 67, 31), (1021, 5, 3), (3, 129, 257)])
def test_odd_and_prime_extents(extents: tuple[int, int, int]) -> None:
    program = made.norm_linear(*extents)
    inputs = rounded(program, inputs_for(program))
    want = evaluate_program(program, inputs)
    kernels = [k for k in structures(program.outputs) if k.loop]
    plan = plan_for(program, sized(kernels[0], 16, 32))
    assert_close(run(program, plan, "triton", inputs), want, 2e-2)


def test_what_a_tile_reaches_past_its_end_is_masked_and_only_then() -> None:
    program = made.norm_linear(16, 64, 48)
    kernel = next(k for k in structures(program.outputs) if k.loop)
    exact = emitted(program, plan_for(program, sized(kernel, 16, 32)), "triton")
    ragged = emitted(program, plan_for(program, sized(kernel, 16, 24)), "triton")
    assert "mask" not in exact
    assert "mask" in ragged


def test_a_product_of_two_matrices_is_a_dot_in_the_dtype_of_the_program() -> None:
    program = made.norm_linear(16, 64, 48)
    kernel = next(k for k in structures(program.outputs) if k.loop)
    text = emitted(program, plan_for(program, sized(kernel, 16, 32)), "triton")
    assert "jnp.dot(" in text
    assert "preferred_element_type=jnp.float32" in text


def test_float32_products_are_exact() -> None:
    program = made.matmul(16, 64, 48)
    outputs = tuple(dataclasses.replace(o, term=widen(o.term)) for o in program.outputs)
    wide = dataclasses.replace(program, outputs=outputs)
    kernel = block("kernel", wide.outputs, (), Range("k", 16))
    assert kernel is not None
    text = emitted(wide, plan_for(wide, kernel), "triton")
    assert "precision=jax.lax.Precision.HIGHEST" in text


def test_a_value_that_the_loop_does_not_change_is_computed_before_it() -> None:
    program = made.attention()
    kernel = next(
        k for k in structures(program.outputs) if k.loop and k.loop.label == "t"
    )
    text = emitted(program, plan_for(program, sized(kernel, 4, 16)), "triton")
    query = program.inputs[0].name
    loads = list(re.finditer(rf"plgpu\.load\(\s*{query}_ref", text))
    assert len(loads) == 1
    assert loads[0].start() < text.index("def pass0")


def test_a_tile_beyond_what_triton_takes_is_refused() -> None:
    program = made.elementwise(4096, 512)
    kernel = BlockGraph("kernel0", (), None, (), program.outputs)
    with pytest.raises(EmitError, match=r"kernel0: the tile of .* elements"):
        emitted(program, plan_for(program, kernel), "triton")


def test_predefined_kernels_of_a_plan_stay_with_xla() -> None:
    program = made.two_outputs()
    kernel = Predefined("rest", program.outputs)
    inputs = rounded(program, inputs_for(program))
    plan = plan_for(program, kernel)
    want = evaluate_program(program, inputs)
    assert "pallas_call" not in emitted(program, plan, "triton").split('"""')[2]
    assert_close(run(program, plan, "triton", inputs), want, 2e-2)


def test_an_axis_with_a_fixed_factor() -> None:
    sizes = (("a", 6), ("e", 4))
    halves = read("x", (("a",), (Fixed(1, 2), "e")))
    out = Store(Tensor("out", "f32", (6, 4)), (("a",), ("e",)), exp(halves))
    program = Program(sizes, (Tensor("x", "f32", (6, 8)),), (out,))
    kernel = block("kernel0", program.outputs, (Range("a", 4),), None)
    assert kernel is not None
    x = np.random.default_rng(0).standard_normal((6, 8))
    got = run(program, plan_for(program, kernel), "triton", {"x": x})
    np.testing.assert_allclose(got["out"], np.exp(x[:, 4:]), rtol=1e-5)
