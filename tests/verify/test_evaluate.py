"""Plans are walked as scheduled, and must be runnable."""

from dataclasses import replace

import numpy as np
import pytest

from tests.ugraph.evaluator import evaluate_plan as run_in_floats
from tests.ugraph.programs import chain, layer_norm, load, matmul, softmax
from tests.verify.zoo import rotated, tiled
from ugraph.graph import Accumulator, BlockGraph, Pass, Plan, Range
from ugraph.program import Program, Store
from ugraph.terms import mul, read, reduce, ref
from verify import evaluate
from verify.evaluate import PlanError
from verify.field import P, Q
from verify.small import small
from verify.values import Float, Interpretation, UnsupportedError


def integers(made: Program, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {t.name: rng.integers(0, 9, t.shape) for t in made.inputs}


def as_values(found: dict[str, np.ndarray]) -> dict[str, Float]:
    return {
        n: Float(x[None].astype(np.uint64), x[None].astype(np.uint64))
        for n, x in found.items()
    }


@pytest.mark.parametrize("make_program", [matmul, chain, rotated])
@pytest.mark.parametrize("ragged", [False, True])
def test_whole_numbers_come_out_as_whole_numbers(make_program, ragged):
    made = make_program()
    inputs = integers(made)
    for plan in tiled(made, ragged):
        how = Interpretation(0, 1)
        got = evaluate.evaluate_plan(plan, as_values(inputs), how)
        for name, want in run_in_floats(plan, inputs).items():
            exact = np.round(want).astype(np.int64)
            assert (got[name].p[0] == np.mod(exact, P)).all()
            assert (got[name].q[0] == np.mod(exact, Q)).all()


def test_all_trials_at_once_are_each_trial_alone():
    tiny = small(softmax(), next(tiled(softmax(), ragged=True)))
    how = Interpretation(3, 4)
    inputs = evaluate.draw(tiny.program.inputs, 4, 3)
    together = evaluate.evaluate_plan(tiny.plan, inputs, how)["o"]
    how.roots, how.key, how.trials = how.roots[2:3], how.key[2:3], 1
    one = {n: v.move(lambda a: a[2:3]) for n, v in inputs.items()}
    alone = evaluate.evaluate_plan(tiny.plan, one, how)["o"]
    assert (together.p[2] == alone.p[0]).all()


def run(plan: Plan) -> dict:
    how = Interpretation(0, 2)
    return evaluate.evaluate_plan(plan, evaluate.draw(plan.inputs, 2, 0), how)


def looped() -> tuple[Plan, BlockGraph]:
    """A tiled matrix product and its only kernel."""
    plans = tiled(matmul(8, 6, 4), ragged=False)
    plan = next(p for p in plans if p.custom[0].loop)
    return plan, plan.custom[0]


def changed(plan: Plan, **facts) -> Plan:
    return replace(plan, kernels=(replace(plan.custom[0], **facts),))


def test_an_element_written_twice_or_never_is_an_error():
    plan, kernel = looped()
    with pytest.raises(PlanError, match=r"written .*2"):
        run(changed(plan, stores=kernel.stores * 2))
    with pytest.raises(PlanError, match="never stored"):
        run(changed(plan, stores=()))


def test_reading_what_is_not_there_is_an_error():
    plan, kernel = looped()
    (store,) = kernel.stores
    lost = replace(store, term=read("nothing", (("m",), ("n",))))
    with pytest.raises(PlanError, match="`nothing` is read before"):
        run(changed(plan, stores=(lost,)))
    stale = replace(store, term=ref("acc9", ("m", "n")))
    with pytest.raises(PlanError, match="acc9"):
        run(changed(plan, stores=(stale,)))
    wrong = replace(store, term=ref("acc0", ("m",)))
    with pytest.raises(PlanError, match="has labels"):
        run(changed(plan, stores=(wrong,)))


def test_a_label_walked_twice_is_an_error():
    plan, kernel = looped()
    with pytest.raises(PlanError, match="walked twice"):
        run(changed(plan, grid=(*kernel.grid, kernel.loop)))
    with pytest.raises(PlanError, match="without a loop"):
        run(changed(plan, loop=None))


def test_an_accumulator_that_folds_by_nothing_known_is_an_error():
    plan, kernel = looped()
    (first,) = kernel.passes
    odd = tuple(replace(a, op="product") for a in first.accumulators)
    with pytest.raises(PlanError, match="product"):
        run(changed(plan, passes=(replace(first, accumulators=odd),)))


def test_the_value_before_an_iteration():
    """sum of x[i]·(x[0] + ... + x[i-1]) by a reference to the value before."""
    x = load("x", "k")
    first = Accumulator("total", "sum", reduce("sum", x, "k"))
    second = Accumulator("largest", "max", reduce("max", x, "k"))
    made = matmul(2, 6, 2)
    kernel = BlockGraph(
        "kernel",
        (),
        Range("k", 2),
        (Pass((first, second)),),
        (
            Store(
                replace(made.outputs[0].tensor, shape=()),
                (),
                mul(ref("total", ()), ref("largest", ())),
            ),
        ),
    )
    inputs = (replace(made.inputs[0], name="x", shape=(6,)),)
    plan = Plan((("k", 6),), inputs, (kernel.stores[0].tensor,), (kernel,))
    got = run(plan)["o"]
    drawn = evaluate.draw(inputs, 2, 0)["x"]
    totals = [sum(map(int, row)) % P for row in drawn.p]
    possible = [
        {t * int(v) % P for v in row} for t, row in zip(totals, drawn.p, strict=True)
    ]
    assert all(int(g) in p for g, p in zip(got.p, possible, strict=True))


def test_integer_inputs_are_unsupported():
    tensor = replace(matmul().inputs[0], dtype="i32")
    with pytest.raises(UnsupportedError, match="integers"):
        evaluate.draw((tensor,), 2, 0)


def test_watched_terms_are_seen():
    made = layer_norm(3, 4)
    total = next(t for t in made.terms if t.op == "sum")
    how = Interpretation(0, 2)
    inputs = evaluate.draw(made.inputs, 2, 0)
    _, seen = evaluate.watching(
        frozenset({total}),
        how,
        lambda: evaluate.evaluate_program(made, inputs, how),
    )
    assert len(seen) == 3
