"""The kernel graph's search: states, moves and bounds."""

from math import inf

import pytest

from tests.ugraph.programs import (
    MAKERS,
    Maker,
    attention,
    chain,
    gated,
    matmul,
    norm_linear,
    two_outputs,
)
from ugraph.graph import BlockGraph, Predefined
from ugraph.kernels import Kernels, plan_of, work
from ugraph.program import Program
from ugraph.rewrite import Counts
from ugraph.target import TARGETS
from ugraph.terms import is_reduction
from ugraph.validate import validate

H200 = TARGETS["h200"]


def _state(program: Program, most: int = 11) -> Kernels:
    roots = tuple(o.term for o in program.outputs)
    return Kernels(program, roots, H200, most, Counts())


def test_anchors_are_reductions_and_outputs() -> None:
    state = _state(attention())
    anchors = state.anchors()
    assert sum(is_reduction(t) for t in anchors) == 4
    assert set(state.roots) <= set(anchors)


def test_work_counts_reductions_and_exponentials() -> None:
    assert work(attention().outputs) == 5
    assert work(matmul().outputs) == 1


@pytest.mark.parametrize("make", MAKERS, ids=lambda m: m.__name__)
def test_the_best_state_is_no_worse_than_where_search_begins(make: Maker) -> None:
    state = _state(make())
    best = state.search()
    every = tuple((t,) for t in state.anchors())
    assert best is not None
    assert state.total(best) <= state.total(every)
    plan = plan_of(state.kernels(best), state.program, state.sizes)
    assert validate(plan) is plan


def test_storing_every_reduction_is_a_plan_of_pre_defined_kernels_when_small() -> None:
    state = _state(chain(4096, 4096, 4096, 4096), most=0)
    every = tuple((t,) for t in state.anchors())
    made = state.kernels(every)
    assert [type(c.kernel) for c in made] == [Predefined, Predefined]


def test_values_of_one_input_may_share_a_kernel() -> None:
    state = _state(gated(16, 4096, 4096))
    best = state.search()
    assert best is not None
    made = state.kernels(best)
    assert any(isinstance(c.kernel, BlockGraph) for c in made)


def test_an_output_used_by_another_is_stored_once() -> None:
    state = _state(two_outputs(4096, 512))
    best = state.search()
    assert best is not None
    plan = plan_of(state.kernels(best), state.program, state.sizes)
    stored = [s.tensor.name for k in plan.kernels for s in k.outputs]
    assert sorted(stored) == sorted(set(stored))
    assert {"s", "o"} <= set(stored)


def test_no_state_is_below_the_floor() -> None:
    for program in (matmul(512, 512, 512), norm_linear(16, 4096, 6144)):
        state = _state(program)
        best = state.search()
        assert best is not None
        assert state.total(best) >= state.floor(len(best))


def test_parts_divide_their_label() -> None:
    state = _state(attention(8, 2, 8192, 64))
    assert state.parts("t") == (2, 4, 8, 16, 32)
    assert state.parts("e") == ()


def test_a_label_in_no_output_ranks_last_in_a_stored_value() -> None:
    state = _state(attention())
    scores = next(t for t in state.anchors() if t.labels == ("h", "s", "t"))
    assert state.axes(scores) == (("h",), ("s",), ("t",))
    assert state.stores(scores)[0].tensor.shape == (4, 32, 96)


def test_what_does_not_fit_is_not_chosen() -> None:
    state = _state(matmul(4096, 4096, 4096), most=0)
    best = state.search()
    assert best is not None
    assert state.total(best) < inf
    assert state.counts.seen
