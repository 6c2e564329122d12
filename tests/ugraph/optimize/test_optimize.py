"""The optimizer as a whole: same meaning, complete decisions, everything fits."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given

from tests.ugraph.evaluator import close, evaluate_plan, evaluate_program
from tests.ugraph.plans import FLASH, LARGE, best, plans
from tests.ugraph.programs import inputs_for
from tests.ugraph.strategies import positive_inputs
from ugraph.graph import Plan, baseline
from ugraph.optimize import Optimized, optimize
from ugraph.program import Program
from ugraph.shrink import shrink
from ugraph.target import TARGETS
from ugraph.validate import validate

H200 = TARGETS["h200"]


@given(plans())
def test_the_meaning_stays(case: tuple[Program, Plan]) -> None:
    program, plan = case
    inputs = positive_inputs(program)
    want = evaluate_program(program, inputs)
    assume(np.isfinite(want["out"]).all())
    done = optimize(validate(plan), H200)
    close(evaluate_plan(validate(done.plan), inputs), want)


@pytest.mark.parametrize("name", LARGE)
def test_decisions_are_made_for_every_custom_kernel(name: str) -> None:
    plan = best(name)
    done = optimize(plan, H200)
    names = {k.name for k in plan.custom}
    assert done.threads.keys() == done.order.keys() == done.memory.keys() == names
    stored = {s.tensor.name for k in plan.kernels for s in k.outputs}
    assert done.layouts.keys() <= stored - {t.name for t in plan.outputs}
    assert done.plan.inputs == plan.inputs
    assert done.plan.outputs == plan.outputs
    assert done.plan.extents == plan.extents
    assert optimize(plan, H200) == done


@pytest.mark.parametrize("name", LARGE)
def test_optimizing_again_changes_nothing(name: str) -> None:
    once = optimize(best(name), H200).plan
    assert optimize(once, H200).plan == once


@pytest.mark.parametrize("name", LARGE)
def test_large_plans_keep_their_meaning(name: str) -> None:
    done = optimize(best(name), H200)
    small, plan = shrink(LARGE[name], validate(done.plan), longest=64)
    inputs = inputs_for(small)
    close(evaluate_plan(plan, inputs), evaluate_program(small, inputs))


def test_a_pipeline_gets_no_deeper_than_memory_allows() -> None:
    deep = replace(FLASH, kernels=(replace(FLASH.custom[0], num_stages=4),))
    peaks = []
    for shared in (1 << 20, 7 << 10, 16):
        done = optimize(deep, replace(H200, shared_bytes=shared))
        peaks.append((done.plan.custom[0].num_stages, done.memory["kernel0"].peak))
    (most, peak), (fewer, fits), (least, _) = peaks
    assert most == 4
    assert 1 <= fewer < 4
    assert fits <= 7 << 10 < peak
    assert least == 1


def test_pre_defined_kernels_pass_through() -> None:
    plan = baseline(LARGE["softmax"])
    assert optimize(plan, H200) == Optimized(plan, {}, {}, {}, {})
