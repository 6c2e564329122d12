"""Terms as operations on whole arrays."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import assume, given, settings

from pallas_codegen import EmitError
from tests.pallas_codegen.running import assert_close, emitted, plan_for, rounded, run
from tests.ugraph import programs as made
from tests.ugraph.evaluator import evaluate_program
from tests.ugraph.programs import Maker, inputs_for
from tests.ugraph.strategies import positive_inputs, programs
from ugraph.graph import BlockGraph, Predefined, Range
from ugraph.program import Program, Store, Tensor
from ugraph.schedule import grid_labels, structures
from ugraph.terms import mul, read


@given(programs)
@settings(max_examples=30)
def test_a_predefined_kernel_computes_the_program(program: Program) -> None:
    inputs = rounded(program, positive_inputs(program))
    want = evaluate_program(program, inputs)
    assume(np.isfinite(want["out"]).all() and np.abs(want["out"]).max() < 1e6)
    plan = plan_for(program, Predefined("kernel0", program.outputs))
    assert_close(run(program, plan, "xla", inputs), want, 2e-4)


@given(programs, st.data())
@settings(max_examples=30)
def test_a_grid_is_a_map_over_blocks(program: Program, data: st.DataObject) -> None:
    inputs = rounded(program, positive_inputs(program))
    want = evaluate_program(program, inputs)
    assume(np.isfinite(want["out"]).all() and np.abs(want["out"]).max() < 1e6)
    labels = grid_labels(program.outputs)
    assume(labels)
    chosen = data.draw(st.lists(st.sampled_from(labels), unique=True, min_size=1))
    grid = []
    for label in chosen:
        n = program.sizes[label]
        tiles = [t for t in range(1, n + 1) if n % t == 0]
        grid.append(Range(label, data.draw(st.sampled_from(tiles))))
    kernel = BlockGraph("kernel0", tuple(grid), None, (), program.outputs)
    assert_close(run(program, plan_for(program, kernel), "xla", inputs), want, 2e-4)


@pytest.mark.parametrize("maker", made.MAKERS, ids=lambda m: m.__name__)
def test_every_program_in_its_own_dtype(maker: Maker) -> None:
    program = maker()
    inputs = rounded(program, inputs_for(program))
    plan = plan_for(program, BlockGraph("kernel0", (), None, (), program.outputs))
    want = evaluate_program(program, inputs)
    assert_close(run(program, plan, "xla", inputs), want, 2e-2)


def test_products_accumulate_in_float32() -> None:
    program = made.matmul()
    text = emitted(
        program, plan_for(program, Predefined("kernel0", program.outputs)), "xla"
    )
    assert 'jnp.einsum("' in text
    assert "preferred_element_type=jnp.float32" in text


def test_a_loop_is_refused_by_name() -> None:
    program = made.norm_linear()
    kernel = next(k for k in structures(program.outputs) if k.loop)
    with pytest.raises(EmitError, match=rf"{kernel.name}: .* no for-loop"):
        emitted(program, plan_for(program, kernel), "xla")


def test_tiles_that_do_not_divide_are_refused_by_name() -> None:
    program = made.elementwise(16, 64)
    grid = (Range(grid_labels(program.outputs)[0], 5),)
    kernel = BlockGraph("kernel0", grid, None, (), program.outputs)
    with pytest.raises(EmitError, match=r"kernel0: tiles of `.*` do not divide"):
        emitted(program, plan_for(program, kernel), "xla")


def test_a_tensor_read_along_its_diagonal() -> None:
    x = read("x", (("a",), ("a",)))
    out = Store(Tensor("out", "f32", (5,)), (("a",),), mul(x, x))
    program = Program((("a", 5),), (Tensor("x", "f32", (5, 5)),), (out,))
    array = np.random.default_rng(0).standard_normal((5, 5))
    plan = plan_for(program, Predefined("kernel0", program.outputs))
    got = run(program, plan, "xla", {"x": array})
    np.testing.assert_allclose(got["out"], np.diag(array) ** 2, rtol=1e-5)
