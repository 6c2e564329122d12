"""A GPU that is not here: kernels are found, checked and compiled for it."""

import pathlib

import jax
import jax.numpy as jnp
import pytest
from jax.experimental import topologies

import mirage_jax
from mirage_jax.benchmarks import zoo

H200 = pathlib.Path(__file__).parent.parent / "h200.txtpb"
CONFIG = mirage_jax.Config(target="h200", strict=True)


@pytest.fixture(scope="module")
def sharding() -> jax.sharding.Sharding:
    """Where arrays are on a compile-only H200."""
    topology = topologies.get_topology_desc(
        "h200",
        platform="cuda",
        target_config=H200.read_text(encoding="utf-8"),
        topology="1x1x1",
    )
    return jax.sharding.SingleDeviceSharding(topology.devices[0])


SHAPES = {
    "rmsnorm": ((16, 512), (512,), (512, 256)),
    "gated_mlp": ((8, 512), (512, 256), (512, 256)),
    "gqa": ((2, 64, 64), (2, 512, 64), (2, 512, 64)),
}


@pytest.mark.parametrize("name", SHAPES)
def test_the_program_compiles_for_an_h200_and_holds_our_kernels(
    name: str, sharding: jax.sharding.Sharding
) -> None:
    function = zoo.cases(1)[name].function
    avals = [
        jax.ShapeDtypeStruct(shape, jnp.bfloat16, sharding=sharding)
        for shape in SHAPES[name]
    ]
    optimized = mirage_jax.optimize(function, config=CONFIG)
    text = jax.jit(optimized).lower(*avals).compile().as_text()
    ours = [x for x in text.splitlines() if "custom-call(" in x and "triton" in x]
    assert ours
    entry = text[text.index("ENTRY") :]
    assert " fusion(" not in entry
    assert " dot(" not in entry


def test_the_same_program_runs_here_with_the_original() -> None:
    case = zoo.cases(1)["rmsnorm"]
    shapes = SHAPES["rmsnorm"]
    keys = jax.random.split(jax.random.key(0), len(shapes))
    arguments = [
        jax.random.normal(k, s, jnp.bfloat16) for k, s in zip(keys, shapes, strict=True)
    ]
    ours = mirage_jax.jit(case.function, config=CONFIG)(*arguments)
    assert (ours == jax.jit(case.function)(*arguments)).all()
