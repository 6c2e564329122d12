"""House rules that no linter has: budgets, docstrings, assertions, names."""

import ast
import pathlib
import re

import pytest

from tests.build_files import PACKAGES, ROOT

LONGEST_FILE = 400
LONGEST_FUNCTION = 60
WORKLOADS = (
    "rmsnorm",
    "rms_norm",
    "layernorm",
    "gqa",
    "qknorm",
    "lora",
    "gated_mlp",
    "ntrans",
    "attention",
    "swiglu",
    "llama",
)
ASSERTING = re.compile(r"assert|raises|warns|close|check|golden|expect|same|agree")


def files(*folders: str) -> list[pathlib.Path]:
    """Source files under some folders."""
    found = [p for f in folders for p in sorted((ROOT / f).rglob("*.py"))]
    return [p for p in found if "golden" not in p.parts]


SOURCES = files(*PACKAGES, "examples")
TESTS = [p for p in files("tests") if p.name.startswith("test_")]


def name_of(path: pathlib.Path) -> str:
    """The path for messages."""
    return path.relative_to(ROOT).as_posix()


def functions(tree: ast.AST) -> list[ast.FunctionDef]:
    """Every function."""
    return [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)]


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_a_source_file_keeps_its_budgets_and_has_docstrings(path: pathlib.Path) -> None:
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    assert text.count("\n") <= LONGEST_FILE
    assert ast.get_docstring(tree)
    for function in functions(tree):
        length = (function.end_lineno or 0) - function.lineno + 1
        assert length <= LONGEST_FUNCTION, function.name
    public = [
        n
        for n in tree.body
        if isinstance(n, ast.FunctionDef | ast.ClassDef) and not n.name.startswith("_")
    ]
    for node in public:
        assert ast.get_docstring(node), node.name


@pytest.mark.parametrize("path", [*SOURCES, *TESTS], ids=name_of)
def test_nothing_is_left_to_do(path: pathlib.Path) -> None:
    words = "TO" + "DO|FIX" + "ME|XX" + "X"
    assert not re.search(rf"\b({words})\b", path.read_text(encoding="utf-8"))


ENGINE = [p for p in files(*PACKAGES) if "benchmarks" not in p.parts]


@pytest.mark.parametrize("path", ENGINE, ids=name_of)
def test_no_workload_is_named(path: pathlib.Path) -> None:
    assert named(path) == set()


def test_workloads_are_named_in_the_benchmarks() -> None:
    assert "rmsnorm" in named(ROOT / "mirage_jax" / "benchmarks" / "zoo.py")


def named(path: pathlib.Path) -> set[str]:
    """Workloads that identifiers or string constants name."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = [getattr(node, "id", ""), getattr(node, "name", "")]
        found |= {w for w in WORKLOADS for n in names if n and w in str(n).lower()}
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            found |= {w for w in WORKLOADS if node.value.lower() == w}
    return found


@pytest.mark.parametrize("path", TESTS, ids=name_of)
def test_every_test_asserts(path: pathlib.Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for function in functions(tree):
        if function.name.startswith("test"):
            assert asserts(function), f"{function.name} asserts nothing"


def asserts(function: ast.AST) -> bool:
    """Whether a function has an assertion, or calls what by its name has one."""
    return any(
        isinstance(n, ast.Assert)
        or (isinstance(n, ast.Call) and ASSERTING.search(ast.unparse(n.func)))
        for n in ast.walk(function)
    )


def test_the_rules_can_be_broken() -> None:
    assert not asserts(ast.parse("def test_x():\n    f(1)\n"))
    assert asserts(ast.parse("def test_x():\n    assert f(1)\n"))
