"""Right plans are proved, wrong ones rejected, certificates can be checked again."""

import json
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

import verify
from tests.ugraph.evaluator import evaluate_plan, evaluate_program
from tests.ugraph.programs import MAKERS, attention, causal_attention, matmul, softmax
from tests.verify import zoo
from tests.verify.mutants import mutants
from ugraph.graph import Plan, Predefined, baseline
from ugraph.program import Program
from ugraph.search import Limits, search
from ugraph.target import TARGETS
from ugraph.terms import exp, lit, make, mul
from ugraph.terms import replace as substitute
from verify.small import small

EVERY = tuple(dict.fromkeys((*MAKERS, *zoo.MAKERS, zoo.projected_attention)))
MOST_OF_A_KIND = 4
REQUIRED = frozenset(
    {
        "dropped accumulator",
        "earlier iterations dropped",
        "loop one short",
        "mask shifted by one",
        "missing rescale",
        "operand dropped",
        "reciprocal",
        "rescale upside down",
        "rescaled twice",
        "scale off",
        "sign",
        "smallest for largest",
        "stale accumulator",
        "swapped operand",
        "transposed store",
        "wrong axis",
        "wrong combine",
        "wrong half",
        "wrong tensor",
    }
)


@pytest.mark.parametrize("make_program", EVERY)
@pytest.mark.parametrize("target", ["h200", "cpu"])
def test_what_the_search_finds_is_proved(make_program, target):
    made = make_program()
    found = search(made, TARGETS[target], limits=Limits(seconds=5))
    for candidate in found.candidates:
        verdict = verify.check(made, candidate.plan)
        assert verdict.equal, (verdict.reason, str(candidate.plan))
        assert not verdict.reason


@pytest.mark.parametrize("make_program", EVERY)
@pytest.mark.parametrize("ragged", [False, True])
def test_every_schedule_is_proved(make_program, ragged):
    made = make_program()
    for plan in zoo.tiled(made, ragged):
        verdict = verify.check(made, plan)
        assert verdict.equal, (verdict.reason, str(plan))
        assert verdict.bound <= 1e-9 or verdict.tested[0].bound.why


def test_split_reductions_are_proved():
    made = attention(2, 2, 8192, 64)
    plans = search(made, TARGETS["h200"], limits=Limits(seconds=10)).candidates
    assert any(len(c.plan.kernels) > 1 for c in plans)
    assert all(verify.check(made, c.plan).equal for c in plans)


def differs_in_floats(made: Program, plan: Plan) -> bool:
    """Whether a plan differs from the program in float64, at small extents."""
    tiny = small(made, plan)
    rng = np.random.default_rng(0)
    for _ in range(8):
        inputs = {
            t.name: rng.random(t.shape) < 0.7
            if t.dtype == "bool"
            else rng.standard_normal(t.shape)
            for t in tiny.program.inputs
        }
        want = evaluate_program(tiny.program, inputs)
        got = evaluate_plan(tiny.plan, inputs)
        for name, value in want.items():
            known = np.isfinite(value)
            if not np.allclose(got[name][known], value[known], rtol=1e-7, atol=1e-9):
                return True
    return False


def mutated(made: Program, plan: Plan, seen: Counter[str]) -> None:
    """Checks that no mutant of a plan passes that is not equal in floats too."""
    assert verify.check(made, plan).equal
    tried: Counter[str] = Counter()
    for kind, wrong in mutants(plan):
        tried[kind] += 1
        if tried[kind] > MOST_OF_A_KIND:
            continue
        verdict = verify.check(made, wrong)
        if verdict.equal:
            assert not differs_in_floats(made, wrong), (kind, str(wrong))
        else:
            assert verdict.reason
            seen[kind] += 1


def test_mutants_are_rejected():
    seen: Counter[str] = Counter()
    for make_program in zoo.MAKERS:
        made = make_program()
        plans = list(
            zoo.tiled(made, ragged=make_program in (softmax, causal_attention))
        )
        online = [p for p in plans if any(a.rescale is not None for a in folded(p))]
        mutated(made, (online or plans)[-1], seen)
    square = matmul(8, 8, 8)
    mutated(square, list(zoo.tiled(square, ragged=False))[-1], seen)
    missing = REQUIRED - set(seen)
    assert not missing
    assert sum(seen.values()) > 250


def folded(plan: Plan):
    return (a for k in plan.custom for p in k.passes for a in p.accumulators)


def split_plan() -> tuple[Program, Plan]:
    made = attention(2, 2, 8192, 64)
    plans = search(made, TARGETS["h200"], limits=Limits(seconds=10)).candidates
    return made, next(c.plan for c in plans if len(c.plan.kernels) > 1)


def test_mutants_of_a_split_reduction_are_rejected():
    seen: Counter[str] = Counter()
    mutated(*split_plan(), seen)
    assert {"wrong combine", "sign", "wrong axis"} <= set(seen)


