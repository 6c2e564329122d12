"""Layouts: the meaning stays, inputs and outputs too, and reads get no worse."""

from collections.abc import Mapping
from itertools import permutations

import pytest

from tests.ugraph.evaluator import close, evaluate_plan, evaluate_program
from tests.ugraph.plans import LARGE, best
from tests.ugraph.programs import inputs_for, load
from ugraph.graph import BlockGraph, Plan, Predefined, Range
from ugraph.optimize.layout import Touch, apply, choose, meetings, touches
from ugraph.program import Store, Tensor
from ugraph.shrink import shrink
from ugraph.terms import add, exp, mul, read, reduce
from ugraph.validate import validate

SIZES = {"a": 64, "b": 48, "c": 32}


def _two_kernels(first: dict[str, int], second: dict[str, int]) -> Plan:
    """exp(x) stored as t[a,b,c], then summed over b: tiles are the caller's."""
    t = Tensor("t", "f32", (64, 48, 32))
    axes = (("a",), ("b",), ("c",))
    out = Tensor("o", "f32", (64, 32))
    total = reduce("sum", read("t", axes), "b")
    kernels = (
        _kernel("one", first, Store(t, axes, exp(load("x", "abc")))),
        _kernel("two", second, Store(out, (("a",), ("c",)), total)),
    )
    inputs = (Tensor("x", "f32", (64, 48, 32)),)
    return validate(Plan(tuple(SIZES.items()), inputs, (out,), kernels))


def _kernel(name: str, grid: Mapping[str, int], store: Store) -> BlockGraph:
    return BlockGraph(name, tuple(Range(*r) for r in grid.items()), None, (), (store,))


def test_the_axis_that_both_kernels_have_whole_becomes_innermost() -> None:
    plan = _two_kernels({"a": 8, "c": 1}, {"a": 8, "c": 1})
    assert choose(plan) == {"t": (0, 2, 1)}


def test_a_layout_that_suits_stays() -> None:
    plan = _two_kernels({"a": 1, "b": 1}, {"a": 1})
    assert choose(plan) == {"t": (0, 1, 2)}
    assert apply(plan, choose(plan)) is plan


@pytest.mark.parametrize("order", list(permutations(range(3))), ids=str)
def test_any_layout_means_the_same(order: tuple[int, ...]) -> None:
    plan = _two_kernels({"a": 24, "c": 5}, {"a": 7})
    moved = validate(apply(plan, {"t": order}))
    inputs = inputs_for(plan)
    close(evaluate_plan(moved, inputs), evaluate_plan(plan, inputs))
    assert moved.tensors["t"].shape == tuple((64, 48, 32)[i] for i in order)
    assert moved.inputs == plan.inputs
    assert moved.outputs == plan.outputs


def test_pre_defined_kernels_and_loops_are_permuted_too() -> None:
    plan = _two_kernels({"a": 8}, {"a": 8})
    (store,) = plan.kernels[1].outputs
    plain = Plan(
        plan.extents,
        plan.inputs,
        plan.outputs,
        (Predefined("one", plan.kernels[0].outputs), Predefined("two", (store,))),
    )
    moved = validate(apply(plain, {"t": (2, 0, 1)}))
    inputs = inputs_for(plan)
    close(evaluate_plan(moved, inputs), evaluate_plan(plain, inputs))


@pytest.mark.parametrize("name", LARGE)
def test_what_the_search_finds_keeps_its_meaning(name: str) -> None:
    plan = best(name)
    orders = choose(plan)
    fixed = {t.name for t in (*plan.inputs, *plan.outputs)}
    assert not fixed & orders.keys()
    moved = validate(apply(plan, orders))
    small, small_plan = shrink(LARGE[name], moved, longest=64)
    inputs = inputs_for(small)
    close(evaluate_plan(validate(small_plan), inputs), evaluate_program(small, inputs))


def test_parts_of_a_split_reduction_are_stored_in_whole_sectors() -> None:
    plan = best("decode")
    assert any(o != tuple(range(len(o))) for o in choose(plan).values())


def test_a_short_run_wastes_its_sector() -> None:
    axes = (("a",), ("b",))
    touch = Touch("t", axes, 1000, 4, {"a": 2, "b": 16})
    sizes = {"a": 64, "b": 16}
    assert touch.cost(1, sizes) == 1000  # 16 elements, then two rows
    assert touch.cost(0, sizes) == 4000  # two elements of four bytes in 32
    narrow = Touch("t", axes, 1000, 4, {"a": 64, "b": 1})
    assert narrow.cost(1, sizes) == 8000
    assert narrow.cost(0, sizes) == 1000


def test_touches_count_what_every_block_moves() -> None:
    plan = _two_kernels({"a": 8, "c": 1}, {"a": 8})
    moved = {(t.tensor, t.tiles["c"]): t.bytes for t in touches(plan)}
    assert moved["x", 1] == 64 * 48 * 32 * 4
    assert moved["o", 32] == 64 * 32 * 4


def test_tensors_that_meet_lie_alike() -> None:
    axes = (("a",), ("b",))
    x, t = read("x", axes), read("t", axes)
    stores = Store(Tensor("o", "f32", (64, 48)), axes, add(t, mul(x, t)))
    first = Store(Tensor("t", "f32", (64, 48)), axes, exp(x))
    kernels = (_kernel("one", {}, first), _kernel("two", {}, stores))
    inputs = (Tensor("x", "f32", (64, 48)),)
    plan = Plan((("a", 64), ("b", 48)), inputs, (stores.tensor,), kernels)
    (meeting,) = meetings(validate(plan))
    assert {meeting.left.tensor, meeting.right.tensor} == {"x", "t"}
    assert meeting.bytes == 64 * 48 * 4
    assert choose(plan) == {"t": (0, 1)}
