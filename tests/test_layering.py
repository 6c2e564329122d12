"""Who may import whom, and that the BUILD files say the same."""

import pathlib
import sys

import pytest

from tests.build_files import (
    MAY_IMPORT,
    PACKAGES,
    ROOT,
    Module,
    build_files,
    scan,
    sources,
)

MODULES = scan(sources())


def breaches(modules: dict[str, Module]) -> list[str]:
    """Every import that the layering forbids."""
    found = []
    for module in modules.values():
        allowed = MAY_IMPORT[module.package]
        found += [
            f"{module.name} imports {name}"
            for name in module.first
            if name.split(".")[0] not in allowed
        ]
        if module.package == "ugraph":
            found += [
                f"{module.name} imports {d}" for d in set(module.third) - {"numpy"}
            ]
        emitter = module.package == "pallas_codegen" and module.path.stem != "loader"
        if emitter and set(module.third) & {"jax", "jaxlib"}:
            found.append(f"{module.name} imports jax")
        if module.package == "examples":
            found += [
                f"{module.name} imports {name}, which is not public"
                for name in module.first
                if name.startswith("mirage_jax.")
            ]
    return found


def test_imports_go_down_the_layers() -> None:
    assert breaches(MODULES) == []


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("ugraph/bad.py", "import jax\n"),
        ("ugraph/bad.py", "from verify import field\n"),
        ("verify/bad.py", "import pallas_codegen.triton\n"),
        ("pallas_codegen/bad.py", "from verify import field\n"),
        ("pallas_codegen/bad.py", "def f():\n    import jax.numpy\n"),
        ("verify/bad.py", "import mirage_jax.config\n"),
        ("mirage_jax/bad.py", "from tests import build_files\n"),
        ("examples/bad.py", "from mirage_jax import pipeline\n"),
    ],
)
def test_a_planted_breach_is_found(path: str, text: str) -> None:
    planted = {**sources(), pathlib.PurePosixPath(path): text}
    (found,) = breaches(scan(planted))
    assert path.removesuffix(".py").replace("/", ".") in found


def test_build_files_are_those_of_the_imports() -> None:
    wanted = build_files(MODULES)
    stale = [
        str(path)
        for path, text in wanted.items()
        if not (ROOT / path).exists()
        or (ROOT / path).read_text(encoding="utf-8") != text
    ]
    assert not stale, "run: python -m tests.build_files --fix"
    folders = [ROOT, *(ROOT / p for p in MAY_IMPORT)]
    found = {
        p.relative_to(ROOT).as_posix()
        for folder in folders
        for p in (folder.rglob("BUILD") if folder != ROOT else folder.glob("BUILD"))
    }
    assert found == {str(p) for p in wanted}


def test_every_module_has_a_target_and_its_imports_are_its_deps() -> None:
    texts = build_files(MODULES)
    for module in MODULES.values():
        text = texts[module.path.parent / "BUILD"]
        start = text.index(f'name = "{module.target}",')
        target = text[start : text.index("\n)", start)]
        assert f'srcs = ["{module.path.name}"]' in target
        count = len(module.first) + len(module.third)
        assert target.count('        "') == count, module.name


def test_a_new_import_makes_a_build_file_stale() -> None:
    path = pathlib.PurePosixPath("ugraph/target.py")
    changed = {**sources(), path: "import numpy\nfrom ugraph import ops\n"}
    text = build_files(scan(changed))[path.parent / "BUILD"]
    assert text != build_files(MODULES)[path.parent / "BUILD"]


def test_packages_are_visible_to_those_that_may_import_them() -> None:
    for package in PACKAGES:
        text = build_files(MODULES)[pathlib.PurePosixPath(package) / "BUILD"]
        head = text[: text.index("])")]
        for user, may in MAY_IMPORT.items():
            assert (f'"//{user}:__subpackages__"' in head) == (package in may)


def test_ugraph_starts_without_jax() -> None:
    import subprocess

    code = "import sys, ugraph, ugraph.search; print('jax' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"
