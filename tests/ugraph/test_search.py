"""The search: every plan it proposes computes the program."""

import numpy as np
import pytest
from hypothesis import assume, given, settings

from tests.ugraph.evaluator import close, evaluate_plan, evaluate_program
from tests.ugraph.programs import (
    MAKERS,
    Maker,
    attention,
    chain,
    gated,
    inputs_for,
    layer_norm,
    matmul,
    norm_linear,
    softmax,
)
from tests.ugraph.strategies import positive_inputs, programs
from ugraph.kernels import plan_of
from ugraph.program import Program
from ugraph.rewrite import Step
from ugraph.rules import AXIOMS
from ugraph.search import Found, Limits, original_seconds, search, widen
from ugraph.shrink import shrink
from ugraph.target import TARGETS
from ugraph.terms import Reduction, subterms
from ugraph.validate import validate

FEW = Limits(forms=6)
H200, CPU = TARGETS["h200"], TARGETS["cpu"]
LARGE: dict[str, Program] = {
    "matmul": matmul(4096, 4096, 4096),
    "norm_linear": norm_linear(16, 4096, 6144),
    "layer_norm": layer_norm(8192, 4096),
    "softmax": softmax(8192, 2048),
    "attention": attention(16, 512, 1024, 64),
    "decode": attention(8, 2, 8192, 64),
    "gated": gated(64, 4096, 4096),
    "chain": chain(4096, 64, 4096, 64),
}


def _check(program: Program, found: Found) -> None:
    inputs = inputs_for(program)
    want = evaluate_program(program, inputs)
    for candidate in found.candidates:
        got = evaluate_plan(validate(candidate.plan), inputs)
        close(got, want)


@pytest.mark.parametrize("make", MAKERS, ids=lambda m: m.__name__)
@pytest.mark.parametrize("target", ["h200", "cpu"])
def test_every_candidate_is_equal_to_the_program(make: Maker, target: str) -> None:
    program = make()
    found = search(program, TARGETS[target], limits=FEW)
    assert found.counts.seen
    if target == "cpu":
        assert found.candidates
    _check(program, found)


def test_a_large_product_stays_with_xla() -> None:
    found = search(LARGE["matmul"], H200, limits=FEW)
    work = 2 * 4096**3 / H200.matrix_flops
    assert work < found.original_seconds < 2 * work


@pytest.mark.parametrize("name", LARGE)
def test_plans_for_large_programs_are_equal_when_shrunk(name: str) -> None:
    program = LARGE[name]
    found = search(program, H200, limits=FEW)
    assert bool(found.candidates) == (name != "matmul")
    for candidate in found.candidates[:2]:
        small, plan = shrink(program, candidate.plan, longest=96)
        inputs = inputs_for(small)
        got = evaluate_plan(validate(plan), inputs)
        close(got, evaluate_program(small, inputs))


@given(programs)
@settings(max_examples=25)
def test_plans_for_random_programs_are_equal(program: Program) -> None:
    inputs = positive_inputs(program)
    want = evaluate_program(program, inputs)
    assume(np.isfinite(want["out"]).all())
    for target in (H200, CPU):
        for candidate in search(program, target, limits=Limits(forms=3)).candidates:
            close(evaluate_plan(validate(candidate.plan), inputs), want)


@pytest.mark.parametrize("name", ["norm_linear", "attention", "decode"])
def test_custom_kernels_are_found_and_promise_more(name: str) -> None:
    found = search(LARGE[name], H200)
    best = found.candidates[0]
    assert best.plan.custom
    assert best.seconds < found.original_seconds
    assert best.seconds == pytest.approx(sum(c.cost.seconds for c in best.kernels))
    assert [c.seconds for c in found.candidates] == sorted(
        c.seconds for c in found.candidates
    )


def test_a_norm_moves_behind_its_matrix_product() -> None:
    best = search(LARGE["norm_linear"], H200).candidates[0]
    (kernel,) = best.plan.custom
    assert len(best.plan.kernels) == 1
    assert len(kernel.passes) == 1
    assert {s.rule for s in best.derivation} >= {"pull"}


def test_few_rows_over_many_keys_are_split() -> None:
    best = search(LARGE["decode"], H200).candidates[0]
    assert len(best.plan.kernels) == 2
    assert set(best.plan.sizes) > set(LARGE["decode"].sizes) - {"t"}


@pytest.mark.parametrize("target", ["h200", "cpu"])
def test_a_search_is_deterministic(target: str) -> None:
    runs = [search(LARGE["gated"], TARGETS[target], limits=FEW) for _ in range(2)]
    assert runs[0].candidates == runs[1].candidates
    assert runs[0].counts == runs[1].counts


@pytest.mark.parametrize("states", [1, 20, 60])
def test_a_limit_in_states_stops_at_the_same_point(states: int) -> None:
    program = LARGE["attention"]
    runs = [search(program, H200, limits=Limits(states=states)) for _ in range(2)]
    assert runs[0].candidates == runs[1].candidates
    assert runs[0].counts == runs[1].counts
    assert runs[0].stopped == f"limit of {states} states"
    free = search(program, H200)
    assert runs[0].counts.seen < free.counts.seen


def test_a_limit_in_seconds_is_named() -> None:
    ticks = iter(range(10**6))
    found = search(
        LARGE["attention"], H200, limits=Limits(seconds=2), clock=lambda: next(ticks)
    )
    assert found.stopped == "time limit of 2 s"


def test_an_interrupt_keeps_what_was_found() -> None:
    ticks = iter([0.0, 0.0])

    def clock() -> float:
        tick = next(ticks, None)
        if tick is None:
            ticks_over.append(True)
            if len(ticks_over) == 1:
                raise KeyboardInterrupt
        return 0.0

    ticks_over: list[bool] = []
    found = search(norm_linear(), CPU, limits=FEW, clock=clock)
    assert found.stopped == "interrupted"
    assert found.candidates


def test_limits_on_ops_are_kept() -> None:
    program = LARGE["attention"]
    for most in (1, 2):
        found = search(program, H200, limits=Limits(forms=6, max_kernel_ops=most))
        assert all(len(c.plan.kernels) <= most for c in found.candidates)
    none = search(program, H200, limits=Limits(forms=6, max_block_ops=0))
    assert not none.candidates


@pytest.mark.parametrize("name", LARGE)
def test_derivations_only_use_axioms(name: str) -> None:
    names = {r.name for r in AXIOMS}
    for candidate in search(LARGE[name], H200, limits=FEW).candidates:
        assert all(
            isinstance(s, Step) and s.rule in names for s in candidate.derivation
        )


def test_original_seconds_grow_with_the_program() -> None:
    small, large = (original_seconds(matmul(n, n, n), H200) for n in (1024, 4096))
    assert 0 < small < large


def test_widen_only_changes_the_dtype_of_products() -> None:
    (out,) = attention().outputs
    wide = widen(out.term)
    dtypes = {t.attr.dtype for t in subterms(wide) if isinstance(t.attr, Reduction)}
    assert dtypes == {"f32"}
    assert wide.labels == out.term.labels
    assert widen(wide) is wide


def test_kernels_are_ordered_by_what_they_read() -> None:
    best = search(LARGE["decode"], H200).candidates[0]
    program = LARGE["decode"]
    again = plan_of(best.kernels[::-1], program, best.plan.sizes)
    assert validate(again) == best.plan
