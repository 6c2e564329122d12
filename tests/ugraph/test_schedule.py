"""From terms to block graphs: every schedule computes the program."""

from fractions import Fraction

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import assume, given, settings

from tests.ugraph.evaluator import close, evaluate_plan, evaluate_program
from tests.ugraph.programs import (
    MAKERS,
    MINUS_INF,
    Maker,
    attention,
    causal_attention,
    inputs_for,
    layer_norm,
    load,
    matmul,
    norm_linear,
    program,
    pulled,
    softmax,
    two_outputs,
)
from tests.ugraph.strategies import positive_inputs, programs, ranges
from ugraph.graph import BlockGraph, Plan, Range
from ugraph.program import Program, bound_labels
from ugraph.schedule import (
    block,
    contains,
    degree,
    grid_labels,
    reduces,
    slope,
    structures,
)
from ugraph.terms import add, exp, finite, lit, make, mul, neg, power, reduce
from ugraph.validate import validate

X = load("x", "ab")
M = reduce("max", X, "b")


def plan_for(program: Program, kernel: BlockGraph) -> Plan:
    """The plan with the one kernel."""
    outputs = tuple(o.tensor for o in program.outputs)
    return validate(Plan(program.extents, program.inputs, outputs, (kernel,)))


@given(programs, st.data())
@settings(max_examples=150)
def test_a_block_graph_computes_the_program(
    program: Program, data: st.DataObject
) -> None:
    inputs = positive_inputs(program)
    want = evaluate_program(program, inputs)
    assume(np.isfinite(want["out"]).all())
    grid = data.draw(ranges(grid_labels(program.outputs)))
    bound = bound_labels(program.outputs[0].term)
    taken = {r.label for r in grid}
    loops = [x for x in program.sizes if x in bound and x not in taken]
    assume(loops)
    loop = Range(data.draw(st.sampled_from(loops)), data.draw(st.integers(1, 4)))
    online = data.draw(st.booleans())
    kernel = block("k", program.outputs, grid, loop, online=online)
    if not online:
        assert kernel is not None
    if kernel is not None:
        close(evaluate_plan(plan_for(program, kernel), inputs), want)


@pytest.mark.parametrize("maker", MAKERS, ids=lambda m: m.__name__)
@pytest.mark.parametrize("tile", [5, 16, 1000])
def test_every_structure_computes_the_program(maker: Maker, tile: int) -> None:
    ours = maker()
    inputs = inputs_for(ours)
    want = evaluate_program(ours, inputs)
    for kernel in structures(ours.outputs):
        grid = tuple(Range(r.label, 7) for r in kernel.grid)
        loop = Range(kernel.loop.label, tile) if kernel.loop else None
        sized = BlockGraph("k", grid, loop, kernel.passes, kernel.stores)
        close(evaluate_plan(plan_for(ours, sized), inputs), want)


def _loop(ours: Program, label: str, *, online: bool = True) -> BlockGraph:
    kernel = block("k", ours.outputs, (), Range(label, 8), online=online)
    assert kernel is not None
    return kernel


def test_a_sum_becomes_one_accumulator() -> None:
    (walk,) = _loop(matmul(), "k").passes
    assert [(a.name, a.op, a.rescale) for a in walk.accumulators] == [
        ("acc0", "sum", None)
    ]


def test_a_running_maximum_feeds_its_own_pass() -> None:
    online = _loop(pulled(attention()), "t")
    assert len(online.passes) == 1
    accumulators = online.passes[0].accumulators
    assert [a.op for a in accumulators] == ["max", "sum", "sum"]
    assert [a.rescale is not None for a in accumulators] == [False, True, True]


def test_without_online_there_is_a_pass_for_each_reduction_in_turn() -> None:
    assert len(_loop(attention(), "t", online=False).passes) == 3
    whole = _loop(pulled(attention()), "t", online=False)
    assert len(whole.passes) == 2
    assert all(a.rescale is None for p in whole.passes for a in p.accumulators)


def test_what_keeps_the_loop_s_label_is_stored_inside() -> None:
    kernel = _loop(two_outputs(), "d")
    assert [s.tensor.name for s in kernel.stores] == ["s"]
    assert [s.tensor.name for p in kernel.passes for s in p.stores] == ["o"]
    assert kernel.passes[0].stores == ()


def test_a_store_waits_for_the_maximum_to_settle() -> None:
    kernel = _loop(softmax(), "d")
    assert [len(p.stores) for p in kernel.passes] == [0, 1]


def test_two_means_in_turn_take_two_passes() -> None:
    assert len(_loop(layer_norm(), "d").passes) == 3


def test_no_loop_without_a_reduction_over_its_label() -> None:
    ours = norm_linear()
    assert block("k", ours.outputs, (), Range("n", 8)) is None


