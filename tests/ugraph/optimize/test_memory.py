"""Shared memory: buffers never overlap while both are held, and pack tightly."""

from itertools import combinations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from tests.ugraph.plans import FLASH, LARGE, best, plans, scheduled
from tests.ugraph.programs import matmul
from ugraph.graph import BlockGraph, Plan
from ugraph.optimize.memory import ALIGNMENT, FEW, Buffer, Memory, pack, plan_memory
from ugraph.optimize.order import order
from ugraph.optimize.places import is_dot, operands
from ugraph.program import Program
from ugraph.target import TARGETS
from ugraph.terms import lit


@st.composite
def _buffers(draw: st.DrawFn, most: int) -> tuple[Buffer, ...]:
    found = []
    for i in range(draw(st.integers(0, most))):
        start = draw(st.integers(0, 9))
        end = start + draw(st.integers(0, 5))
        size = ALIGNMENT * draw(st.integers(1, 8))
        found.append(Buffer(lit(i), "f32", size, start, end))
    return tuple(found)


def _check(memory: Memory) -> None:
    held = list(zip(memory.buffers, memory.offsets, strict=True))
    for (a, at), (b, bt) in combinations(held, 2):
        if a.meets(b):
            assert at + a.bytes <= bt or bt + b.bytes <= at
    assert memory.peak == max((o + b.bytes for b, o in held), default=0)
    assert all(o % ALIGNMENT == 0 for o in memory.offsets)
    for step in range(16):
        here = sum(b.bytes for b in memory.buffers if b.start <= step <= b.end)
        assert here <= memory.peak


@given(_buffers(12))
def test_buffers_that_are_held_together_do_not_overlap(
    found: tuple[Buffer, ...],
) -> None:
    _check(pack(found))


@given(_buffers(4))
def test_few_buffers_are_packed_as_tightly_as_can_be(found: tuple[Buffer, ...]) -> None:
    assert len(found) <= FEW
    memory = pack(found)
    _check(memory)
    assert memory.peak == _least(found, memory.peak)


def _least(found: tuple[Buffer, ...], bound: int) -> int:
    """The lowest peak of any offsets, by trying all multiples of the alignment."""
    least = bound

    def place(i: int, placed: list[tuple[Buffer, int]], peak: int) -> None:
        nonlocal least
        if peak >= least:
            return
        if i == len(found):
            least = peak
            return
        b = found[i]
        for offset in range(0, least - b.bytes, ALIGNMENT):
            if all(
                not b.meets(x) or offset + b.bytes <= o or o + x.bytes <= offset
                for x, o in placed
            ):
                place(i + 1, [*placed, (b, offset)], max(peak, offset + b.bytes))

    place(0, [], 0)
    return least


@given(plans())
def test_every_operand_of_a_matrix_product_has_a_buffer(
    case: tuple[Program, Plan],
) -> None:
    _, plan = case
    for kernel in plan.custom:
        done = order(kernel, plan.sizes)
        memory = plan_memory(kernel, done, plan.sizes)
        _check(memory)
        steps = [t for o in done for t in o.terms]
        for at, term in enumerate(steps):
            for a in operands(term, plan.sizes) if is_dot(term, plan.sizes) else ():
                held = [b for b in memory.buffers if b.term is a]
                assert any(b.start <= at <= b.end for b in held)


def _plan(kernel: BlockGraph, plan: Plan) -> Memory:
    return plan_memory(kernel, order(kernel, plan.sizes), plan.sizes)


def test_pipelined_loads_have_a_buffer_per_stage() -> None:
    plan = scheduled(matmul(128, 128, 128), {"m": 64, "n": 64}, ("k", 32))
    memory = _plan(plan.custom[0], plan)
    assert plan.custom[0].num_stages == 2
    assert sorted(b.bytes for b in memory.buffers) == [64 * 32 * 2 * 2] * 2
    assert memory.peak == 4 * 64 * 32 * 2


def test_what_is_loaded_before_the_loop_is_held_through_it() -> None:
    memory = _plan(FLASH.custom[0], FLASH)
    steps = [t for o in order(FLASH.custom[0], FLASH.sizes) for t in o.terms]
    body = next(o for o in order(FLASH.custom[0], FLASH.sizes) if o.looped)
    held = {b.term: b for b in memory.buffers}
    q = next(b for t, b in held.items() if getattr(t.attr, "tensor", "") == "q")
    assert q.end == steps.index(body.terms[-1])
    assert q.bytes == 16 * 16 * 2  # once, not per stage
    assert len(memory.buffers) == 4
    weights = next(b for t, b in held.items() if t.op == "exp")
    assert weights.start > q.start


@pytest.mark.parametrize("name", LARGE)
def test_what_the_search_chooses_fits(name: str) -> None:
    plan = best(name)
    for kernel in plan.custom:
        memory = _plan(kernel, plan)
        _check(memory)
        assert memory.peak <= TARGETS["h200"].shared_bytes
