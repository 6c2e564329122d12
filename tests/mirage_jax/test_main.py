"""The command line: what it prints, what it writes, and its exit codes."""

import json
import subprocess
import sys

import pytest

import verify
from mirage_jax.__main__ import main
from mirage_jax.database import Database
from tests.mirage_jax.lifting import array, lifted
from ugraph.graph import Plan, Predefined

MODEL = """
import jax, jax.numpy as jnp

def gated(x, w):
    return jax.nn.silu(x @ w) @ w.T

def broken(x):
    raise KeyError("mine")

def arguments():
    return jnp.ones((4, 6)), jnp.ones((6, 5))

def named():
    return {"x": jnp.ones((4, 6)), "w": jnp.ones((6, 5))}

three = 3
"""


@pytest.fixture(autouse=True)
def model(tmp_path, monkeypatch):
    """A module of the user's in the current folder."""
    (tmp_path / "a_model.py").write_text(MODEL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "a_model", raising=False)


def test_optimize(winners, capsys, tmp_path):
    where = ["--report", "r.json", "--kernels", "kernels"]
    arguments = ["--args", "a_model:arguments", "--seed", "7"]
    code = main(["optimize", "a_model:gated", *arguments, *where])
    out = capsys.readouterr().out
    assert code == 0
    assert "region 0 at / (" in out
    assert "replaced: it is the only one" in out
    assert "gated on cpu: 1 region(s), 1 replaced" in out
    assert json.loads((tmp_path / "r.json").read_text())["regions"]
    assert (tmp_path / "kernels" / "gated_region0.py").exists()
    assert winners.configs[0].seed == 7


@pytest.mark.parametrize(
    "arguments",
    [
        ["--args", "a_model:named"],
        ["--shapes", "f32[4,6]", "f32[6, 5]"],
    ],
)
def test_explain(winners, capsys, arguments):
    assert main(["explain", "a_model:gated", *arguments]) == 0
    out = capsys.readouterr().out
    assert "a plan for" in out
    assert "candidates   seen 12" in out


def test_explain_without_a_search(capsys):
    code = main(
        ["explain", "a_model:gated", "--args", "a_model:arguments", "--on-miss", "xla"]
    )
    assert code == 0
    assert "stays with XLA: no stored winner" in capsys.readouterr().out


WRONG = {
    "no_colon": "'no_colon' is not of the form MODULE:FUNCTION",
    "no_module:f": "cannot find 'no_module:f'",
    "a_model:missing": "cannot find 'a_model:missing'",
    "a_model:three": "'a_model:three' is not a function",
}


@pytest.mark.parametrize("name", WRONG)
def test_functions_that_are_none(capsys, name):
    assert main(["explain", name]) == 2
    assert f"mirage-jax: error: {WRONG[name]}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--target", "h2000"], "`target` is 'h2000'"),
        (["--on-miss", "cry"], "`on_miss` is 'cry'"),
        (["--shapes", "4x6"], "'4x6' is not of the form"),
        (["--shapes", "f99[4]"], "f99"),
        (["--shapes", "f32[4]", "--args", "a_model:arguments"], "exclude each other"),
    ],
)
def test_wrong_flags(capsys, flags, message):
    assert main(["explain", "a_model:gated", *flags]) == 2
    assert message in capsys.readouterr().err


def test_functions_that_cannot_be_traced(capsys):
    assert main(["explain", "a_model:broken", "--shapes", "f32[4]"]) == 1
    err = capsys.readouterr().err
    assert "a_model:broken cannot be traced: KeyError: 'mine'" in err
    assert main(["explain", "a_model:gated", "--shapes", "f32[4]"]) == 1
    assert "cannot be traced: TypeError" in capsys.readouterr().err


def test_failures_of_ours(failing, capsys):
    command = ["optimize", "a_model:gated", "--args", "a_model:arguments"]
    assert main(command) == 0
    captured = capsys.readouterr()
    assert "warning: region 0" in captured.err
    assert "0 replaced" in captured.out
    assert main([*command, "--strict"]) == 1
    assert "error: cannot optimize region 0" in capsys.readouterr().err


