"""Validity: valid plans pass, every mutant is refused and named."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given

from tests.ugraph.programs import MAKERS, Maker, attention, pulled, softmax
from tests.ugraph.strategies import programs
from ugraph.graph import BlockGraph, Pass, Plan, Predefined, Range, baseline
from ugraph.program import Program, Store, Tensor
from ugraph.schedule import block
from ugraph.search import Limits, search
from ugraph.target import TARGETS
from ugraph.terms import exp, read, reduce, ref
from ugraph.validate import InvalidGraphError, problems, validate


@given(programs)
def test_a_program_as_one_kernel_is_valid(program: Program) -> None:
    plan = baseline(program)
    assert validate(plan) is plan


@pytest.mark.parametrize("make", MAKERS, ids=lambda m: m.__name__)
def test_what_the_search_finds_is_valid(make: Maker) -> None:
    found = search(make(), TARGETS["h200"], limits=Limits(forms=3))
    for candidate in found.candidates:
        assert problems(candidate.plan) == ()


def _plan(program: Program, label: str) -> Plan:
    grid = (Range("h", 1), Range("s", 8)) if "h" in program.sizes else (Range("b", 4),)
    kernel = block("kernel0", program.outputs, grid, Range(label, 16))
    assert kernel is not None
    outputs = tuple(o.tensor for o in program.outputs)
    return Plan(program.extents, program.inputs, outputs, (kernel,))


ATTENTION = _plan(pulled(attention()), "t")
SOFTMAX = _plan(softmax(), "d")


def _kernel(plan: Plan, change: Callable[[BlockGraph], BlockGraph]) -> Plan:
    return replace(plan, kernels=(change(plan.custom[0]),))


def _first(kernel: BlockGraph, **changes: Any) -> BlockGraph:
    walk = kernel.passes[0]
    first = replace(walk.accumulators[0], **changes)
    accumulators = (first, *walk.accumulators[1:])
    passes = (replace(walk, accumulators=accumulators), *kernel.passes[1:])
    return replace(kernel, passes=passes)


def _reversed(kernel: BlockGraph) -> BlockGraph:
    walk = kernel.passes[0]
    return replace(kernel, passes=(Pass(walk.accumulators[::-1], walk.stores),))


def _store(kernel: BlockGraph, **changes: Any) -> BlockGraph:
    return replace(kernel, stores=(replace(kernel.stores[0], **changes),))


Q = read("q", (("h",), ("s",), ("e",)))
K = read("k", (("h",), ("t",), ("e",)))
Q_SUM = reduce("sum", Q, "se")
GRAM = Tensor("gram", "f32", (4, 4))
ROW = Store(Tensor("o", "f32", (16,)), (("b",),), ref("acc1", ("b",)))
SHORT = Tensor("o", "bf16", (4, 32))
MUTANTS: dict[str, tuple[Plan, str]] = {
    "an input is missing": (
        replace(ATTENTION, inputs=ATTENTION.inputs[1:]),
        "reads `q`, which nothing stores",
    ),
    "an input has another shape": (
        replace(
            ATTENTION, inputs=(Tensor("q", "bf16", (9, 9, 9)), *ATTENTION.inputs[1:])
        ),
        "axes of `q` do not make",
    ),
    "an output is never stored": (
        replace(ATTENTION, outputs=(Tensor("p", "f32", ()),)),
        "output `p` is never stored",
    ),
    "a store lacks an axis": (
        _kernel(ATTENTION, lambda k: _store(k, tensor=SHORT, axes=(("h",), ("s",)))),
        "`o` has no axis for `f`",
    ),
    "a store has axes in another order": (
        _kernel(ATTENTION, lambda k: _store(k, axes=(("s",), ("h",), ("f",)))),
        "axes of `o` do not make",
    ),
    "the grid takes a label that the output lacks": (
        _kernel(ATTENTION, lambda k: replace(k, grid=(Range("e", 4),))),
        "omap of `o` lacks `e`",
    ),
    "an accumulator keeps the loop's label": (
        _kernel(ATTENTION, lambda k: _first(k, body=K)),
        "acc0 keeps the loop's label `t`",
    ),
    "the epilogue reads a looped tile": (
        _kernel(ATTENTION, lambda k: _store(k, term=K)),
        "epilogue `o` is inside the loop",
    ),
    "an accumulator is used before it is made": (
        _kernel(ATTENTION, _reversed),
        "`acc0` is used before it is accumulated",
    ),
    "the epilogue uses an unknown accumulator": (
        _kernel(ATTENTION, lambda k: _store(k, term=ref("acc9", ("h", "s", "f")))),
        "`acc9` is used before it is accumulated",
    ),
    "kernels are out of order": (
        replace(
            ATTENTION,
            kernels=(
                BlockGraph(
                    "early",
                    (),
                    None,
                    (),
                    (
                        Store(
                            Tensor("p", "bf16", (4, 32, 16)),
                            (("h",), ("s",), ("f",)),
                            read("o", (("h",), ("s",), ("f",))),
                        ),
                    ),
                ),
                *ATTENTION.kernels,
            ),
        ),
        "early: reads `o` before it is stored",
    ),
    "a body uses a value from before the iteration": (
        _kernel(ATTENTION, lambda k: _first(k, body=ref("acc0", ("h", "s"), "before"))),
        "`acc0` is used before",
    ),
    "a rescale has a label that its accumulator lacks": (
        _kernel(ATTENTION, lambda k: _first(k, rescale=Q)),
        "acc0 is rescaled along `e`, which it lacks",
    ),
    "a pre-defined kernel uses an accumulator": (
        replace(ATTENTION, kernels=(Predefined("x", ATTENTION.custom[0].stores),)),
        "x: `acc2` is used before",
    ),
    "a tile's sum is used as the whole": (
        _kernel(ATTENTION, lambda k: _first(k, body=exp(reduce("sum", K, "te")))),
        "acc0 uses a tile's reduction over `t` as if it were whole",
    ),
    "the epilogue reduces over the loop's label": (
        _kernel(ATTENTION, lambda k: _store(k, term=reduce("sum", K, "te"))),
        "epilogue `o` is inside the loop",
    ),
    "a store has an axis twice": (
        replace(
            ATTENTION,
            kernels=(Predefined("x", (Store(GRAM, (("h",), ("h",)), Q_SUM),)),),
            outputs=(GRAM,),
        ),
        "`gram` has two axes for `h`",
    ),
    "a rescale uses an unknown accumulator": (
        _kernel(ATTENTION, lambda k: _first(k, rescale=ref("acc7", ("h", "s")))),
        "`acc7`",
    ),
    "a loop store uses an accumulator of its own pass": (
        _kernel(
            SOFTMAX,
            lambda k: replace(
                k, passes=(replace(k.passes[0], stores=k.passes[1].stores),)
            ),
        ),
        "is stored in the pass that accumulates",
    ),
    "an accumulator has an op that does not fold": (
        _kernel(ATTENTION, lambda k: _first(k, op="exp")),
        "`exp` does not fold",
    ),
    "two accumulators have one name": (
        _kernel(ATTENTION, lambda k: _first(k, name="acc1")),
        "`acc1` twice",
    ),
    "a tensor is stored twice": (
        replace(ATTENTION, kernels=ATTENTION.kernels * 2),
        "stores `o` again",
    ),
    "a tile is empty": (
        _kernel(ATTENTION, lambda k: replace(k, loop=Range("t", 0))),
        "tile of `t`",
    ),
    "the loop walks a label of the grid": (
        _kernel(ATTENTION, lambda k: replace(k, grid=(*k.grid, Range("s", 8)))),
        "`s` is walked twice",
    ),
    "a pass without a loop": (
        _kernel(ATTENTION, lambda k: replace(k, loop=None)),
        "passes but no loop",
    ),
    "a label has no extent": (
        replace(ATTENTION, extents=ATTENTION.extents[1:]),
        "has no extent",
    ),
    "a reduction binds a label of the grid": (
        _kernel(
            _plan(softmax(), "d"),
            lambda k: replace(k, grid=(Range("b", 2), Range("d", 4))),
        ),
        "`d`",
    ),
    "a loop store has no axis for the loop": (
        _kernel(
            SOFTMAX,
            lambda k: replace(k, passes=(k.passes[0], Pass((), (ROW,)))),
        ),
        "`o` is the same in every iteration",
    ),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_mutants_are_named(name: str) -> None:
    plan, text = MUTANTS[name]
    with pytest.raises(InvalidGraphError) as error:
        validate(plan)
    assert text in str(error.value)


def test_the_plans_that_mutants_are_made_of_are_valid() -> None:
    assert problems(ATTENTION) == ()
    assert problems(SOFTMAX) == ()


def test_every_problem_is_reported() -> None:
    plan = replace(ATTENTION, inputs=(), outputs=(Tensor("p", "f32", ()),))
    assert len(problems(plan)) >= 4
