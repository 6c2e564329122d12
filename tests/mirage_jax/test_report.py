"""Reports are plain data with a text, an HTML and a JSON form."""

import dataclasses
import json

import pytest

from mirage_jax.report import Outcome, RegionReport, Report, Skipped, merged

WON = RegionReport(
    index=1,
    path="/scan",
    source="model.py:7 (f)",
    key="abc",
    target="h200",
    status="winner",
    reason="predicted to be the fastest",
    jaxpr="{ lambda ; a:f32[4] . }",
    program="program a=4",
    winner="plan <one kernel>",
    pallas="import jax\n",
    counts={"seen": 10, "verified": 2},
    certificate={
        "fields": {"p": 23, "q": 11},
        "tests": 8,
        "bound": 1.5e-12,
        "theorem": "Schwartz-Zippel",
        "opaque": ["erf"],
        "assumptions": ["casts are the identity"],
    },
    errors={
        "large": {
            "original": 2e-7,
            "winner": 1e-7,
            "original_max": 3e-6,
            "winner_max": 2e-6,
        }
    },
    predicted_s={"winner": 1.25e-5, "XLA's plan": 0.002},
    measured_s={"original": 2.5},
    stage_s={"search": 0.25},
    from_database=True,
    derivation=("distribute", "online maximum"),
    notes=("plan 3 rejected: too large",),
)
KEPT = RegionReport(index=0, key="def", reason="no plan is predicted to beat XLA's")
SKIPPED = (
    Skipped("sort(f32[4])", "no meaning", "/", "model.py:1"),
    Skipped("sort(f32[4])", "no meaning", "/scan", "model.py:2", 3),
    Skipped("tanh", "elementwise only"),
)
REPORT = Report("model<1>", "h200", (KEPT, WON), SKIPPED)


def test_a_region_as_text():
    text = str(WON)
    for part in (
        "region 1 at /scan (model.py:7 (f)): replaced: predicted to be the fastest",
        "target       h200, winner from the database",
        "candidates   seen 10, verified 2",
        "predicted    winner 12.5 µs, XLA's plan 2 ms",
        "measured     original 2.5 s",
        "errors       against float64, original → winner",
        "large inputs         2.00e-07 → 1.00e-07 (largest 3.0e-06 → 2.0e-06)",
        "the fields of 23 and 11 elements in 8 random tests",
        "probability 1.5e-12 at most (Schwartz-Zippel); opaque ops: erf",
        "assumed: casts are the identity",
        "stages       search 250 ms",
        "derivation   distribute → online maximum",
        "note         plan 3 rejected: too large",
        "program:\n    program a=4",
        "winner:\n    plan <one kernel>",
    ):
        assert part in text
    assert "stays with XLA: no plan is predicted to beat XLA's" in str(KEPT)


def test_a_report_as_text():
    text = str(REPORT)
    assert text.startswith("model<1> on h200: 2 region(s), 1 replaced\n")
    assert "sort(f32[4]) ×4" in text
    assert text.count("left to XLA:") == 1
    assert "left to XLA" not in str(Report("f", "cpu"))


def test_repeated_regions_take_a_line():
    again = WON.at(2, "/cond", "model.py:9")
    text = str(Report("f", "h200", (WON, again)))
    assert "region 2 at /cond: the same as region 1" in text
    assert text.count("plan <one kernel>") == 1


def test_html_is_escaped():
    page = REPORT._repr_html_()
    assert "model&lt;1&gt;" in page
    assert "plan &lt;one kernel&gt;" in page
    assert "<one kernel>" not in page
    assert page.count("<details>") == 2
    assert "import jax" in page


@pytest.mark.parametrize("suffix", [".html", ".json", ".txt"])
def test_saving(tmp_path, suffix):
    path = REPORT.save(tmp_path / f"report{suffix}")
    text = path.read_text(encoding="utf-8")
    if suffix == ".html":
        assert text.startswith("<!doctype html>")
    elif suffix == ".json":
        assert json.loads(text) == REPORT.to_dict()
    else:
        assert text == str(REPORT) + "\n"


def test_plain_data_survives_json():
    values = json.loads(json.dumps(WON.to_dict()))
    assert set(values) == {f.name for f in dataclasses.fields(RegionReport)}
    values = {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}
    assert RegionReport(**values) == WON
    assert RegionReport(counts={"x": object()}).to_dict()["counts"]["x"]


def test_saving_kernels(tmp_path):
    again = WON.at(2, "/cond", "")
    other = dataclasses.replace(WON, index=5, pallas="import numpy\n")
    report = Report("model<1>", "h200", (KEPT, WON, again, other))
    paths = report.save_kernels(tmp_path / "new" / "kernels")
    assert [p.name for p in paths] == ["model_1_region1.py", "model_1_region5.py"]
    assert paths[0].read_text() == "import jax\n"
    assert Report("f", "cpu").save_kernels(tmp_path / "none") == ()


def test_merging_counts_what_differs_in_place_only():
    assert [(s.what, s.count) for s in merged(SKIPPED)] == [
        ("sort(f32[4])", 4),
        ("tanh", 1),
    ]


def test_outcomes_are_told_apart_by_identity():
    one, two = Outcome("key"), Outcome("key")
    assert one == one
    assert one != two
    assert len({one, two}) == 2
