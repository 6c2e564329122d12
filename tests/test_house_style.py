"""House rules that no linter has: budgets, docstrings, assertions, names."""

import ast
import pathlib
import re
from collections.abc import Iterator

import pytest

from tests.build_files import FOLDERS, PACKAGES, ROOT

LONGEST_FILE = 400
LONGEST_FUNCTION = 60
LONGER_FUNCTIONS: dict[str, int] = {}
"""Functions above the budget, by path and name, with their lengths: none may grow."""

WORKLOADS = re.compile(
    "rmsnorm|rms_norm|layernorm|gqa|qknorm|lora|gated_mlp|ntrans|attention|swiglu|llama"
)
ASSERTING = re.compile("assert|raises|warns|close|check|golden|expect")
UNDONE = re.compile(r"\b(" + "TO" + "DO|FIX" + "ME|XX" + r"X)\b")
PRINTING = ("mirage_jax/__main__.py", "mirage_jax/benchmarks/", "examples/")

Function = ast.FunctionDef | ast.AsyncFunctionDef
Documented = ast.Module | ast.ClassDef | Function


def files(*folders: str) -> list[pathlib.Path]:
    """Source files under some folders."""
    found = [p for f in folders for p in sorted((ROOT / f).rglob("*.py"))]
    return [p for p in found if "golden" not in p.parts]


def name_of(path: pathlib.Path) -> str:
    """The path for messages."""
    return path.relative_to(ROOT).as_posix()


def tree_of(path: pathlib.Path) -> ast.Module:
    """A file's syntax tree."""
    return ast.parse(path.read_text(encoding="utf-8"))


SOURCES = files(*PACKAGES, "examples")
ENGINE = [p for p in files(*PACKAGES) if "benchmarks" not in p.parts]
TESTS = [p for p in files("tests") if p.name.startswith("test_")]


def functions(tree: ast.AST) -> Iterator[Function]:
    """Every function, methods and nested ones too."""
    return (n for n in ast.walk(tree) if isinstance(n, Function))


def too_long(tree: ast.AST, name: str) -> dict[str, int]:
    """Functions of a file above the budget, and their lengths."""
    lengths = {
        f"{name}:{f.name}": (f.end_lineno or 0) - f.lineno + 1 for f in functions(tree)
    }
    return {f: length for f, length in lengths.items() if length > LONGEST_FUNCTION}


def undocumented(tree: ast.Module) -> list[str]:
    """What is public and has no docstring."""
    found = [] if ast.get_docstring(tree) else ["the module"]
    todo: list[ast.Module | ast.ClassDef] = [tree]
    while todo:
        for node in todo.pop().body:
            if not isinstance(node, ast.ClassDef | Function):
                continue
            if node.name.startswith("_"):
                continue
            if not ast.get_docstring(node):
                found.append(node.name)
            if isinstance(node, ast.ClassDef):
                todo.append(node)
    return found


def prints(tree: ast.AST) -> bool:
    """Whether a file calls `print`."""
    calls = (n.func for n in ast.walk(tree) if isinstance(n, ast.Call))
    return any(isinstance(f, ast.Name) and f.id == "print" for f in calls)


def named(tree: ast.AST) -> set[str]:
    """Workloads that identifiers or string constants name; docstrings are free to."""
    prose = {
        id(n.body[0].value)
        for n in ast.walk(tree)
        if isinstance(n, Documented) and ast.get_docstring(n)
        if isinstance(n.body[0], ast.Expr)
    }
    words = [
        str(getattr(node, field))
        for node in ast.walk(tree)
        if id(node) not in prose
        for field in ("id", "name", "asname", "attr", "arg", "value")
        if isinstance(getattr(node, field, None), str)
    ]
    return {w for word in words for w in WORKLOADS.findall(word.lower())}


def asserts(function: ast.AST) -> bool:
    """Whether a function has an assertion, or calls what by its name has one."""
    return any(
        isinstance(n, ast.Assert)
        or (isinstance(n, ast.Call) and ASSERTING.search(ast.unparse(n.func)))
        for n in ast.walk(function)
    )


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_a_source_file_keeps_its_budget(path: pathlib.Path) -> None:
    assert path.read_text(encoding="utf-8").count("\n") <= LONGEST_FILE


def test_functions_keep_their_budget() -> None:
    found: dict[str, int] = {}
    for path in SOURCES:
        found |= too_long(tree_of(path), name_of(path))
    assert found == LONGER_FUNCTIONS, "shorten them; lower the numbers where they fell"


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_what_is_public_has_a_docstring(path: pathlib.Path) -> None:
    assert undocumented(tree_of(path)) == []


@pytest.mark.parametrize("path", files(*FOLDERS), ids=name_of)
def test_nothing_is_left_to_do(path: pathlib.Path) -> None:
    assert not UNDONE.search(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_only_programs_print(path: pathlib.Path) -> None:
    assert name_of(path).startswith(PRINTING) or not prints(tree_of(path))


@pytest.mark.parametrize("path", ENGINE, ids=name_of)
def test_no_workload_is_named(path: pathlib.Path) -> None:
    assert named(tree_of(path)) == set()


@pytest.mark.parametrize("path", TESTS, ids=name_of)
def test_every_test_asserts(path: pathlib.Path) -> None:
    for function in functions(tree_of(path)):
        if function.name.startswith("test"):
            assert asserts(function), f"{function.name} asserts nothing"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('"""Attention."""\nx = 1\n', set()),
        ('def f():\n    """Attention."""\n', set()),
        ("def fused_attention(): ...\n", {"attention"}),
        ("def f(lora_rank): ...\n", {"lora"}),
        ("x.llama = 1\n", {"llama"}),
        ("f(gqa=1)\n", {"gqa"}),
        ("if kind == 'RMSNorm': ...\n", {"rmsnorm"}),
        ("from a import b as swiglu\n", {"swiglu"}),
    ],
)
def test_a_workload_is_found_where_it_is_named(text: str, found: set[str]) -> None:
    assert named(ast.parse(text)) == found


def test_workloads_are_named_in_the_benchmarks() -> None:
    assert "rmsnorm" in named(tree_of(ROOT / "mirage_jax" / "benchmarks" / "zoo.py"))


def test_the_rules_can_be_broken() -> None:
    assert not asserts(ast.parse("def test_x():\n    f(1)\n"))
    assert asserts(ast.parse("def test_x():\n    assert f(1)\n"))
    assert asserts(ast.parse("def test_x():\n    with pytest.raises(E): f(1)\n"))
    assert prints(ast.parse("def f():\n    print(1)\n"))
    assert UNDONE.search("# TO" + "DO: more")
    long = ast.parse("async def f():\n" + "    x = 1\n" * LONGEST_FUNCTION)
    assert too_long(long, "a.py") == {"a.py:f": LONGEST_FUNCTION + 1}
    text = "class A:\n    def f(self): ...\n    def _g(self): ...\n"
    assert undocumented(ast.parse(text)) == ["the module", "A", "f"]
