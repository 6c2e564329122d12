"""Who may import whom, and that the BUILD files say the same."""

import ast
import graphlib
import pathlib
import subprocess
import sys

import pytest

from tests.build_files import (
    CHECKOUT,
    MAY_IMPORT,
    PACKAGES,
    ROOT,
    Module,
    build_files,
    dependencies,
    runner,
    scan,
    sources,
)

SOURCES = sources()
MODULES = scan(SOURCES)
ENTRANCE = SOURCES[pathlib.PurePosixPath("mirage_jax/__init__.py")]
PUBLIC = {
    alias.name
    for node in ast.parse(ENTRANCE).body
    if isinstance(node, ast.ImportFrom)
    for alias in node.names
    if alias.asname == alias.name
}
REMEDY = "Run: python -m tests.build_files --fix"
COMPATIBILITY = "mirage_jax._compat"


def breaches(modules: dict[str, Module]) -> list[str]:
    """Every import that the layering forbids."""
    return [
        f"{module.name} imports {name}"
        for module in modules.values()
        for name in sorted(forbidden(module))
    ]


def forbidden(module: Module) -> set[str]:
    """What a module imports and must not."""
    third = set(module.third)
    found = {
        n for n in module.first if n.split(".")[0] not in MAY_IMPORT[module.package]
    }
    found |= set(module.missing)
    if module.package == "ugraph":
        found |= third - {"numpy"}
    if module.package == "pallas_codegen" and module.path.stem != "loader":
        found |= third & {"jax", "jaxlib"}
    if module.package == "examples":
        found |= third - {"jax", "flax", "numpy"}
        found |= {n for n in module.names if is_private(n)}
    if module.name != COMPATIBILITY:
        found |= {n for n in module.names if f"{n}.".startswith("jax._src.")}
    return found


def is_private(name: str) -> bool:
    """Whether a name out of `mirage_jax` is not one that the package exports."""
    head, _, rest = name.partition(".")
    return head == "mirage_jax" and bool(rest) and rest not in PUBLIC


def targets(folder: pathlib.Path) -> dict[str, dict[str, object]]:
    """What a BUILD file on disk declares: the arguments of its rules, by name."""
    found: dict[str, dict[str, object]] = {}
    file = folder / "BUILD"
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    for node in ast.parse(text).body:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            call = node.value
            facts = {k.arg or "": literal(k.value) for k in call.keywords}
            facts["rule"] = ast.unparse(call.func)
            if facts["rule"] == "load":
                continue
            name = str(facts.get("name", facts["rule"]))
            assert name not in found, f"{folder}: `{name}` is declared twice"
            found[name] = facts
    return found


def literal(node: ast.expr) -> object:
    """A literal's value; the text of anything else."""
    try:
        return ast.literal_eval(node)
    except ValueError:
        return ast.unparse(node)


FOLDERS = sorted({m.path.parent for m in MODULES.values()})
DECLARED = {folder: targets(ROOT / folder) for folder in FOLDERS}


def target_of(module: Module) -> dict[str, object]:
    """What BUILD declares of a module."""
    found = DECLARED[module.path.parent]
    assert module.target in found, f"{module.name} has no target. {REMEDY}"
    return found[module.target]


def declared_deps(module: Module) -> set[str]:
    """The dependencies that BUILD gives a module, as whole labels."""
    deps = target_of(module).get("deps", [])
    assert isinstance(deps, list)
    assert len(deps) == len(set(deps)), module.name
    return {f"//{module.path.parent}{d}" if d.startswith(":") else d for d in deps}


def planted(path: str, text: str) -> Module:
    """A module of that text, among the modules that there are."""
    files = dict.fromkeys(SOURCES, "") | {pathlib.PurePosixPath(path): text}
    return scan(files)[path.removesuffix(".py").replace("/", ".")]


def test_imports_go_down_the_layers() -> None:
    assert breaches(MODULES) == []


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("ugraph/bad.py", "import jax\n"),
        ("ugraph/bad.py", "import scipy.linalg\n"),
        ("ugraph/bad.py", "from verify import field\n"),
        ("ugraph/optimize/bad.py", "from ... import verify\n"),
        ("verify/bad.py", "import pallas_codegen.triton\n"),
        ("verify/bad.py", "import mirage_jax.config\n"),
        ("verify/bad.py", "import ugraph.absent\n"),
        ("pallas_codegen/bad.py", "from verify import field\n"),
        ("pallas_codegen/bad.py", "def f():\n    import jax.numpy\n"),
        ("mirage_jax/bad.py", "from tests import build_files\n"),
        ("mirage_jax/bad.py", "from jax._src.core import Jaxpr\n"),
        ("mirage_jax/bad.py", "from jax import _src\n"),
        ("tests/bad.py", "import jax._src.core\n"),
        ("examples/bad.py", "from mirage_jax import pipeline\n"),
        ("examples/bad.py", "from mirage_jax.api import jit\n"),
        ("examples/bad.py", "from ugraph import search\n"),
        ("examples/bad.py", "import chex\n"),
    ],
)
def test_a_planted_breach_is_found(path: str, text: str) -> None:
    name = path.removesuffix(".py").replace("/", ".")
    found = breaches({name: planted(path, text)})
    assert found
    assert all(f.startswith(f"{name} imports ") for f in found)


