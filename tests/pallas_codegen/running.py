"""Emitting a plan and running it on the CPU."""

from collections.abc import Mapping

import jax
import numpy as np
import numpy.typing as npt

import pallas_codegen
from ugraph.graph import BlockGraph, Plan, Predefined
from ugraph.program import Program
from ugraph.target import TARGETS
from ugraph.validate import validate

NUMPY = {"f32": np.float32, "f16": np.float16, "bf16": jax.numpy.bfloat16, "bool": bool}
H200 = TARGETS["h200"]


def plan_for(program: Program, *kernels: BlockGraph | Predefined) -> Plan:
    """The plan with these kernels."""
    outputs = tuple(o.tensor for o in program.outputs)
    return validate(Plan(program.extents, program.inputs, outputs, kernels))


def emitted(program: Program, plan: Plan, backend: str) -> str:
    """The text of the module of a plan."""
    return pallas_codegen.emit(plan, backend, target=H200, program=program).text


def run(
    program: Program,
    plan: Plan,
    backend: str,
    inputs: Mapping[str, npt.NDArray[np.float64]],
) -> dict[str, npt.NDArray[np.float64]]:
    """The outputs of the emitted code in float64, by name."""
    source = pallas_codegen.emit(plan, backend, target=H200, program=program)
    function = pallas_codegen.load(source)
    arrays = [inputs[t.name].astype(NUMPY[t.dtype]) for t in program.inputs]
    outputs = jax.jit(lambda *a: function(*a, interpret=True))(*arrays)
    for tensor, output in zip(plan.outputs, outputs, strict=True):
        assert output.shape == tensor.shape
        assert output.dtype == NUMPY[tensor.dtype]
    return {
        t.name: np.asarray(o, np.float64)
        for t, o in zip(plan.outputs, outputs, strict=True)
    }


def rounded(
    program: Program, inputs: Mapping[str, npt.NDArray[np.float64]]
) -> dict[str, npt.NDArray[np.float64]]:
    """The inputs as their dtypes hold them."""
    return {
        t.name: inputs[t.name].astype(NUMPY[t.dtype]).astype(np.float64)
        for t in program.inputs
    }


def assert_close(
    got: Mapping[str, npt.NDArray[np.float64]],
    want: Mapping[str, npt.NDArray[np.float64]],
    tolerance: float,
) -> None:
    """Every element within `tolerance` of the largest magnitude of its output."""
    for name, expected in want.items():
        assert np.isfinite(got[name]).all(), f"{name} is not finite everywhere"
        scale = np.abs(expected).max() + 1e-30
        assert np.abs(got[name] - expected).max() <= tolerance * scale, name
