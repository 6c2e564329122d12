"""Notes on a region, and saying what takes long."""

import io
import time

import jax
import jax.numpy as jnp
import pytest

import mirage_jax
from mirage_jax import record
from mirage_jax.record import Record, wants_progress


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Record:
    """A record of a region, impatient."""
    monkeypatch.setattr(record, "PATIENCE_S", 0.01)
    config = mirage_jax.Config(on_miss="xla")
    jitted = mirage_jax.jit(lambda x: (x / jnp.sum(x * x)) @ x, config=config)
    (region,) = jitted.trace(jax.ShapeDtypeStruct((8, 8), jnp.float32)).regions
    return Record(region)


def test_stages_are_timed_and_add_up(made: Record) -> None:
    for _ in range(2):
        with made.stage("verify"):
            time.sleep(0.01)
    assert made.stage_s["verify"] >= 0.02


def test_a_stage_that_fails_is_timed_too(made: Record) -> None:
    with pytest.raises(ValueError, match="no"), made.stage("emit"):
        raise ValueError("no")
    assert "emit" in made.stage_s


@pytest.mark.parametrize("progress", [False, True])
def test_a_long_stage_says_so(
    made: Record, progress: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = io.StringIO()
    monkeypatch.setattr(record.sys, "stderr", shown)
    made.progress = progress
    with made.stage("search"):
        time.sleep(0.2)
    assert ("region 0 at / " in shown.getvalue()) == progress
    assert (": search ..." in shown.getvalue()) == progress


def test_progress_is_for_terminals(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    assert not wants_progress(mirage_jax.Config())
    assert wants_progress(mirage_jax.Config(progress="on"))
    monkeypatch.setattr(record.sys, "stderr", Terminal())
    assert wants_progress(mirage_jax.Config())
    assert not wants_progress(mirage_jax.Config(progress="off"))


def test_the_report_has_what_was_noted(made: Record) -> None:
    made.facts["target"] = "h200"
    made.notes.append("a note")
    report = made.report(reason="none better")
    assert (report.target, report.reason) == ("h200", "none better")
    assert report.notes == ("a note",)
    assert report.key == made.region.key
