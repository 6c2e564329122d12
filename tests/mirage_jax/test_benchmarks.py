"""Benchmarks run, and say what they measured; how long things take is not tested."""

import json
import pathlib
import subprocess
import sys

import jax
import jax.numpy as jnp
import pytest

from mirage_jax.benchmarks import kernels, zoo


def run(*flags: str) -> "subprocess.CompletedProcess[str]":
    """The benchmark as a command."""
    command = [sys.executable, "-m", "mirage_jax.benchmarks.kernels", *flags]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("name", zoo.cases(16))
def test_every_case_is_a_function_of_its_shapes(name: str) -> None:
    case = zoo.cases(16)[name]
    out = jax.eval_shape(case.function, *case.avals(jnp.bfloat16))
    assert out.dtype == jnp.bfloat16
    assert case.name == name


def test_what_is_not_here_is_predicted_and_says_so(tmp_path: pathlib.Path) -> None:
    out = tmp_path / "rows.json"
    done = run("--target=h200", "--only=ntrans", f"--out={out}")
    assert done.returncode == 0, done.stderr
    assert "predicted:" in done.stdout
    assert "measured" not in done.stdout
    facts = json.loads(out.read_text(encoding="utf-8"))
    assert facts["target"] == "h200"
    assert [row["measured"] for row in facts["rows"]] == [False]


def test_what_is_here_is_measured(tmp_path: pathlib.Path) -> None:
    out = tmp_path / "rows.json"
    done = run("--target=cpu", "--only=ntrans", "--rounds=3", f"--out={out}")
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(out.read_text(encoding="utf-8"))["rows"]
    assert row["measured"]
    assert len(row["jax_ms"]) == len(row["mirage_ms"]) == 3
    assert max(row["errors"]) < 0.1


def test_an_unknown_case_is_named() -> None:
    done = run("--only=nothing")
    assert done.returncode != 0
    assert "unknown cases ['nothing']" in done.stdout + done.stderr
    assert kernels.Row("x", 1.0, measured=False).errors == ()
