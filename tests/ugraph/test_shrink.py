"""Shrinking keeps structure and makes things small."""

import pytest

from tests.ugraph.evaluator import close, evaluate_plan, evaluate_program
from tests.ugraph.programs import (
    attention,
    chain,
    inputs_for,
    layer_norm,
    matmul,
    norm_linear,
    softmax,
    two_outputs,
)
from ugraph.graph import BlockGraph, Predefined, grid_counts, loop_count
from ugraph.program import Program, axes_shape
from ugraph.search import Limits, search
from ugraph.shrink import shrink, split_labels
from ugraph.target import TARGETS
from ugraph.validate import validate

LARGE: dict[str, Program] = {
    "matmul": matmul(1000, 1000, 1000),
    "norm_linear": norm_linear(48, 4000, 600),
    "layer_norm": layer_norm(1000, 3000),
    "softmax": softmax(1000, 3000),
    "attention": attention(6, 200, 1000, 32),
    "decode": attention(8, 2, 8192, 64),
    "chain": chain(3000, 64, 4000, 64),
    "two_outputs": two_outputs(5000, 3000),
}


@pytest.mark.parametrize("target", ["h200", "cpu"])
@pytest.mark.parametrize("name", LARGE)
def test_shrunk_plans_compute_shrunk_programs(name: str, target: str) -> None:
    program = LARGE[name]
    found = search(program, TARGETS[target], limits=Limits(forms=2))
    assert found.candidates or target != "cpu"
    for candidate in found.candidates[:3]:
        small, plan = shrink(program, candidate.plan, longest=64)
        assert max(small.sizes.values()) <= 1024
        inputs = inputs_for(small)
        want = evaluate_program(small, inputs)
        close(evaluate_plan(validate(plan), inputs), want)


@pytest.mark.parametrize("name", LARGE)
def test_structure_and_ragged_tiles_stay(name: str) -> None:
    program = LARGE[name]
    for candidate in search(
        program, TARGETS["h200"], limits=Limits(forms=1)
    ).candidates:
        _, plan = shrink(program, candidate.plan)
        for was, now in zip(candidate.plan.kernels, plan.kernels, strict=True):
            if isinstance(was, Predefined) or isinstance(now, Predefined):
                assert type(was) is type(now)
                continue
            assert (now.grid, now.loop) == (was.grid, was.loop)
            _same_edges(was, now, candidate.plan.sizes, plan.sizes)


def _same_edges(
    was: BlockGraph, now: BlockGraph, old: dict[str, int], new: dict[str, int]
) -> None:
    for r in was.grid:
        if new[r.label] < old[r.label]:
            assert new[r.label] % r.tile == old[r.label] % r.tile
    assert all(
        n == 1 or m > 1
        for n, m in zip(grid_counts(was, old), grid_counts(now, new), strict=True)
    )
    if loop_count(was, old) > 1:
        assert loop_count(now, new) > 1


def test_a_program_that_is_small_stays() -> None:
    program = matmul(8, 16, 8)
    (first, *_) = search(program, TARGETS["cpu"], limits=Limits(forms=1)).candidates
    small, plan = shrink(program, first.plan)
    assert (small, plan) == (program, first.plan)


def test_tensors_follow_their_labels() -> None:
    program = LARGE["attention"]
    best = search(program, TARGETS["h200"], limits=Limits(forms=2)).candidates[0]
    small, plan = shrink(program, best.plan)
    assert [t.shape for t in small.inputs] == [t.shape for t in plan.inputs]
    for o in small.outputs:
        assert axes_shape(o.axes, small.sizes) == o.tensor.shape


def test_split_labels_names_the_factors() -> None:
    program = LARGE["decode"]
    best = search(program, TARGETS["h200"]).candidates[0]
    parts = split_labels(program, best.plan)
    assert set(parts) == {"t"}
    product = 1
    for part in parts["t"]:
        product *= best.plan.sizes[part]
    assert product == program.sizes["t"]
