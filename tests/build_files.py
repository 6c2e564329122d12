"""The BUILD files: one target per module, with the dependencies its imports say.

    python -m tests.build_files --fix

writes them anew; `tests/test_layering.py` reads what is on disk and compares it with
the imports, so that Bazel's visibility says the same as they do.
"""

import ast
import dataclasses
import pathlib
import sys
from collections.abc import Iterator, Mapping

ROOT = pathlib.Path(__file__).parent.parent
PACKAGES = ("mirage_jax", "pallas_codegen", "ugraph", "verify")
FOLDERS = (*PACKAGES, "examples", "tests")
MAY_IMPORT = {
    "ugraph": ("ugraph",),
    "verify": ("verify", "ugraph"),
    "pallas_codegen": ("pallas_codegen", "ugraph"),
    "mirage_jax": PACKAGES,
    "examples": ("examples", "mirage_jax"),
    "tests": (*PACKAGES, "examples", "tests"),
}
"""Which first-party packages a package may import."""

DISTRIBUTIONS = {"absl": "absl_py"}
"""Distributions whose name is not the module's."""

LARGE = ("test_benchmarks", "test_docs", "test_examples")
"""Tests that run whole programs."""

CHECKOUT = ("test_docs", "test_house_style", "test_layering")
"""Tests that read all files of a checkout, which a sandbox has not: pytest only."""

SHARED_DATA = ('    data = ["h200.txtpb"] + glob(["golden/**"]),',)
"""What tests read from beside `tests/conftest.py`."""

Path = pathlib.PurePosixPath


@dataclasses.dataclass(frozen=True, slots=True)
class Module:
    """A source file.

    Attributes:
      name: dotted.
      path: relative to the root.
      first: first-party modules it imports, by dotted name.
      third: distributions it imports.
      names: every dotted name that its statements import.
      missing: names out of a first-party package that are in no module.
      runs: it has a main part.
    """

    name: str
    path: Path
    first: tuple[str, ...]
    third: tuple[str, ...]
    names: frozenset[str]
    missing: tuple[str, ...]
    runs: bool

    @property
    def package(self) -> str:
        """The top-level folder."""
        return self.path.parts[0]

    @property
    def target(self) -> str:
        """The name of its target."""
        return "init" if self.path.stem == "__init__" else self.path.stem

    @property
    def label(self) -> str:
        """Its label."""
        return f"//{self.path.parent}:{self.target}"

    @property
    def is_test(self) -> bool:
        """Whether pytest runs it."""
        return self.target.startswith("test_")