@pytest.mark.parametrize(
    ("path", "text", "first"),
    [
        ("ugraph/new.py", "from ugraph import ops\n", ["ugraph.ops"]),
        ("ugraph/new.py", "from ugraph.ops import OPS\n", ["ugraph.ops"]),
        ("ugraph/new.py", "from ugraph import Plan, ops\n", ["ugraph", "ugraph.ops"]),
        ("ugraph/new.py", "from . import ops\n", ["ugraph.ops"]),
        ("ugraph/optimize/new.py", "from ..ops import OPS\n", ["ugraph.ops"]),
        ("mirage_jax/new.py", "from jax._src import core\n", []),
        ("examples/new.py", "from mirage_jax import jit\n", ["mirage_jax"]),
    ],
)
def test_imports_are_read(path: str, text: str, first: list[str]) -> None:
    assert list(planted(path, text).first) == first


@pytest.mark.parametrize("module", MODULES.values(), ids=lambda m: m.name)
def test_a_module_has_a_target_and_its_deps_are_its_imports(module: Module) -> None:
    target = target_of(module)
    assert target["srcs"] == [module.path.name]
    wanted = dependencies(module, MODULES) | runner(module, MODULES)
    assert declared_deps(module) == wanted, REMEDY


def test_build_files_are_as_written_by_the_generator() -> None:
    wanted = {ROOT / path: text for path, text in build_files(MODULES).items()}
    found = [
        ROOT / "BUILD",
        *(f for top in MAY_IMPORT for f in (ROOT / top).rglob("BUILD")),
    ]
    assert set(found) == set(wanted)
    stale = [f for f in found if f.read_text(encoding="utf-8") != wanted[f]]
    assert not stale, REMEDY


def test_every_label_has_a_target() -> None:
    labels = {f"//{f}:{name}" for f, found in DECLARED.items() for name in found}
    for folder, found in DECLARED.items():
        for facts in found.values():
            for key in ("deps", "tests"):
                for label in facts.get(key, []):
                    whole = f"//{folder}{label}" if label[0] == ":" else label
                    assert whole in labels or whole.startswith("@pypi//")


def test_labels_have_no_cycle() -> None:
    graph = {m.label: declared_deps(m) for m in MODULES.values()}
    assert tuple(graphlib.TopologicalSorter(graph).static_order())


def test_visibility_is_that_of_the_layers() -> None:
    for folder, found in DECLARED.items():
        text = (ROOT / folder / "BUILD").read_text(encoding="utf-8")
        users = {u for u, may in MAY_IMPORT.items() if folder.parts[0] in may}
        wanted = sorted(f"//{user}:__subpackages__" for user in users)
        assert found["package"]["default_visibility"] == wanted
        public = [n for n, facts in found.items() if "visibility" in facts]
        assert public == [folder.name] * (str(folder) in PACKAGES)
        assert text.count("visibility:public") == len(public)


def test_every_import_across_packages_is_visible() -> None:
    for module in MODULES.values():
        for name in module.first:
            package = DECLARED[MODULES[name].path.parent]["package"]
            users = package["default_visibility"]
            assert f"//{module.package}:__subpackages__" in users


def test_bazel_runs_the_tests_and_not_only_loads_them() -> None:
    for module in MODULES.values():
        target = target_of(module)
        assert target["rule"] == ("py_test" if module.is_test else "py_library")
        if module.is_test:
            assert target["main_module"] == "pytest"
            assert target["args"] == [f"$(rootpath {module.path.name})"]
            suite = DECLARED[module.path.parent]["tests"]["tests"]
            in_suite = f":{module.target}" in suite
            assert in_suite == (module.target not in CHECKOUT)


def test_a_new_import_makes_a_build_file_stale() -> None:
    path = pathlib.PurePosixPath("ugraph/target.py")
    changed = {**SOURCES, path: "import numpy\nfrom ugraph import ops\n"}
    text = build_files(scan(changed))[path.parent / "BUILD"]
    assert text != build_files(MODULES)[path.parent / "BUILD"]


def test_ugraph_starts_without_jax() -> None:
    code = "import sys, ugraph, ugraph.search; print('jax' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"
