"""Plans and block graphs: what follows from labels and ranges."""

from tests.ugraph.programs import attention, matmul, pulled, softmax
from ugraph.graph import (
    REPLICATE,
    BlockGraph,
    Plan,
    Predefined,
    Range,
    axis_of,
    baseline,
    grid_counts,
    loop_count,
    reads_of,
    show_axes,
    tile_sizes,
)
from ugraph.schedule import block
from ugraph.terms import Fixed

GRID = (Range("h", 1), Range("s", 12))
PROGRAM = pulled(attention())


def _kernel(loop: Range | None = Range("t", 36)) -> BlockGraph:  # noqa: B008
    kernel = block("k", PROGRAM.outputs, GRID, loop)
    assert kernel is not None
    return kernel


def test_tiles_are_whole_unless_walked() -> None:
    tiles = tile_sizes(_kernel(), PROGRAM.sizes)
    assert tiles == {"h": 1, "s": 12, "t": 36, "e": 16, "f": 16}


def test_counts_round_up() -> None:
    assert grid_counts(_kernel(), PROGRAM.sizes) == (4, 3)
    assert loop_count(_kernel(), PROGRAM.sizes) == 3
    assert loop_count(_kernel(None), PROGRAM.sizes) == 1


def test_outputs_list_loop_stores_first() -> None:
    kernel = block("k", softmax().outputs, (Range("b", 4),), Range("d", 8))
    assert kernel is not None
    assert [s.tensor.name for s in kernel.outputs] == ["o"]
    assert kernel.stores == ()


def test_roots_are_all_that_is_evaluated() -> None:
    kernel = _kernel()
    accumulators = [a for p in kernel.passes for a in p.accumulators]
    scales = [a.rescale for a in accumulators if a.rescale is not None]
    assert len(kernel.roots) == len(accumulators) + len(scales) + len(kernel.outputs)
    assert {a.tensor for a in reads_of(kernel)} == {"q", "k", "v"}


def test_maps_of_a_tensor() -> None:
    axes = (("h",), ("a", "s"), ())
    assert axis_of(axes, "h") == "0"
    assert axis_of(axes, "s") == "1"
    assert axis_of(axes, "t") == REPLICATE
    assert show_axes("x", (("h",), ("a", Fixed(0, 2)), ())) == "x[h,(a 0/2),()]"


def test_the_baseline_is_the_program() -> None:
    plan = baseline(matmul())
    (kernel,) = plan.kernels
    assert isinstance(kernel, Predefined)
    assert kernel.roots == tuple(o.term for o in matmul().outputs)
    assert plan.custom == ()
    assert set(plan.tensors) == {"x", "w", "o"}
    assert "o[m,n] = sum[k]" in str(plan)


def test_tensors_of_a_plan() -> None:
    outputs = tuple(o.tensor for o in PROGRAM.outputs)
    plan = Plan(PROGRAM.extents, PROGRAM.inputs, outputs, (_kernel(),))
    assert plan.tensors["o"] == outputs[0]
    assert plan.sizes == PROGRAM.sizes
    assert plan.custom == plan.kernels
