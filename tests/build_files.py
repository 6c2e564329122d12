"""The BUILD files: one target per module, with the dependencies its imports say.

    python -m tests.build_files --fix

writes them anew; `tests/test_layering.py` checks that they are what this would write,
so that Bazel's visibility says the same as the imports.
"""

import ast
import dataclasses
import pathlib
import sys

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

DISTRIBUTIONS = {"absl": "absl_py", "numpy": "numpy", "jax": "jax"}
"""Names of distributions that differ from the module's, or are checked."""

LARGE = ("test_examples", "test_docs", "test_benchmarks", "test_cases")


@dataclasses.dataclass(frozen=True, slots=True)
class Module:
    """A source file.

    Attributes:
      name: dotted.
      path: relative to the root.
      first: first-party modules it imports, by dotted name.
      third: distributions it imports.
    """

    name: str
    path: pathlib.PurePosixPath
    first: tuple[str, ...]
    third: tuple[str, ...]

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


def dotted(path: pathlib.PurePosixPath) -> str:
    """The module that a file is."""
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(tree: ast.AST) -> set[str]:
    """Every dotted name that a module's statements import."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
            found.add(node.module)
    return found


def scan(files: dict[pathlib.PurePosixPath, str]) -> dict[str, Module]:
    """Modules by name, from their paths and texts."""
    known = {dotted(path) for path in files}
    modules = {}
    for path, text in files.items():
        names = imported(ast.parse(text))
        first = {n for n in names if n in known and n != dotted(path)}
        # `from a import b` of a module b is an import of b, not of the package a.
        first -= {n for n in first if any(m.startswith(f"{n}.") for m in first)}
        heads = {n.split(".")[0] for n in names} - set(FOLDERS)
        third = {DISTRIBUTIONS.get(h, h) for h in heads - sys.stdlib_module_names}
        name = dotted(path)
        modules[name] = Module(name, path, tuple(sorted(first)), tuple(sorted(third)))
    return modules


def sources(root: pathlib.Path = ROOT) -> dict[pathlib.PurePosixPath, str]:
    """Every source file and its text."""
    return {
        pathlib.PurePosixPath(path.relative_to(root)): path.read_text(encoding="utf-8")
        for folder in FOLDERS
        for path in sorted((root / folder).rglob("*.py"))
        if "golden" not in path.parts
    }


def build_files(modules: dict[str, Module]) -> dict[pathlib.PurePosixPath, str]:
    """The text of every BUILD file, by path."""
    folders: dict[pathlib.PurePosixPath, list[Module]] = {}
    for module in modules.values():
        folders.setdefault(module.path.parent, []).append(module)
    files = {
        folder / "BUILD": _build(folder, found, modules)
        for folder, found in folders.items()
    }
    suites = sorted(f"//{f}:tests" for f in folders if f.parts[0] == "tests")
    files[pathlib.PurePosixPath("BUILD")] = _root(suites)
    return files


def _root(suites: list[str]) -> str:
    lines = ['exports_files(["LICENSE", "pyproject.toml"])', ""]
    for package in PACKAGES:
        lines += [
            "alias(",
            f'    name = "{package}_package",',
            f'    actual = "//{package}:{package}",',
            '    visibility = ["//visibility:public"],',
            ")",
            "",
        ]
    lines += ["test_suite(", '    name = "all_tests",', "    tests = ["]
    lines += [f'        "{s}",' for s in suites]
    return "\n".join([*lines, "    ],", ")", ""])


def _build(
    folder: pathlib.PurePosixPath, found: list[Module], modules: dict[str, Module]
) -> str:
    top = folder.parts[0]
    users = sorted(u for u, may in MAY_IMPORT.items() if top in may)
    visible = [f"//{u}:__subpackages__" for u in users]
    lines = [
        'load("@rules_python//python:py_library.bzl", "py_library")',
        'load("@rules_python//python:py_test.bzl", "py_test")',
        "",
        "package(default_visibility = [",
        *(f'    "{v}",' for v in visible),
        "])",
        "",
    ]
    if top != "tests":
        lines.remove('load("@rules_python//python:py_test.bzl", "py_test")')
    tests = []
    for module in sorted(found, key=lambda m: m.target):
        is_test = module.target.startswith("test_")
        tests += [module.target] * is_test
        lines += _target(module, modules, is_test=is_test)
    if folder == pathlib.PurePosixPath(top) and top in PACKAGES:
        lines += _whole(top, modules)
    if top == "tests":
        lines += ["test_suite(", '    name = "tests",', "    tests = ["]
        lines += [*(f'        ":{t}",' for t in tests), "    ],", ")", ""]
    return "\n".join(lines)


def _target(module: Module, modules: dict[str, Module], *, is_test: bool) -> list[str]:
    labels = [modules[n].label for n in module.first]
    own = f"//{module.path.parent}:"
    short = [x.removeprefix(f"//{module.path.parent}") for x in labels if own in x]
    far = [x for x in labels if own not in x]
    third = [f"@pypi//{d}" for d in module.third]
    lines = [
        "py_test(" if is_test else "py_library(",
        f'    name = "{module.target}",',
    ]
    if is_test:
        lines.append(f'    size = "{"large" if module.target in LARGE else "medium"}",')
    lines.append(f'    srcs = ["{module.path.name}"],')
    deps = [*sorted(short), *sorted(far), *third]
    if deps:
        lines += ["    deps = [", *(f'        "{d}",' for d in deps), "    ],"]
    return [*lines, ")", ""]


def _whole(package: str, modules: dict[str, Module]) -> list[str]:
    own = sorted(m.label for m in modules.values() if m.package == package)
    return [
        "py_library(",
        f'    name = "{package}",',
        '    visibility = ["//visibility:public"],',
        "    deps = [",
        *(f'        "{x}",' for x in own),
        "    ],",
        ")",
        "",
    ]


def main() -> None:
    """Writes every BUILD file."""
    if sys.argv[1:] != ["--fix"]:
        sys.exit("usage: python -m tests.build_files --fix")
    for path, text in build_files(scan(sources())).items():
        (ROOT / path).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
