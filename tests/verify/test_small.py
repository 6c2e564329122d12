"""Verification extents keep what can go wrong."""

import pytest

from tests.ugraph.programs import attention, gram, layer_norm, norm_linear
from tests.verify.zoo import MAKERS, rotated, tiled, windowed_attention
from ugraph.graph import Range, grid_counts, loop_count
from ugraph.search import Limits, search
from ugraph.target import TARGETS
from ugraph.validate import problems
from verify.small import Walk, small


@pytest.mark.parametrize("make_program", MAKERS)
@pytest.mark.parametrize("ragged", [False, True])
def test_tiles_stay_several_and_ragged(make_program, ragged):
    made = make_program()
    for plan in tiled(made, ragged):
        for variant in (0, 1):
            tiny = small(made, plan, variant)
            assert not problems(tiny.plan)
            assert max(n for _, n in tiny.plan.extents) <= 16
            for before, after in zip(plan.custom, tiny.plan.custom, strict=True):
                counts = zip(
                    grid_counts(before, plan.sizes),
                    grid_counts(after, tiny.plan.sizes),
                    strict=True,
                )
                assert all(b >= min(a, 2) for a, b in counts)
                loops = loop_count(before, plan.sizes)
                assert loop_count(after, tiny.plan.sizes) >= min(loops, 3)
                for x, y in zip(before.grid, after.grid, strict=True):
                    assert is_ragged(x, plan.sizes) == is_ragged(y, tiny.plan.sizes)


def is_ragged(r: Range, sizes: dict[str, int]) -> bool:
    return sizes[r.label] % r.tile != 0


def test_different_labels_get_different_extents():
    made = norm_linear()
    tiny = small(made, next(tiled(made, ragged=False)))
    assert len(set(tiny.program.sizes.values())) == len(tiny.program.sizes)


def test_labels_of_one_axis_stay_equal():
    made = gram()
    tiny = small(made, next(tiled(made, ragged=True)))
    assert tiny.program.sizes["m"] == tiny.program.sizes["n"]


def test_the_factors_of_a_split_label_make_its_extent():
    made = attention(2, 1 + 1, 8192, 64)
    plans = search(made, TARGETS["h200"], limits=Limits(seconds=10)).candidates
    split = [c.plan for c in plans if any("_" in x for x, _ in c.plan.extents)]
    assert split
    tiny = small(made, split[0])
    parts = [n for x, n in tiny.plan.extents if x.startswith("t_")]
    assert len(parts) == 2
    assert parts[0] * parts[1] == tiny.program.sizes["t"]
    assert tiny.plan.inputs == tiny.program.inputs


def test_a_label_that_counts_pieces_keeps_its_extent():
    made = rotated()
    assert small(made, next(tiled(made, ragged=False))).program.sizes["r"] == 2


def test_large_literals_become_smaller_and_extents_reach_beyond():
    made = windowed_attention(window=24)
    tiny = small(made, next(tiled(made, ragged=True)))
    (standing,) = (b for a, b in tiny.literals if a == 24)
    assert 1 < standing < tiny.program.sizes["t"]


def test_variants_differ():
    made = layer_norm()
    plan = next(tiled(made, ragged=False))
    assert small(made, plan, 0).program.sizes != small(made, plan, 1).program.sizes


def test_roomy_labels_are_longer():
    made = attention()
    plan = next(tiled(made, ragged=False))
    roomy = small(made, plan, roomy=frozenset({"e"}))
    assert roomy.program.sizes["e"] > small(made, plan).program.sizes["e"]


def test_a_walk_that_fits_nothing_takes_the_nearest_tile():
    walk = Walk(extent=10, tile=5, least=2)
    assert walk.tiles(4) == 2
    assert walk.tiles(1) is None
    assert walk.any_tile(1) == 1
