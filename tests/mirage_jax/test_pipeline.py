"""The order of the stages, and what happens when one says no."""

import dataclasses
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mirage_jax
import verify
from mirage_jax import pipeline
from mirage_jax.errors import MissError
from mirage_jax.region import Region
from mirage_jax.report import Outcome

AVALS = [
    jax.ShapeDtypeStruct((16, 256), jnp.bfloat16),
    jax.ShapeDtypeStruct((256, 128), jnp.bfloat16),
]
H200 = mirage_jax.Config(target="h200", database="off")


def scaled(x: jax.Array, w: jax.Array) -> jax.Array:
    """Rows over their sums of squares, times a matrix."""
    wide = x.astype(jnp.float32)
    return (wide / jnp.sum(wide * wide, axis=-1, keepdims=True)).astype(x.dtype) @ w


def region() -> Region:
    """The one region of `scaled`."""
    config = mirage_jax.Config(on_miss="xla")
    (found,) = mirage_jax.jit(scaled, config=config).trace(*AVALS).regions
    return found


def run(**changes: object) -> Outcome:
    """The pipeline for an H200."""
    return pipeline.optimize_region(region(), H200.replace(**changes))


def test_a_winner_went_through_every_stage() -> None:
    outcome = run()
    report = outcome.report
    assert report.status == "winner", report.reason
    stages = ["lift", "search", "emit", "verify", "numerics"]
    assert list(report.stage_s) == stages
    assert report.certificate["equal"]
    assert report.predicted_s["winner"] < report.predicted_s["XLA's plan"]
    assert set(report.errors) >= {"normal", "large", "tiny"}
    assert report.counts["verified"] == 1
    assert outcome.call is not None


def test_the_winner_computes_the_region() -> None:
    outcome = run()
    assert outcome.call is not None
    rng = np.random.default_rng(0)
    inputs = [jnp.asarray(rng.standard_normal(a.shape), a.dtype) for a in AVALS]
    (got,) = jax.jit(lambda *a: outcome.call(*a, interpret=True))(*inputs)
    want = jax.jit(scaled)(*inputs)
    scale = float(jnp.abs(want).max())
    assert float(jnp.abs(got.astype(jnp.float32) - want).max()) < 0.02 * scale


def test_what_is_not_proved_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    real = verify.check

    def refuted(*args: object, **options: object) -> verify.Verdict:
        verdict = real(*args, **options)
        return dataclasses.replace(verdict, equal=False, reason="`out0` differs")

    monkeypatch.setattr(verify, "check", refuted)
    outcome = run()
    assert outcome.call is None
    assert outcome.report.status == "original"
    assert any("`out0` differs" in note for note in outcome.report.notes)


def test_what_is_not_proved_well_enough_is_not_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = verify.Verdict.certificate
    monkeypatch.setattr(
        verify.Verdict, "certificate", lambda self: {**real(self), "bound": 0.5}
    )
    outcome = run()
    assert outcome.call is None
    assert any("proved only up to" in note for note in outcome.report.notes)


def test_wrong_numbers_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    real = verify.guard

    def halved(program, sizes, run, **options):
        return real(program, sizes, lambda x: [y / 2 for y in run(x)], **options)

    monkeypatch.setattr(verify, "guard", halved)
    outcome = run()
    assert outcome.call is None
    assert any("numerics: " in note for note in outcome.report.notes)


def test_winners_are_stored_and_found_again(tmp_path: pathlib.Path) -> None:
    first = run(database=str(tmp_path))
    second = run(database=str(tmp_path))
    assert not first.report.from_database
    assert second.report.from_database
    assert "search" not in second.report.stage_s
    assert second.report.pallas == first.report.pallas
    assert second.report.certificate == first.report.certificate
    other = run(database=str(tmp_path), max_block_ops=2)
    assert not other.report.from_database


def test_a_miss_is_what_the_config_says(tmp_path: pathlib.Path) -> None:
    kept = run(database=str(tmp_path), on_miss="xla")
    assert kept.call is None
    assert "no stored winner" in kept.report.reason
    with pytest.raises(MissError, match="no stored winner"):
        run(database=str(tmp_path), on_miss="error")


def test_a_cpu_winner_is_measured() -> None:
    found = pipeline.optimize_region(
        region(), mirage_jax.Config(target="cpu", database="off")
    )
    assert "tune" in found.report.stage_s
    assert found.report.measured_s["original"] > 0
    assert not found.report.predicted_s
    kept = pipeline.optimize_region(
        region(), mirage_jax.Config(target="cpu", database="off", measure="off")
    )
    assert kept.call is None
    assert "measuring, which is off" in kept.report.reason
