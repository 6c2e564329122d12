"""Sizes: what is chosen fits, keeps the structure, and is no worse than any other."""

from dataclasses import replace
from itertools import product

import pytest

from tests.ugraph.programs import (
    MAKERS,
    Maker,
    attention,
    layer_norm,
    matmul,
    norm_linear,
    pulled,
)
from ugraph.cost import kernel_cost
from ugraph.graph import Range
from ugraph.profile import profile
from ugraph.program import Program
from ugraph.schedule import structures
from ugraph.sizes import GRID_TILES, LOOP_TILES, STAGES, WARPS, size
from ugraph.target import TARGETS

H200 = TARGETS["h200"]
LARGE = [
    matmul(4096, 4096, 4096),
    pulled(norm_linear(16, 4096, 6144)),
    pulled(attention(16, 512, 1024, 64)),
    layer_norm(8192, 4096),
]


@pytest.mark.parametrize("program", LARGE, ids=lambda p: p.key)
@pytest.mark.parametrize("refine", [False, True])
def test_chosen_sizes_fit_and_keep_the_structure(
    program: Program, refine: bool
) -> None:
    tensors = {t.name: t for t in program.inputs}
    found = 0
    for kernel in structures(program.outputs):
        sized = size(kernel, tensors, program.sizes, H200, refine=refine)
        if sized is None:
            continue
        found += 1
        assert sized.cost.seconds < 1
        assert sized.cost.shared_bytes <= H200.shared_bytes
        assert [r.label for r in sized.kernel.grid] == [r.label for r in kernel.grid]
        assert sized.kernel.passes == kernel.passes
        assert sized.kernel.num_warps in WARPS
        assert sized.kernel.num_stages in STAGES
        for r in sized.kernel.grid:
            assert 1 <= r.tile <= program.sizes[r.label]
    assert found


def test_no_other_tiles_cost_less() -> None:
    program = matmul(512, 256, 512)
    tensors = {t.name: t for t in program.inputs}
    (kernel,) = (k for k in structures(program.outputs) if k.loop)
    sized = size(kernel, tensors, program.sizes, H200, refine=True)
    assert sized is not None
    p = profile(kernel, tensors, program.sizes)
    tiles = [t for t in GRID_TILES if 16 <= t <= 512]
    loops = [t for t in LOOP_TILES if t <= 256]
    for m, n, k, warps, stages in product(tiles, tiles, loops, WARPS, STAGES):
        other = replace(
            kernel,
            grid=tuple(Range(r.label, {"m": m, "n": n}[r.label]) for r in kernel.grid),
            loop=Range("k", k),
            num_warps=warps,
            num_stages=stages,
        )
        assert kernel_cost(p, program.sizes, H200, other).seconds >= sized.cost.seconds


def test_more_choices_are_never_worse() -> None:
    program = LARGE[2]
    tensors = {t.name: t for t in program.inputs}
    for kernel in structures(program.outputs):
        plain = size(kernel, tensors, program.sizes, H200)
        refined = size(kernel, tensors, program.sizes, H200, refine=True)
        if plain is not None:
            assert refined is not None
            assert refined.cost.seconds <= plain.cost.seconds


def test_labels_of_a_batch_have_one_element_per_block() -> None:
    program = LARGE[2]
    tensors = {t.name: t for t in program.inputs}
    sized = [
        made
        for k in structures(program.outputs)
        if (made := size(k, tensors, program.sizes, H200))
    ]
    assert sized
    assert all(Range("h", 1) in s.kernel.grid for s in sized)


@pytest.mark.parametrize("make", MAKERS, ids=lambda m: m.__name__)
def test_small_programs_have_sizes_within_their_extents(make: Maker) -> None:
    program = make()
    tensors = {t.name: t for t in program.inputs}
    for kernel in structures(program.outputs):
        sized = size(kernel, tensors, program.sizes, H200)
        if sized is not None:
            for r in sized.kernel.grid:
                assert r.tile <= program.sizes[r.label]


def test_none_fits_a_target_without_memory() -> None:
    program = matmul(512, 256, 512)
    tensors = {t.name: t for t in program.inputs}
    tiny = replace(H200, shared_bytes=16)
    assert all(
        size(k, tensors, program.sizes, tiny) is None
        for k in structures(program.outputs)
    )
