"""Targets as data."""

import pytest

from ugraph.target import TARGETS, Target, find


@pytest.mark.parametrize("target", TARGETS.values(), ids=lambda t: t.name)
def test_facts_are_plausible(target: Target) -> None:
    assert TARGETS[target.name] is target
    assert target.platform in ("cuda", "cpu")
    assert (target.compute_capability > 0) == (target.platform == "cuda")
    assert target.l2_bandwidth > target.memory_bandwidth > 1e9
    assert target.matrix_flops >= target.matrix_f32_flops >= target.scalar_flops > 1e9
    assert target.l2_bytes > target.shared_bytes > 1 << 16
    assert 0 < target.latency_s < target.launch_s < 1e-3


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("NVIDIA H200", "h200"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA A100-SXM4-40GB", "a100"),
        ("nvidia b200", "b200"),
        ("cpu", "cpu"),
        ("TPU v5e", None),
    ],
)
def test_find_knows_how_jax_names_devices(kind: str, name: str | None) -> None:
    found = find(kind)
    assert (found.name if found else None) == name


def test_targets_are_values() -> None:
    assert hash(TARGETS["h200"]) == hash(TARGETS["h200"])
    assert TARGETS["h200"] != TARGETS["h100"]
