"""Targets: devices as data. None needs a device of its kind to be present.

Sources of the numbers: the vendors' public data sheets (dense rates, no sparsity) for
bandwidth, rates and sizes; the CUDA programming guide's table of compute capabilities
for limits per multiprocessor. `l2_bandwidth`, `launch_s`, `latency_s` and the
efficiencies are estimates of this project until a device has been measured.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A device description.

    Attributes:
      name: what users call it.
      platform: jax platform that runs it: `cuda` or `cpu`.
      compute_capability: of a CUDA device, such as 90; 0 for a CPU.
      cores: streaming multiprocessors (CPU: cores).
      memory_bandwidth: bytes per second from device memory.
      l2_bandwidth: bytes per second from the L2 cache (estimate).
      l2_bytes: size of the L2 cache.
      matrix_flops: dense bf16 flops per second of the tensor cores.
      matrix_f32_flops: flops per second of exact float32 products.
      scalar_flops: float32 operations per second outside the tensor cores.
      shared_bytes: shared memory one block may use.
      registers: 32-bit registers per multiprocessor.
      max_threads: threads resident on a multiprocessor.
      launch_s: seconds a kernel costs besides its work (estimate).
      latency_s: seconds one dependent loop iteration costs at least (estimate).
      device_kind: how jax names the device; matched case-insensitively as a substring.
    """

    name: str
    platform: str = "cuda"
    compute_capability: int = 0
    cores: int
    memory_bandwidth: float
    l2_bandwidth: float
    l2_bytes: int
    matrix_flops: float
    matrix_f32_flops: float
    scalar_flops: float
    shared_bytes: int
    registers: int = 65536
    max_threads: int = 2048
    launch_s: float = 3e-6
    latency_s: float = 4e-7
    device_kind: str = ""


TARGETS: Mapping[str, Target] = {
    t.name: t
    for t in (
        Target(
            name="a100",
            compute_capability=80,
            cores=108,
            memory_bandwidth=2.0e12,
            l2_bandwidth=4.8e12,
            l2_bytes=40 << 20,
            matrix_flops=312e12,
            matrix_f32_flops=19.5e12,
            scalar_flops=19.5e12,
            shared_bytes=166912,
            device_kind="A100",
        ),
        Target(
            name="h100",
            compute_capability=90,
            cores=132,
            memory_bandwidth=3.35e12,
            l2_bandwidth=7.0e12,
            l2_bytes=50 << 20,
            matrix_flops=989e12,
            matrix_f32_flops=67e12,
            scalar_flops=67e12,
            shared_bytes=232448,
            device_kind="H100",
        ),
        Target(
            name="h200",
            compute_capability=90,
            cores=132,
            memory_bandwidth=4.8e12,
            l2_bandwidth=7.0e12,
            l2_bytes=50 << 20,
            matrix_flops=989e12,
            matrix_f32_flops=67e12,
            scalar_flops=67e12,
            shared_bytes=232448,
            device_kind="H200",
        ),
        Target(
            name="b200",
            compute_capability=100,
            cores=148,
            memory_bandwidth=8.0e12,
            l2_bandwidth=12.0e12,
            l2_bytes=126 << 20,
            matrix_flops=2250e12,
            matrix_f32_flops=75e12,
            scalar_flops=75e12,
            shared_bytes=232448,
            device_kind="B200",
        ),
        Target(
            name="cpu",
            platform="cpu",
            cores=2,
            memory_bandwidth=20e9,
            l2_bandwidth=60e9,
            l2_bytes=32 << 20,
            matrix_flops=150e9,
            matrix_f32_flops=150e9,
            scalar_flops=20e9,
            shared_bytes=1 << 20,
            launch_s=1e-5,
            latency_s=1e-6,
            device_kind="cpu",
        ),
    )
}


def find(device_kind: str) -> Target | None:
    """The target of a device that jax calls `device_kind`, or None."""
    kind = device_kind.lower()
    matches = (t for t in TARGETS.values() if t.device_kind.lower() in kind)
    return next(matches, None)