def dotted(path: Path) -> str:
    """The module that a file is."""
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(tree: ast.AST, path: Path) -> Iterator[tuple[str, str]]:
    """For each name that a module imports: the module it is out of, and the name.

    The name is empty where the module itself is imported.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            folders = path.parts[: len(path.parts) - node.level] if node.level else ()
            source = ".".join((*folders, *filter(None, [node.module])))
            yield from ((source, alias.name) for alias in node.names)


def scan(files: Mapping[Path, str]) -> dict[str, Module]:
    """Modules by name, from their paths and texts."""
    known = {dotted(path) for path in files} | {"examples"}
    return {dotted(path): _scanned(path, text, known) for path, text in files.items()}


def _scanned(path: Path, text: str, known: set[str]) -> Module:
    tree, first, third, names, missing = ast.parse(text), set(), set(), set(), set()
    for source, name in imported(tree, path):
        whole = f"{source}.{name}" if name else source
        names |= {source, whole}
        head = source.split(".")[0]
        if head not in FOLDERS:
            third |= {head} - sys.stdlib_module_names
        elif whole in known or source in known:
            # `from a import b` of a module b imports b; of anything else it imports a.
            first.add(whole if whole in known else source)
        else:
            missing.add(whole)
    return Module(
        name=dotted(path),
        path=path,
        first=tuple(sorted(first - {dotted(path)})),
        third=tuple(sorted(DISTRIBUTIONS.get(t, t) for t in third)),
        names=frozenset(names),
        missing=tuple(sorted(missing)),
        runs=path.parts[0] != "tests" and any(map(_is_main, tree.body)),
    )


def _is_main(statement: ast.stmt) -> bool:
    main = "__name__ == '__main__'"
    return isinstance(statement, ast.If) and ast.unparse(statement.test) == main


def sources(root: pathlib.Path = ROOT) -> dict[Path, str]:
    """Every source file and its text."""
    return {
        Path(path.relative_to(root)): path.read_text(encoding="utf-8")
        for folder in FOLDERS
        for path in sorted((root / folder).rglob("*.py"))
        if "golden" not in path.parts
    }


def runner(module: Module, modules: Mapping[str, Module]) -> set[str]:
    """Labels of what pytest needs to run a test module: itself, and every conftest."""
    if not module.is_test:
        return set()
    folders = [".".join(p.parts) for p in module.path.parents if p.parts]
    found = {f"{folder}.conftest" for folder in folders} & modules.keys()
    return {"@pypi//pytest", *(modules[name].label for name in found)}


def dependencies(module: Module, modules: Mapping[str, Module]) -> set[str]:
    """Labels of what a module imports."""
    third = {f"@pypi//{d}" for d in module.third}
    return third | {modules[n].label for n in module.first}


def build_files(modules: Mapping[str, Module]) -> dict[Path, str]:
    """The text of every BUILD file, by path."""
    folders: dict[Path, list[Module]] = {}
    for module in modules.values():
        folders.setdefault(module.path.parent, []).append(module)
    files = {
        folder / "BUILD": _build(folder, found, modules)
        for folder, found in folders.items()
    }
    suites = sorted(f"//{f}:tests" for f in folders if f.parts[0] == "tests")
    files[Path("BUILD")] = _root(suites)
    return files


def _list(name: str, items: list[str]) -> list[str]:
    if not items:
        return []
    return [f"    {name} = [", *(f'        "{x}",' for x in items), "    ],"]


def _root(suites: list[str]) -> str:
    lines = [
        'licenses(["notice"])  # Apache-2.0',
        "",
        "exports_files([",
        '    "LICENSE",',
        '    "pyproject.toml",',
        "])",
        "",
    ]
    for package in PACKAGES:
        lines += [
            "alias(",
            f'    name = "{package}_package",',
            f'    actual = "//{package}:{package}",',
            '    visibility = ["//visibility:public"],',
            ")",
            "",
        ]
    lines += ["test_suite(", '    name = "all_tests",', *_list("tests", suites), ")"]
    return "\n".join([*lines, ""])


def _build(folder: Path, found: list[Module], modules: Mapping[str, Module]) -> str:
    top = folder.parts[0]
    users = sorted(u for u, may in MAY_IMPORT.items() if top in may)
    body, tests = [], []
    for module in sorted(found, key=lambda m: m.target):
        if module.is_test and module.target not in CHECKOUT:
            tests.append(f":{module.target}")
        body += _target(module, modules)
    if folder == Path(top) and top in PACKAGES:
        body += _whole(top, modules)
    if top == "tests":
        body += ["test_suite(", '    name = "tests",', *_list("tests", tests), ")", ""]
    rules = [r for r in ("py_binary", "py_library", "py_test") if f"{r}(" in body]
    lines = [f'load("@rules_python//python:{r}.bzl", "{r}")' for r in rules]
    lines += ["", "package(default_visibility = ["]
    lines += [*(f'    "//{user}:__subpackages__",' for user in users), "])", ""]
    return "\n".join([*lines, *body])


def _target(module: Module, modules: Mapping[str, Module]) -> list[str]:
    folder = f"//{module.path.parent}:"
    labels = dependencies(module, modules) | runner(module, modules)
    near = sorted(f":{x.removeprefix(folder)}" for x in labels if x.startswith(folder))
    far = sorted(x for x in labels if not x.startswith((folder, "@")))
    third = sorted(x for x in labels if x.startswith("@"))
    file = module.path.name
    lines = [f'    name = "{module.target}",', f'    srcs = ["{file}"],']
    if module.is_test:
        size = "large" if module.target in LARGE else "medium"
        lines.insert(1, f'    size = "{size}",')
        lines.append(f'    args = ["$(rootpath {file})"],')
        lines.append('    data = ["//:pyproject.toml"],')
        lines.append('    main_module = "pytest",')
        lines += ['    tags = ["manual"],'] * (module.target in CHECKOUT)
    if module.name == "tests.conftest":
        lines += SHARED_DATA
    rule = "py_test(" if module.is_test else "py_library("
    target = [rule, *lines, *_list("deps", [*near, *far, *third]), ")", ""]
    return target + (_binary(module) if module.runs else [])


def _binary(module: Module) -> list[str]:
    file = module.path.name
    return [
        "py_binary(",
        f'    name = "run_{module.target.strip("_")}",',
        f'    srcs = ["{file}"],',
        f'    main = "{file}",',
        f'    deps = [":{module.target}"],',
        ")",
        "",
    ]


def _whole(package: str, modules: Mapping[str, Module]) -> list[str]:
    own = sorted(m.label for m in modules.values() if m.package == package)
    public = '    visibility = ["//visibility:public"],'
    name = f'    name = "{package}",'
    return ["py_library(", name, public, *_list("deps", own), ")", ""]


def main() -> None:
    """Writes every BUILD file."""
    if sys.argv[1:] != ["--fix"]:
        sys.exit("usage: python -m tests.build_files --fix")
    for path, text in build_files(scan(sources())).items():
        (ROOT / path).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
