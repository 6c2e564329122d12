"""The op table, and an op that joins it from outside."""

from collections.abc import Iterator

import numpy as np
import pytest

from tests.ugraph import evaluator
from tests.ugraph.programs import inputs_for, load, program
from ugraph.graph import Plan
from ugraph.ops import BY_PRIMITIVE, OPS, Kind, Op, register, unregister
from ugraph.program import Program
from ugraph.search import Limits, search
from ugraph.target import TARGETS
from ugraph.terms import make, mul, reduce, subterms
from ugraph.text import dump
from ugraph.text import load as load_json
from ugraph.validate import validate


@pytest.fixture
def softsign(monkeypatch: pytest.MonkeyPatch) -> Iterator[Op]:
    """An op that the table does not have: x / (1 + |x|)."""
    row = Op(name="softsign", emit="{0} / (1 + jnp.abs({0}))", primitives=("softsign",))
    monkeypatch.setitem(evaluator.MEANING, "softsign", lambda x: x / (1 + np.abs(x)))
    yield register(row)
    unregister("softsign")


def _program() -> Program:
    value = make("softsign", (load("x", "mk"),))
    out = make("softsign", (reduce("sum", mul(value, load("w", "kn")), "k", "bf16"),))
    sizes = {"m": 32, "k": 64, "n": 32}
    return program(sizes, {"x": "mk", "w": "kn"}, {"o": ("mn", out)})


@pytest.mark.parametrize("target", ["h200", "cpu"])
def test_an_op_from_outside_goes_through_the_search(softsign: Op, target: str) -> None:
    ours = _program()
    found = search(ours, TARGETS[target], limits=Limits(forms=6))
    assert found.candidates
    inputs = inputs_for(ours)
    want = evaluator.evaluate_program(ours, inputs)
    for candidate in found.candidates:
        plan = validate(candidate.plan)
        roots = [t for k in plan.kernels for t in subterms(*k.roots)]
        assert any(t.op == softsign.name for t in roots)
        evaluator.close(evaluator.evaluate_plan(plan, inputs), want)
        loaded = load_json(dump(plan))
        assert isinstance(loaded, Plan)
        assert loaded == plan


def test_a_name_or_primitive_is_taken_once(softsign: Op) -> None:
    with pytest.raises(ValueError, match="already in the op table"):
        register(Op(name="softsign"))
    with pytest.raises(ValueError, match="already lifts to op `softsign`"):
        register(Op(name="other", primitives=("softsign",)))
    assert "other" not in OPS


def test_unregister_leaves_nothing_behind() -> None:
    register(Op(name="passing", primitives=("passing_p",)))
    unregister("passing")
    assert "passing" not in OPS
    assert "passing_p" not in BY_PRIMITIVE


@pytest.mark.parametrize("row", OPS.values(), ids=lambda r: r.name)
def test_rows_are_complete(row: Op) -> None:
    assert row.field
    assert row.yields in ("float", "bool", "int", "same")
    assert row.abstract in ("add", "mul", "pow", "sum", "opaque", "leaf", "same")
    if row.kind is not Kind.LEAF:
        assert row.emit
        assert row.cost > 0
    if row.kind is Kind.MAP and row.arity is not None:
        assert all(f"{{{i}}}" in row.emit for i in range(row.arity))
    for primitive in row.primitives:
        assert BY_PRIMITIVE[primitive] is row