def test_targets(capsys):
    assert main(["targets"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith("h200 ") and "sm_90" in line]
    assert [line for line in lines if line.startswith("cpu ") and "(present)" in line]


def test_db(capsys, tmp_path):
    folder = tmp_path / "winners"
    stored = Database(folder)
    stored.put("abc1", {"reason": "fast", "plan": "plan", "notes": ["μ"]})
    stored.put("abd2", {"reason": "slow"})
    where = ["--database", str(folder)]
    assert main(["db", "list", *where]) == 0
    out = capsys.readouterr().out
    assert "abc1  winner    fast" in out
    assert "abd2  original  slow" in out
    assert "2 entries in" in out
    assert main(["db", "show", "abc", *where]) == 0
    assert json.loads(capsys.readouterr().out)["notes"] == ["μ"]
    for key, message in (("ab", "2 entries"), ("x", "0 entries")):
        assert main(["db", "show", key, *where]) == 2
        assert message in capsys.readouterr().err
    assert main(["db", "show", *where]) == 2
    assert main(["db", "clear", "abc1", *where]) == 2
    assert main(["db", "clear", *where]) == 0
    assert "2 entries removed" in capsys.readouterr().out
    assert list(Database(folder).items()) == []


def test_db_that_is_off_or_broken(capsys, tmp_path):
    assert main(["db", "list"]) == 2
    assert "switched off" in capsys.readouterr().err
    (tmp_path / "key.json").write_text("{")
    assert main(["db", "list", "--database", str(tmp_path)]) == 1
    assert "key.json" in capsys.readouterr().err


@pytest.fixture
def certificate():
    """A proof that a program equals itself."""
    program = lifted(lambda x, w: x @ w, array(0, (4, 6)), array(1, (6, 5)))
    outputs = tuple(o.tensor for o in program.outputs)
    kernel = Predefined("original", program.outputs)
    plan = Plan(program.extents, program.inputs, outputs, (kernel,))
    verdict = verify.check(program, plan)
    assert verdict.equal
    return verdict.certificate()


def test_verify(capsys, tmp_path, certificate):
    for name, data in {
        "certificate": certificate,
        "report": {"regions": [{"certificate": certificate}, {"certificate": {}}]},
        "stored": {"format": 1, "entry": {"facts": {"certificate": certificate}}},
    }.items():
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps(data))
        assert main(["verify", str(path), "--seed", "5"]) == 0
        out = capsys.readouterr().out
        assert out.startswith("equal: wrong with a probability of at most")


def test_verify_refutes_what_is_wrong(capsys, tmp_path, certificate):
    other = lifted(lambda x, w: x @ w * 2, array(0, (4, 6)), array(1, (6, 5)))
    outputs = tuple(o.tensor for o in other.outputs)
    plan = Plan(
        other.extents, other.inputs, outputs, (Predefined("wrong", other.outputs),)
    )
    wrong = verify.check(other, plan).certificate()
    path = tmp_path / "wrong.json"
    path.write_text(json.dumps({**certificate, "plan": wrong["plan"]}))
    assert main(["verify", str(path)]) == 1
    assert capsys.readouterr().out.startswith("REFUTED")


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        ("{", 2, "cannot read"),
        ("[]", 2, "holds no certificate"),
        ('{"regions": []}', 2, "holds no certificate"),
        ('{"plan": "x"}', 1, "the certificate has no"),
    ],
)
def test_verify_what_is_no_certificate(capsys, tmp_path, text, code, message):
    path = tmp_path / "file.json"
    path.write_text(text)
    assert main(["verify", str(path)]) == code
    assert message in capsys.readouterr().err
    assert main(["verify", str(tmp_path / "missing.json")]) == 2


def test_as_a_module():
    run = subprocess.run(
        [sys.executable, "-m", "mirage_jax", "--help"],
        check=True,
        capture_output=True,
        text=True,
    )
    assert "COMMAND" in run.stdout
    with pytest.raises(SystemExit, match="2"):
        main([])
