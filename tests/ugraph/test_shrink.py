"""Shrinking keeps structure and makes things small."""

import pytest

from tests.ugraph.evaluator import close, evaluate_plan, evaluate_program
from tests.ugraph.programs import (
    attention,
    chain,
    inputs_for,
    layer_norm,
    load,
    matmul,
    norm_linear,
    program,
    softmax,
    two_outputs,
)
from ugraph.graph import (
    BlockGraph,
    Plan,
    Predefined,
    Range,
    grid_counts,
    loop_count,
)
from ugraph.program import Program, Store, axes_shape
from ugraph.schedule import block
from ugraph.search import Limits, search
from ugraph.shrink import shrink, split_labels
from ugraph.split import split
from ugraph.target import TARGETS
from ugraph.terms import mul, reduce
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
    for outer, inner in parts["t"]:
        assert best.plan.sizes[outer] * best.plan.sizes[inner] == program.sizes["t"]


def test_a_label_that_is_split_in_two_ways_keeps_one_extent() -> None:
    x, y = load("x", "ad"), load("y", "ad")
    total = reduce("sum", mul(x, y), ("d",))
    made = program(
        {"a": 64, "d": 4096},
        {"x": "ad", "y": "ad"},
        {"o": ("a", total), "p": ("a", reduce("sum", x, ("d",)))},
        "f32",
    )
    kernels: list[BlockGraph | Predefined] = []
    for number, (store, count) in enumerate(zip(made.outputs, (2, 8), strict=True)):
        names = (f"d_{count}o", f"d_{count}i")
        split_store = split((store.term,), "d", names)
        assert split_store is not None
        (term,), _ = split_store
        new = Store(store.tensor, store.axes, term)
        walked = block(
            f"kernel{number}", (new,), (Range("a", 16),), Range(names[1], 64)
        )
        assert walked is not None
        kernels.append(walked)
    extents = {"a": 64, "d_2o": 2, "d_2i": 2048, "d_8o": 8, "d_8i": 512}
    outputs = tuple(o.tensor for o in made.outputs)
    plan = validate(
        Plan(tuple(sorted(extents.items())), made.inputs, outputs, tuple(kernels))
    )
    small, small_plan = shrink(made, plan)
    assert small.sizes["d"] < 4096
    inputs = inputs_for(small)
    want = evaluate_program(small, inputs)
    close(evaluate_plan(validate(small_plan), inputs), want)