def test_a_wrong_interface_is_rejected():
    made = softmax(4, 6)
    plan = baseline(made)
    other = replace(made.outputs[0].tensor, dtype="bf16")
    kernel = Predefined("k", (replace(made.outputs[0], tensor=other),))
    for wrong, text in (
        (replace(plan, inputs=()), "reads `x`"),
        (replace(plan, outputs=(other,), kernels=(kernel,)), "outputs are not those"),
        (replace(plan, kernels=()), "never stored"),
        (replace(plan, kernels=plan.kernels * 2), "again"),
    ):
        verdict = verify.check(made, wrong)
        assert not verdict.equal
        assert text in verdict.reason


def test_a_reason_names_the_element():
    made = softmax(4, 6)
    (store,) = made.outputs
    doubled = replace(store, term=mul(lit(2), store.term))
    plan = replace(baseline(made), kernels=(Predefined("k", (doubled,)),))
    verdict = verify.check(made, plan)
    assert not verdict.equal
    assert verdict.reason.startswith("`o`[0, 0] differs in 32 of 32 tests")
    assert verdict.bound == 1.0


def test_what_is_undefined_everywhere_is_not_decided():
    made = softmax(4, 6)
    (store,) = made.outputs
    nothing = make("pow", (mul(lit(0), store.term),), -1)
    undefined = replace(made, outputs=(replace(store, term=nothing),))
    verdict = verify.check(undefined, baseline(undefined))
    assert not verdict.equal
    assert "undefined at every drawn point" in verdict.reason


def test_the_maximum_may_not_be_dropped_unseen():
    """Without its maximum a softmax is equal over the fields: the guard's business."""
    made = softmax(4, 6)
    x = next(t for t in made.terms if t.op == "input")
    (store,) = made.outputs
    exponent = next(t for t in made.terms if t.op == "exp")
    plain = replace(store, term=substitute(store.term, {exponent: exp(x)}))
    plan = replace(baseline(made), kernels=(Predefined("k", (plain,)),))
    assert verify.check(made, plan).equal

    def run(inputs):
        with np.errstate(all="ignore"):
            e = np.exp(inputs[0])
            return [e / e.sum(-1, keepdims=True)]

    assert not verify.guard(made, made.sizes, run).ok


def test_a_verdict_is_the_same_for_a_seed():
    made = softmax(4, 6)
    first, second, other = (
        verify.check(made, baseline(made), seed=s).certificate() for s in (5, 5, 6)
    )
    assert first == second
    assert first["seeds"] != other["seeds"]


def certificate() -> dict:
    made = attention(2, 3, 8, 4)
    found = verify.check(made, baseline(made)).certificate()
    return json.loads(json.dumps(found))


def test_a_certificate_says_what_was_proved():
    found = certificate()
    assert found["equal"]
    assert found["fields"] == {"p": verify.field.P, "q": verify.field.Q}
    assert found["theorem"] == "Theorem A"
    assert 0 < found["bound"] <= 1e-9
    assert found["tests"] >= 2
    assert len(found["seeds"]) == len(found["extents"]) == 2
    assert any("maxima" in text for text in found["assumptions"])
    assert found["opaque"] == []


def test_a_certificate_names_opaque_ops_and_weak_bounds():
    made = zoo.entropy()
    found = verify.check(made, baseline(made)).certificate()
    assert {"erf", "log1p"} <= set(found["opaque"])
    made = zoo.self_attention(8, 4)
    plans = zoo.tiled(made, ragged=False)
    online = next(p for p in plans if any(a.rescale is not None for a in folded(p)))
    weak = verify.check(made, online, failure_probability=1e-300).certificate()
    assert weak["equal"]
    assert weak["theorem"] == "Theorem 2"
    assert weak["runs"][0]["why_no_better_theorem"]
    assert any("weaker than" in text for text in weak["assumptions"])


def test_laws_of_exponentials_are_used_only_where_they_are_needed():
    made = zoo.self_attention(8, 4)
    as_written = verify.check(made, baseline(made)).certificate()
    assert as_written["theorem"] == "Schwartz-Zippel"
    assert as_written["opaque"] == ["exp"]
    assert as_written["bound"] <= 1e-9


def test_a_certificate_is_checked_again_with_fresh_randomness():
    found = certificate()
    again = verify.recheck(found)
    assert again.equal
    assert not set(again.certificate()["seeds"]) & set(found["seeds"])
    assert verify.recheck(found, seed=11).equal
    found["plan"]["terms"] = [
        ["pow", a, {"fraction": [1, 1]}] if op == "pow" else [op, a, attr]
        for op, a, attr in found["plan"]["terms"]
    ]
    assert not verify.recheck(found).equal


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"plan": None}, "cannot be read"),
        ({"version": 99}, "version 99"),
        ({"seeds": ["x"]}, "cannot be read"),
        ({"failure_probability": 2}, "not in"),
    ],
)
def test_malformed_certificates_are_named_errors(change, text):
    found = certificate() | change
    with pytest.raises(verify.CertificateError, match=text):
        verify.recheck(found)


def test_certificates_that_are_incomplete_or_exchanged():
    found = certificate()
    for key in ("program", "plan", "seeds"):
        with pytest.raises(verify.CertificateError, match=key):
            verify.recheck({k: v for k, v in found.items() if k != key})
    with pytest.raises(verify.CertificateError, match="exchanged"):
        verify.recheck(found | {"program": found["plan"], "plan": found["program"]})
    with pytest.raises(verify.CertificateError):
        verify.recheck([])