def test_an_accumulation_that_does_not_scale_has_no_online_form() -> None:
    total = reduce("sum", make("tanh", (add(X, neg(M)),)), "b")
    sizes = {"a": 3, "b": 10}
    ours = program(sizes, {"x": "ab"}, {"o": ("a", total)})
    assert block("k", ours.outputs, (), Range("b", 4), online=True) is None
    inputs = inputs_for(ours)
    kernel = _loop(ours, "b", online=False)
    close(evaluate_plan(plan_for(ours, kernel), inputs), evaluate_program(ours, inputs))


@pytest.mark.parametrize("tile", [1, 3, 4, 11])
@pytest.mark.parametrize("power_of", [1, 2, -1])
def test_powers_of_exponentials_are_rescaled(power_of: int, tile: int) -> None:
    weight = power(exp(add(X, neg(M))), power_of)
    total = reduce("sum", mul(weight, load("y", "b")), "b")
    ours = program({"a": 3, "b": 11}, {"x": "ab", "y": "b"}, {"o": ("a", total)}, "f32")
    kernel = block("k", ours.outputs, (Range("a", 2),), Range("b", tile))
    assert kernel is not None
    assert len(kernel.passes) == 1
    inputs = inputs_for(ours)
    close(evaluate_plan(plan_for(ours, kernel), inputs), evaluate_program(ours, inputs))


@pytest.mark.parametrize("tile", [1, 4, 7, 96])
@pytest.mark.parametrize("start", [0, 40, 95])
def test_a_tile_in_which_all_is_masked_makes_no_nan(tile: int, start: int) -> None:
    """Everything before `start` is -inf: whole tiles of nothing come first."""
    mask = make("ge", (make("iota", (), "t"), make("int", (), start)))
    scores = make("select", (mask, load("x", "st"), MINUS_INF))
    weights = exp(add(scores, neg(reduce("max", scores, "t"))))
    out = mul(
        reduce("sum", mul(weights, load("v", "t")), "t"),
        power(reduce("sum", weights, "t"), -1),
    )
    ours = program({"s": 3, "t": 96}, {"x": "st", "v": "t"}, {"o": ("s", out)}, "f32")
    inputs = inputs_for(ours)
    want = evaluate_program(ours, inputs)
    assert np.isfinite(want["o"]).all()
    kernel = block("k", ours.outputs, (), Range("t", tile))
    assert kernel is not None
    assert len(kernel.passes) == 1
    close(evaluate_plan(plan_for(ours, kernel), inputs), want)


@pytest.mark.parametrize("scale", [1.0, 1e3, 1e-30])
@pytest.mark.parametrize("online", [True, False])
def test_extreme_scores(scale: float, online: bool) -> None:
    for ours in (attention(h=1, s=4, t=30, e=2), causal_attention(1, 4, 30, 2)):
        inputs = inputs_for(ours)
        inputs["k"][0, ::3] *= scale
        kernel = block("k", ours.outputs, (), Range("t", 7), online=online)
        assert kernel is not None
        want = evaluate_program(ours, inputs)
        assert np.isfinite(want["o"]).all()
        close(evaluate_plan(plan_for(ours, kernel), inputs), want)


def test_degree() -> None:
    shifted = exp(add(X, neg(M)))
    assert degree(shifted, M) == -1
    assert degree(mul(shifted, shifted), M) == -2
    assert degree(power(shifted, Fraction(-1, 2)), M) == Fraction(1, 2)
    assert degree(add(shifted, lit(0)), M) == -1
    assert degree(add(shifted, lit(1)), M) is None
    assert degree(make("tanh", (M,)), M) is None
    assert degree(X, M) == 0
    assert degree(make("select", (make("lt", (X, X)), shifted, lit(0))), M) == -1


def test_a_sum_along_the_shift_has_no_degree() -> None:
    shifted = exp(add(X, neg(M)))
    assert degree(reduce("sum", shifted, "b"), M) == -1
    assert degree(reduce("sum", shifted, "a"), M) is None
    both = reduce("sum", shifted, "ab")
    ours = program({"a": 3, "b": 10}, {"x": "ab"}, {"o": ("", both)}, "f32")
    assert block("k", ours.outputs, (), Range("b", 4), online=True) is None
    inputs = inputs_for(ours)
    kernel = _loop(ours, "b", online=False)
    close(evaluate_plan(plan_for(ours, kernel), inputs), evaluate_program(ours, inputs))


def test_slope() -> None:
    assert slope(M, M) == 1
    assert slope(mul(lit(Fraction(3, 2)), add(X, neg(M))), M) == Fraction(-3, 2)
    assert slope(finite(M), M) == 1
    assert slope(mul(M, M), M) is None
    assert slope(mul(M, X), M) is None
    assert slope(X, M) == 0
    mask = make("lt", (X, lit(0)))
    assert slope(make("select", (mask, neg(M), MINUS_INF)), M) == -1
    assert slope(make("select", (mask, neg(M), lit(0))), M) is None


def test_questions_about_terms() -> None:
    assert reduces(M, "b")
    assert not reduces(M, "a")
    assert contains(exp(M), X)
    assert not contains(X, M)
    assert grid_labels(two_outputs().outputs) == ("b",)
    assert grid_labels(layer_norm().outputs) == ("b",)
