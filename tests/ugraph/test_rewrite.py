"""Axioms hold numerically, and the driver that applies them."""

import numpy as np
import pytest
from hypothesis import assume, given

from tests.ugraph.evaluator import close, evaluate_program
from tests.ugraph.programs import MAKERS, Maker, inputs_for, load, norm_linear
from tests.ugraph.strategies import positive_inputs, program_of, programs
from ugraph.abstract import expression
from ugraph.program import Program
from ugraph.rewrite import Counts, Step, Variant, saturate, steps, variants
from ugraph.rules import AXIOMS, Rule
from ugraph.terms import (
    Term,
    add,
    is_reduction,
    lit,
    mul,
    neg,
    power,
    reduce,
    replace,
    subterms,
)

X, Y, Z = load("x", "ab"), load("y", "bc"), load("z", "c")
RULES = {r.name: r for r in AXIOMS}
EXTENTS = {"a": 3, "b": 4, "c": 5, "d": 2}

EXAMPLES = {
    "pull": reduce("sum", mul(X, Y, Z), ("a",)),
    "distribute": reduce("sum", mul(Y, add(X, neg(reduce("sum", X, ("b",))))), ("b",)),
    "merge": reduce("sum", reduce("sum", mul(X, Y), ("b",)), ("c",)),
    "spread": power(mul(X, Y), -2),
    "separate": reduce("sum", add(X, mul(X, X)), ("b",)),
}


def _value(term: Term, sizes: dict[str, int]) -> dict[str, np.ndarray]:
    program = program_of(term, sizes)
    return evaluate_program(program, positive_inputs(program))


@pytest.mark.parametrize("rule", AXIOMS, ids=lambda r: r.name)
def test_every_axiom_applies_to_its_example(rule: Rule) -> None:
    found = list(rule.rewrite(EXAMPLES[rule.name]))
    assert found
    want = _value(EXAMPLES[rule.name], EXTENTS)
    for after in found:
        assert after is not EXAMPLES[rule.name]
        close(_value(after, EXTENTS), want)


@given(programs)
def test_axioms_hold_wherever_they_apply(program: Program) -> None:
    term = program.outputs[0].term
    want = _value(term, program.sizes)
    assume(np.isfinite(want["out"]).all())
    for step in steps((term,), AXIOMS):
        after = replace(term, {step.before: step.after})
        assert after.labels == term.labels
        close(_value(after, program.sizes), want)


@given(programs)
def test_axioms_keep_the_abstract_expression(program: Program) -> None:
    for step in steps((program.outputs[0].term,), AXIOMS):
        assert expression(step.after) == expression(step.before), step.rule


def test_pull_takes_out_what_does_not_vary() -> None:
    pulled = list(RULES["pull"].rewrite(reduce("sum", mul(X, Z), ("a", "b"))))
    assert pulled == [mul(Z, reduce("sum", X, ("a", "b")))]


def test_a_variance_is_not_expanded() -> None:
    centred = add(X, neg(reduce("sum", X, ("b",))))
    square = reduce("sum", mul(centred, centred), ("b",))
    assert not list(RULES["distribute"].rewrite(square))


def test_a_broadcast_sum_is_not_separated() -> None:
    assert not list(RULES["separate"].rewrite(reduce("sum", add(X, Z), ("a",))))


def test_saturate_records_every_step() -> None:
    start = Variant(tuple(o.term for o in norm_linear().outputs))
    done = saturate(start, AXIOMS)
    assert {s.rule for s in done.derivation} >= {"pull"}
    assert not any(isinstance(s, Step) for s in steps(done.roots, (RULES["pull"],)))
    assert any(is_reduction(t) for t in subterms(*done.roots))


@pytest.mark.parametrize("make", MAKERS, ids=lambda m: m.__name__)
def test_every_variant_of_a_program_is_equal_to_it(make: Maker) -> None:
    program = make()
    roots = tuple(o.term for o in program.outputs)
    inputs = inputs_for(program)
    want = evaluate_program(program, inputs)
    for variant in variants(roots, AXIOMS, limit=8, counts=Counts()):
        outputs = tuple(
            type(o)(o.tensor, o.axes, t)
            for o, t in zip(program.outputs, variant.roots, strict=True)
        )
        other = Program(program.extents, program.inputs, outputs)
        close(evaluate_program(other, inputs), want)


def test_variants_begin_with_the_program_and_keep_the_limit() -> None:
    roots = tuple(o.term for o in norm_linear().outputs)
    counts = Counts()
    found = variants(roots, AXIOMS, limit=3, counts=counts)
    assert found[0] == Variant(roots)
    assert len({v.roots for v in found}) == len(found) >= 2
    assert counts.seen >= len(found)


def test_a_step_that_changes_the_abstract_expression_is_pruned() -> None:
    wrong = Rule("wrong", "x = 2·x", lambda t: iter([mul(lit(2), t)] if t is X else []))
    counts = Counts()
    found = variants((reduce("sum", X, ("b",)),), (wrong,), limit=8, counts=counts)
    assert len(found) == 1
    assert counts.pruned
