"""Printed μGraphs, kept as files."""

from collections.abc import Callable

import pytest

from tests.ugraph.programs import (
    attention,
    causal_attention,
    layer_norm,
    norm_linear,
    softmax,
    two_outputs,
)
from ugraph.graph import Plan, Range, baseline
from ugraph.program import Program
from ugraph.schedule import block
from ugraph.search import search
from ugraph.show import describe
from ugraph.target import TARGETS

FOUND: dict[str, Program] = {
    "norm_linear": norm_linear(16, 4096, 6144),
    "attention": attention(16, 512, 1024, 64),
    "causal_attention": causal_attention(16, 512, 1024, 64),
    "decode": attention(8, 2, 8192, 64),
}
WRITTEN = {"softmax": softmax(), "layer_norm": layer_norm(), "two": two_outputs()}


@pytest.mark.parametrize("name", FOUND)
def test_what_is_found_reads_well(
    name: str, golden: Callable[[str, str], None]
) -> None:
    best = search(FOUND[name], TARGETS["h200"]).candidates[0]
    golden(f"{name}.txt", describe(best.plan) + "\n")


@pytest.mark.parametrize("name", WRITTEN)
def test_loop_stores_read_well(name: str, golden: Callable[[str, str], None]) -> None:
    program = WRITTEN[name]
    kernel = block("kernel0", program.outputs, (Range("b", 4),), Range("d", 32))
    assert kernel is not None
    outputs = tuple(o.tensor for o in program.outputs)
    plan = Plan(program.extents, program.inputs, outputs, (kernel,))
    golden(f"{name}.txt", describe(plan) + "\n")


def test_all_three_levels_are_there() -> None:
    text = describe(search(FOUND["attention"], TARGETS["h200"]).candidates[0].plan)
    for word in ("kernel graph", "block graph", "thread graph", "imap", "omap", "fmap"):
        assert word in text
    assert "accum_max" in text
    assert "before" in text


def test_a_pre_defined_kernel_says_so() -> None:
    assert "original: pre-defined" in describe(baseline(softmax()))
