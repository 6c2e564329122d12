"""Targets by name, and which is present."""

import pytest

from mirage_jax import targets
from mirage_jax.errors import ConfigError
from mirage_jax.targets import TARGETS, Target


def test_auto_is_the_device_that_is_here() -> None:
    assert targets.resolve("auto") == TARGETS["cpu"]
    assert targets.is_present(TARGETS["cpu"])


def test_a_gpu_is_absent_here() -> None:
    assert targets.resolve("h200").compute_capability == 90
    assert not targets.is_present(TARGETS["h200"])


def test_a_target_of_ones_own() -> None:
    own = Target(
        name="mine",
        compute_capability=90,
        cores=10,
        memory_bandwidth=1e12,
        l2_bandwidth=3e12,
        l2_bytes=1 << 24,
        matrix_flops=1e14,
        matrix_f32_flops=1e13,
        scalar_flops=1e13,
        shared_bytes=1 << 17,
        device_kind="nothing of this name",
    )
    assert targets.resolve(own) is own
    assert not targets.is_present(own)


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"'v100'.*a100, b200, cpu, h100, h200"):
        targets.resolve("v100")
