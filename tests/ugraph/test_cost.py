"""The cost model: more work never costs less, and numbers to check by hand."""

from dataclasses import replace
from math import inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ugraph.programs import MAKERS, Maker, attention, matmul, norm_linear, pulled
from ugraph.cost import (
    XLA_MATRIX_EFFICIENCY,
    Cost,
    kernel_cost,
    kernel_seconds,
    matrix_floor,
    predefined_cost,
)
from ugraph.graph import BlockGraph, Predefined, Range, tile_sizes
from ugraph.profile import profile
from ugraph.program import Program
from ugraph.schedule import block
from ugraph.target import TARGETS, Target

H200 = TARGETS["h200"]


def _kernel(
    program: Program, grid: dict[str, int], loop: tuple[str, int]
) -> BlockGraph:
    ranges = tuple(Range(x, n) for x, n in grid.items())
    kernel = block("k", program.outputs, ranges, Range(*loop))
    assert kernel is not None
    return kernel


def _cost(program: Program, kernel: BlockGraph, target: Target = H200) -> Cost:
    tensors = {t.name: t for t in program.inputs}
    return kernel_cost(
        profile(kernel, tensors, program.sizes), program.sizes, target, kernel
    )


def _matmul(n: int, target: Target = H200) -> Cost:
    kernel = _kernel(matmul(n, n, n), {"m": 64, "n": 64}, ("k", 64))
    return _cost(matmul(n, n, n), kernel, target)


def test_a_matrix_product_by_hand() -> None:
    cost = _matmul(2048)  # operands fit the L2 cache: memory sees them once
    assert cost.memory_bytes == 3 * 2048 * 2048 * 2
    assert cost.l2_bytes == 2 * 2048 * 2048 * 2 * 32
    assert cost.flops == 2 * 2048**3
    assert cost.blocks == 32 * 32
    assert cost.shared_bytes == 2 * 2 * 64 * 64 * 2  # two stages, two operands, bf16
    assert cost.seconds > 2 * 2048**3 / H200.matrix_flops
    assert cost.why in ("tensor cores", "L2")


def test_operands_that_outgrow_the_l2_cache_are_read_again() -> None:
    cost = _matmul(4096)
    assert cost.memory_bytes > 3 * 4096 * 4096 * 2
    assert cost.why == "device memory"


@given(st.sampled_from([64, 128, 512, 1024, 4096]), st.sampled_from([1, 2, 4]))
def test_larger_programs_never_cost_less(n: int, factor: int) -> None:
    assert _matmul(n).seconds <= _matmul(n * factor).seconds


FASTER = {
    "memory_bandwidth": 2.0,
    "l2_bandwidth": 2.0,
    "matrix_flops": 2.0,
    "scalar_flops": 2.0,
    "launch_s": 0.5,
    "latency_s": 0.5,
}


@pytest.mark.parametrize("fact", FASTER)
@pytest.mark.parametrize("rows", [64, 4096])
def test_a_better_device_is_never_slower(fact: str, rows: int) -> None:
    program = pulled(attention(16, rows, 1024, 64))
    kernel = _kernel(program, {"h": 1, "s": 64}, ("t", 64))
    better = replace(H200, **{fact: getattr(H200, fact) * FASTER[fact]})
    assert _cost(program, kernel, better).seconds <= _cost(program, kernel).seconds


def test_a_tile_that_outgrows_the_device_does_not_fit() -> None:
    program = matmul(4096, 4096, 4096)
    cost = _cost(program, _kernel(program, {"m": 1024, "n": 1024}, ("k", 512)))
    assert cost.seconds == inf
    assert "outgrows" in cost.why


def test_loads_are_counted_for_every_block_that_reads_them() -> None:
    program = norm_linear(16, 4096, 6144)
    few, many = (
        _cost(program, _kernel(pulled(program), {"n": n}, ("d", 128)))
        for n in (256, 32)
    )
    assert few.l2_bytes < many.l2_bytes
    assert few.memory_bytes == many.memory_bytes


def test_arrays_of_choices_agree_with_one_choice_at_a_time() -> None:
    program = matmul(512, 512, 512)
    kernel = _kernel(program, {"m": 64, "n": 64}, ("k", 64))
    p = profile(kernel, {t.name: t for t in program.inputs}, program.sizes)
    rows = np.array([16.0, 32.0, 128.0])
    tiles = {x: np.float64(n) for x, n in tile_sizes(kernel, program.sizes).items()}
    four, two = np.float64(4), np.float64(2)
    seconds, _, fits = kernel_seconds(
        p, tiles | {"m": rows}, program.sizes, H200, num_warps=four, num_stages=two
    )
    assert fits.shape == seconds.shape == (3,)
    assert fits.any()
    for row, expected in zip((16, 32, 128), np.where(fits, seconds, inf), strict=True):
        grid = (Range("m", row), Range("n", 64))
        one = kernel_cost(p, program.sizes, H200, replace(kernel, grid=grid))
        assert one.seconds == pytest.approx(expected)


@pytest.mark.parametrize("make", MAKERS, ids=lambda m: m.__name__)
def test_pre_defined_kernels_cost_at_least_a_launch(make: Maker) -> None:
    program = make()
    tensors = {t.name: t for t in program.inputs}
    kernel = Predefined("xla", program.outputs)
    cost = predefined_cost(kernel, tensors, program.sizes, H200)
    assert H200.launch_s < cost.seconds < inf
    assert cost.memory_bytes >= sum(o.tensor.bytes for o in program.outputs)


def test_few_tiles_are_one_more_launch() -> None:
    tensors = {t.name: t for t in matmul().inputs}

    def seconds(n: int) -> float:
        program = matmul(n, 64, n)
        kernel = Predefined("xla", program.outputs)
        return predefined_cost(kernel, tensors, program.sizes, H200).seconds

    assert seconds(64) > 2 * H200.launch_s
    assert H200.launch_s < seconds(1024) < 2 * H200.launch_s


def test_no_plan_beats_the_floor_of_matrix_products() -> None:
    program = matmul(4096, 4096, 4096)
    floor = matrix_floor(tuple(o.term for o in program.outputs), program.sizes, H200)
    assert floor == pytest.approx(
        2 * 4096**3 / (H200.matrix_flops * XLA_MATRIX_EFFICIENCY)
    )
    assert _matmul(4096).seconds >= floor
