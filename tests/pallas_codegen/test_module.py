"""A plan as a module: its text, and that it checks itself."""

import dataclasses
import os
import pathlib
import subprocess
import sys
from collections.abc import Callable

import pytest

import pallas_codegen
from pallas_codegen import EmitError
from tests.pallas_codegen.running import H200, emitted, plan_for
from tests.ugraph import programs as made
from ugraph.graph import BlockGraph, Range
from ugraph.schedule import structures
from ugraph.search import search
from ugraph.target import TARGETS


def norm_linear_kernel() -> BlockGraph:
    """A fixed kernel."""
    kernel = next(
        k for k in structures(made.pulled(made.norm_linear()).outputs) if k.loop
    )
    grid = tuple(Range(r.label, 16) for r in kernel.grid)
    return dataclasses.replace(kernel, name="kernel0", grid=grid, loop=Range("d", 32))


def test_emitted_text_is_what_it_was(golden: Callable[[str, str], None]) -> None:
    program = made.norm_linear()
    whole = BlockGraph("kernel0", (), None, (), program.outputs)
    for backend, kernel in (("triton", norm_linear_kernel()), ("xla", whole)):
        text = emitted(program, plan_for(program, kernel), backend)
        golden(f"norm_linear_{backend}.txt", text)


def test_lines_fit() -> None:
    for maker in made.MAKERS:
        program = maker()
        for candidate in search(program, H200).candidates[:1]:
            text = emitted(program, candidate.plan, "triton").split('"""', 2)[2]
            assert max(map(len, text.splitlines())) <= 100, maker.__name__


@pytest.mark.parametrize("backend", ["triton", "xla"])
def test_a_module_runs_alone_and_checks_itself(
    backend: str, tmp_path: pathlib.Path
) -> None:
    program = made.norm_linear()
    kernel = norm_linear_kernel()
    if backend == "xla":
        kernel = BlockGraph("kernel0", (), None, (), program.outputs)
    text = emitted(program, plan_for(program, kernel), backend)
    file = tmp_path / "kernel.py"
    file.write_text(text)
    good = _run(file)
    assert good.returncode == 0, good.stderr
    assert "relative error" in good.stdout
    body = text.index("def kernel0")
    file.write_text(text[:body] + text[body:].replace("jax.lax.rsqrt(", "jnp.sqrt(", 1))
    bad = _run(file)
    assert bad.returncode != 0
    assert "disagrees with the original" in bad.stderr


def _run(file: pathlib.Path) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    return subprocess.run(
        [sys.executable, str(file)],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )


def test_an_unknown_backend_is_named() -> None:
    program = made.matmul()
    plan = plan_for(program, BlockGraph("kernel0", (), None, (), program.outputs))
    with pytest.raises(EmitError, match=r"no backend `cuda`; there are triton, xla"):
        pallas_codegen.emit(plan, "cuda", target=TARGETS["h200"], program=program)
