"""Where a block evaluates what."""

from hypothesis import given

from tests.ugraph.plans import FLASH, plans, scheduled
from tests.ugraph.programs import layer_norm, matmul, two_outputs
from ugraph.graph import Plan
from ugraph.optimize.places import is_dot, is_map, operands, pass_roots, places, values
from ugraph.program import Program
from ugraph.terms import Ref, mul


def test_flash_attention_has_three_places() -> None:
    found = places(FLASH.custom[0], FLASH.sizes)
    assert [(p.name, p.looped) for p in found] == [
        ("prologue", False),
        ("pass 0", True),
        ("epilogue", False),
    ]
    prologue, body, epilogue = found
    assert "q" in {getattr(t.attr, "tensor", None) for t in prologue.values}
    loads = {t.attr.tensor for t in body.values if t.op == "input"}
    assert loads == {"k", "v"}
    assert all(t.op != "input" for t in epilogue.values)
    assert set(body.folded) == {"acc0", "acc1", "acc2"}


def test_what_follows_a_pass_comes_before_the_next() -> None:
    plan = scheduled(two_outputs(), {"b": 4}, ("d", 16))
    names = [p.name for p in places(plan.custom[0], plan.sizes)]
    assert names == ["pass 0", "before pass 1", "pass 1"]
    plan = scheduled(layer_norm(), {"b": 4}, ("d", 16))
    assert [p.name for p in places(plan.custom[0], plan.sizes)].count("pass 2") == 1


def test_a_matrix_product_is_one_value_of_two_operands() -> None:
    (out,) = matmul().outputs
    sizes = matmul().sizes
    assert is_dot(out.term, sizes)
    assert len(operands(out.term, sizes)) == 2
    product = out.term.args[0]
    assert product not in values((out.term,), sizes)
    assert is_map(product)
    assert mul(*operands(out.term, sizes)) is product


@given(plans())
def test_every_value_is_made_before_it_is_used(case: tuple[Program, Plan]) -> None:
    _, plan = case
    for kernel in plan.custom:
        once: set[object] = set()
        for place in places(kernel, plan.sizes):
            made = set(once)
            for term in place.values:
                assert all(a in made for a in operands(term, plan.sizes))
                made.add(term)
            assert len(set(place.values)) == len(place.values)
            if not place.looped:
                assert not once & set(place.values)
                once |= set(place.values)


@given(plans())
def test_every_root_has_a_place(case: tuple[Program, Plan]) -> None:
    _, plan = case
    for kernel in plan.custom:
        found = {t for p in places(kernel, plan.sizes) for t in p.values}
        assert set(kernel.roots) <= found
        assert {t for w in kernel.passes for t in pass_roots(w)} <= found


@given(plans())
def test_nothing_that_is_done_once_varies(case: tuple[Program, Plan]) -> None:
    _, plan = case
    for kernel in plan.custom:
        if kernel.loop is None:
            continue
        for place in places(kernel, plan.sizes):
            if not place.looped:
                labels = {x for t in place.values for x in t.labels}
                assert kernel.loop.label not in labels
                refs = [t.attr for t in place.values if isinstance(t.attr, Ref)]
                assert all(r.when == "now" for r in refs)
