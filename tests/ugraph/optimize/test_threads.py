"""Thread graphs: trees of elementwise ops that cover a block's elementwise work."""

from hypothesis import given

from tests.ugraph.plans import FLASH, plans, scheduled
from tests.ugraph.programs import elementwise, matmul
from ugraph.graph import BlockGraph, Plan
from ugraph.optimize.places import is_map, operands, places
from ugraph.optimize.threads import CONSTANTS, threads
from ugraph.program import Program
from ugraph.terms import subterms


@given(plans())
def test_every_elementwise_value_is_in_one_thread_graph(
    case: tuple[Program, Plan],
) -> None:
    _, plan = case
    for kernel in plan.custom:
        made = threads(kernel, plan.sizes)
        for place in places(kernel, plan.sizes):
            ops = [t for g in made if g.place == place.name for t in g.ops]
            assert sorted(ops, key=id) == sorted(
                (t for t in place.values if is_map(t)), key=id
            )


@given(plans())
def test_only_the_result_leaves_a_thread_graph(case: tuple[Program, Plan]) -> None:
    _, plan = case
    for kernel in plan.custom:
        found = places(kernel, plan.sizes)
        for graph in threads(kernel, plan.sizes):
            assert graph.ops[-1] is graph.term
            hidden = set(graph.ops[:-1])
            assert not hidden & set(kernel.roots)
            for place in found:
                for user in place.values:
                    used = hidden & set(operands(user, plan.sizes))
                    if place.name == graph.place:
                        assert not used or user in graph.ops
                    else:  # Another place computes the term for itself.
                        assert used <= set(place.values)


@given(plans())
def test_a_thread_graph_is_a_function_of_its_inputs(case: tuple[Program, Plan]) -> None:
    _, plan = case
    for kernel in plan.custom:
        for graph in threads(kernel, plan.sizes):
            known = {*graph.inputs, *graph.ops}
            assert not set(graph.inputs) & set(graph.ops)
            for t in graph.ops:
                assert all(a in known or a.op in CONSTANTS for a in t.args)
            assert all(t in subterms(graph.term) for t in graph.inputs)


def test_names_are_unique_in_their_block_graph() -> None:
    names = [g.name for g in threads(FLASH.custom[0], FLASH.sizes)]
    assert names == [f"thread{i}" for i in range(len(names))]
    assert names


def test_an_elementwise_kernel_is_one_thread_graph() -> None:
    program = elementwise()
    kernel = BlockGraph("k", (), None, (), program.outputs)
    (graph,) = threads(kernel, program.sizes)
    assert graph.place == "epilogue"
    assert {t.attr.tensor for t in graph.inputs} == {"x", "y"}
    assert graph.term is program.outputs[0].term


def test_a_product_that_the_matrix_unit_does_is_in_no_thread_graph() -> None:
    plan = scheduled(matmul(), {"m": 16}, ("k", 16))
    assert threads(plan.custom[0], plan.sizes) == ()
