"""Text form: dump and load are inverse, damage is refused."""

import copy
import json
from collections.abc import Callable

import pytest
from hypothesis import given

from tests.ugraph.programs import MAKERS, Maker, attention, matmul
from tests.ugraph.strategies import programs
from ugraph.graph import Plan, Range
from ugraph.program import Program, Store, Tensor
from ugraph.schedule import block, grid_labels
from ugraph.search import Limits, search
from ugraph.target import TARGETS
from ugraph.terms import Fixed, extent, lit, mul, read, reduce
from ugraph.text import FormatError, dump, load


def _again(value: Program | Plan) -> Program | Plan:
    return load(json.loads(json.dumps(dump(value))))


@given(programs)
def test_programs_round_trip(program: Program) -> None:
    assert _again(program) == program


@given(programs)
def test_terms_are_the_same_objects_after_a_round_trip(program: Program) -> None:
    again = _again(program)
    assert isinstance(again, Program)
    for a, b in zip(again.outputs, program.outputs, strict=True):
        assert a.term is b.term


@pytest.mark.parametrize("make", MAKERS, ids=lambda m: m.__name__)
def test_plans_round_trip(make: Maker) -> None:
    program = make()
    for target in ("h200", "cpu"):
        found = search(program, TARGETS[target], limits=Limits(forms=3))
        for candidate in found.candidates:
            assert _again(candidate.plan) == candidate.plan


def test_loops_inside_and_rescaling_round_trip() -> None:
    program = attention()
    grid = tuple(Range(x, 3) for x in grid_labels(program.outputs))
    kernel = block("k", program.outputs, grid, Range("t", 5))
    assert kernel is not None
    outputs = tuple(o.tensor for o in program.outputs)
    plan = Plan(program.extents, program.inputs, outputs, (kernel,))
    assert _again(plan) == plan


def test_every_kind_of_attribute_round_trips() -> None:
    x = read("x", (("a",), (Fixed(1, 2), "b")), "bool")
    value = mul(reduce("sum", x, "b", "bf16"), extent("a"), lit(float("-inf")))
    store = Store(Tensor("o", "f32", (3,)), (("a",),), value)
    inputs = (Tensor("x", "bool", (3, 4)),)
    program = Program((("a", 3), ("b", 2)), inputs, (store,), ((value, "bf16"),))
    assert _again(program) == program


def _damaged(change: str) -> object:
    data = json.loads(json.dumps(dump(matmul())))
    match change:
        case "version":
            data["version"] += 1
        case "no terms":
            del data["terms"]
        case "unknown op":
            data["terms"][0][0] = "frobnicate"
        case "dangling operand":
            data["terms"][-1][1] = [10**6]
        case "short tensor":
            data["inputs"][0] = ["x"]
        case "unknown attribute":
            data["terms"][0][2] = {"mystery": [1]}
        case "not a mapping":
            data = [copy.deepcopy(data)]
        case "nothing":
            data = None
    return data


@pytest.mark.parametrize(
    "change",
    [
        "version",
        "no terms",
        "unknown op",
        "dangling operand",
        "short tensor",
        "unknown attribute",
        "not a mapping",
        "nothing",
    ],
)
def test_damage_is_refused(change: str) -> None:
    with pytest.raises(FormatError, match="program or plan"):
        load(_damaged(change))  # pyrefly: ignore


def test_text_of_a_program_is_kept(golden: Callable[[str, str], None]) -> None:
    golden("matmul.json", json.dumps(dump(matmul()), indent=1) + "\n")
