"""Splitting a label: reductions in parts, and their combination."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import assume, given, settings

from tests.ugraph.evaluator import close, evaluate_plan, evaluate_program
from tests.ugraph.programs import (
    Maker,
    attention,
    causal_attention,
    chain,
    inputs_for,
    load,
    matmul,
    norm_linear,
    program,
    pulled,
)
from tests.ugraph.strategies import positive_inputs, programs
from ugraph.graph import Plan, Predefined
from ugraph.program import Program, Store, Tensor, bound_labels
from ugraph.split import inner, outer, split
from ugraph.terms import add, exp, iota, make, mul, neg, power, read, reduce
from ugraph.terms import replace as substitute
from ugraph.validate import validate


def split_plan(ours: Program, label: str, count: int) -> Plan | None:
    """The program with `label` split, its parts stored between two kernels.

    Factors are pulled out of sums first: a quotient by a whole sum is not one of parts.
    """
    names = (outer(label, count), inner(label, count))
    made = split(tuple(o.term for o in pulled(ours).outputs), label, names)
    if made is None:
        return None
    roots, parts = made
    sizes = ours.sizes | {names[0]: count, names[1]: ours.sizes[label] // count}
    partial = []
    for i, part in enumerate(parts):
        shape = tuple(sizes[x] for x in part.labels)
        axes = tuple((x,) for x in part.labels)
        partial.append(Store(Tensor(f"part{i}", "f32", shape), axes, part))
    table = {s.term: read(s.tensor.name, s.axes) for s in partial}
    combined = tuple(
        Store(o.tensor, o.axes, substitute(r, table))
        for o, r in zip(ours.outputs, roots, strict=True)
    )
    kernels = (Predefined("parts", tuple(partial)), Predefined("combine", combined))
    outputs = tuple(o.tensor for o in ours.outputs)
    return validate(Plan(tuple(sorted(sizes.items())), ours.inputs, outputs, kernels))


@given(programs, st.integers(2, 3), st.data())
@settings(max_examples=150)
def test_parts_combine_to_the_whole(
    ours: Program, count: int, data: st.DataObject
) -> None:
    (out,) = ours.outputs
    labels = [x for x in bound_labels(out.term) if x not in out.term.labels]
    assume(labels)
    label = data.draw(st.sampled_from(labels))
    sizes = ours.sizes | {label: count * data.draw(st.integers(1, 3))}
    inputs_of = tuple(
        Tensor(t.name, t.dtype, tuple(sizes[x] for x in axes))
        for t, axes in zip(ours.inputs, ("ab", "bc", "c", "acd", ""), strict=True)
    )
    ours = Program(tuple(sorted(sizes.items())), inputs_of, ours.outputs)
    inputs = positive_inputs(ours)
    want = evaluate_program(ours, inputs)
    assume(np.isfinite(want["out"]).all())
    plan = split_plan(ours, label, count)
    if plan is not None:
        close(evaluate_plan(plan, inputs), want)


@pytest.mark.parametrize(
    ("maker", "label"),
    [
        (matmul, "k"),
        (norm_linear, "d"),
        (attention, "t"),
        (causal_attention, "t"),
        (chain, "n"),
        (chain, "k"),
    ],
    ids=lambda x: getattr(x, "__name__", x),
)
@pytest.mark.parametrize("count", [2, 4])
def test_known_programs_split(maker: Maker, label: str, count: int) -> None:
    ours = maker()
    inputs = inputs_for(ours)
    plan = split_plan(ours, label, count)
    assert plan is not None
    close(evaluate_plan(plan, inputs), evaluate_program(ours, inputs))


def test_a_part_in_which_all_is_masked_counts_for_nothing() -> None:
    ours = causal_attention(h=1, s=8, t=64, e=4)  # the last parts are all masked
    inputs = inputs_for(ours)
    plan = split_plan(ours, "t", 8)
    assert plan is not None
    want = evaluate_program(ours, inputs)
    assert np.isfinite(want["o"]).all()
    close(evaluate_plan(plan, inputs), want)


def test_positions_survive_the_split() -> None:
    total = reduce("sum", mul(load("x", "ab"), make("to_float", (iota("b"),))), "b")
    ours = program({"a": 3, "b": 12}, {"x": "ab"}, {"o": ("a", total)}, "f32")
    plan = split_plan(ours, "b", 3)
    assert plan is not None
    inputs = inputs_for(ours)
    close(evaluate_plan(plan, inputs), evaluate_program(ours, inputs))


def test_what_needs_a_whole_reduction_has_no_parts() -> None:
    x = load("x", "ab")
    mean = reduce("sum", x, "b")
    spread = reduce("sum", power(add(x, neg(mean)), 2), "b")
    assert split((spread,), "b", ("bo", "bi")) is None
    shifted = reduce("sum", add(exp(add(x, neg(reduce("max", x, "b")))), x), "b")
    assert split((shifted,), "b", ("bo", "bi")) is None


def test_a_sum_along_the_shift_has_no_parts() -> None:
    x = load("x", "ab")
    weights = exp(add(x, neg(reduce("max", x, "b"))))
    assert split((reduce("sum", weights, "ab"),), "b", ("bo", "bi")) is None
    assert split((reduce("sum", weights, "b"),), "b", ("bo", "bi")) is not None


def test_without_a_reduction_there_is_nothing_to_split() -> None:
    assert split((load("x", "ab"),), "b", ("bo", "bi")) is None


def test_names_tell_counts_apart() -> None:
    assert len({outer("d", 2), outer("d", 4), inner("d", 2), inner("d", 4)}) == 4
