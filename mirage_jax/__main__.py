"""The command line, `python -m mirage_jax` or `mirage-jax`.

Exit codes: 0 when all went well, 1 when something failed or was refuted, 2 when the
command was called wrong.
"""

import argparse
import importlib
import json
import os
import re
import sys
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

import verify
from mirage_jax import api, database, targets
from mirage_jax import config as configuration
from mirage_jax.config import Config
from mirage_jax.database import Database
from mirage_jax.errors import ConfigError, MirageError, MirageWarning
from mirage_jax.report import Report

_SHAPE = re.compile(r"(?P<dtype>\w+)\[(?P<shape>[\d,\s]*)\]")
_DTYPES = {"f32": "float32", "bf16": "bfloat16", "f16": "float16", "i32": "int32"}
_CONFIG_FLAGS: Mapping[str, type] = {
    "target": str,
    "search_seconds": float,
    "failure_probability": float,
    "max_kernel_ops": int,
    "max_block_ops": int,
    "measure": str,
    "interpret": str,
    "database": str,
    "on_miss": str,
    "seed": int,
}


class UsageError(Exception):
    """The command was called wrong."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command and returns its exit code."""
    options = _parser().parse_args(argv)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("default", MirageWarning)
            warnings.showwarning = _show_warning
            return options.run(options)
    except (UsageError, ConfigError) as error:
        return _failed(str(error), 2)
    except (MirageError, verify.CertificateError) as error:
        return _failed(str(error), 1)


def _failed(message: str, code: int) -> int:
    print(f"mirage-jax: error: {message}", file=sys.stderr)
    return code


def _show_warning(message: Warning | str, *_where: object, **_how: object) -> None:
    print(f"mirage-jax: warning: {message}", file=sys.stderr)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="mirage-jax", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, run, text in (
        ("optimize", _optimize, "optimize a function and store what won"),
        ("explain", _explain, "optimize a function and print all that is known of it"),
    ):
        command = commands.add_parser(name, help=text, description=text)
        _add_function(command)
        command.set_defaults(run=run)
    command = commands.add_parser("targets", help="list the known devices")
    command.set_defaults(run=_targets)
    command = commands.add_parser("db", help="look into the winners database")
    command.add_argument("action", choices=("list", "show", "clear"))
    command.add_argument(
        "key", nargs="?", help="of the entry to show, or how it begins"
    )
    command.add_argument("--database", help="the folder")
    command.set_defaults(run=_db)
    command = commands.add_parser("verify", help="check certificates again")
    command.add_argument("file", type=Path, help="certificate, report or stored winner")
    command.add_argument(
        "--seed", type=int, help="of the tests; by default a fresh one"
    )
    command.set_defaults(run=_verify)
    return parser


def _add_function(command: argparse.ArgumentParser) -> None:
    command.add_argument("function", help="MODULE:FUNCTION")
    command.add_argument(
        "--args", help="MODULE:FUNCTION that returns a tuple of example arguments"
    )
    command.add_argument(
        "--shapes", nargs="*", default=[], help="instead of --args: such as bf16[8,64]"
    )
    command.add_argument("--report", type=Path, help="save to a .html, .json or .txt")
    command.add_argument("--kernels", type=Path, help="folder for the emitted kernels")
    command.add_argument("--strict", action="store_true", help="fail where we fail")
    for name, kind in _CONFIG_FLAGS.items():
        command.add_argument(f"--{name.replace('_', '-')}", type=kind)


def _config(options: argparse.Namespace) -> Config:
    given = {name: getattr(options, name) for name in _CONFIG_FLAGS}
    given = {name: value for name, value in given.items() if value is not None}
    if options.strict:
        given["strict"] = True
    return configuration.resolve().replace(**given)


def _named(name: str) -> Any:
    """The object that `MODULE:ATTRIBUTE` names."""
    module, _, attribute = name.partition(":")
    if not module or not attribute:
        raise UsageError(f"{name!r} is not of the form MODULE:FUNCTION")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found: Any = importlib.import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise UsageError(f"cannot find {name!r}: {error}") from error
    return found


def _arguments(options: argparse.Namespace) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and keyword arguments to trace with."""
    if options.args and options.shapes:
        raise UsageError("--args and --shapes exclude each other")
    if not options.args:
        return tuple(map(_shape, options.shapes)), {}
    given = _named(options.args)
    given = given() if callable(given) else given
    if isinstance(given, Mapping):
        return (), dict(given)
    return (tuple(given) if isinstance(given, (tuple, list)) else (given,)), {}


def _shape(text: str) -> jax.ShapeDtypeStruct:
    match = _SHAPE.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"{text!r} is not of the form bf16[8,64]")
    dtype = _DTYPES.get(match["dtype"], match["dtype"])
    sizes = [int(n) for n in match["shape"].split(",") if n.strip()]
    try:
        return jax.ShapeDtypeStruct(tuple(sizes), np.dtype(dtype))
    except TypeError as error:
        raise UsageError(f"{text!r}: {error}") from error


def _report(options: argparse.Namespace) -> Report:
    function = _named(options.function)
    if not callable(function):
        raise UsageError(f"{options.function!r} is not a function")
    args, kwargs = _arguments(options)
    config = _config(options)
    try:
        report = api.explain(function, *args, config=config, **kwargs)
    except (MirageError, KeyboardInterrupt):
        raise
    except Exception as error:
        what = f"{type(error).__name__}: {error}"
        raise MirageError(f"{options.function} cannot be traced: {what}") from error
    if options.report:
        print(f"report: {report.save(options.report)}")
    for path in report.save_kernels(options.kernels) if options.kernels else ():
        print(f"kernels: {path}")
    return report


def _optimize(options: argparse.Namespace) -> int:
    report = _report(options)
    for region in report.regions:
        print(str(region).partition("\n")[0])
    print(str(report).partition("\n")[0])
    return 0


def _explain(options: argparse.Namespace) -> int:
    print(_report(options))
    return 0


def _targets(options: argparse.Namespace) -> int:
    del options
    for name, target in sorted(targets.TARGETS.items()):
        here = " (present)" if targets.is_present(target) else ""
        number = target.compute_capability
        capability = f" sm_{number}" if number else ""
        print(
            f"{name:8} {target.platform}{capability}, {target.cores} cores, "
            f"{target.memory_bandwidth / 1e9:.0f} GB/s, "
            f"{target.matrix_flops / 1e12:.3g} Tflop/s bf16{here}"
        )
    return 0


def _open(options: argparse.Namespace) -> Database:
    config = configuration.resolve().replace(strict=True)
    if options.database:
        config = config.replace(database=options.database)
    folder = database.folder(config)
    if folder is None:
        raise UsageError("there is no database: it is switched off")
    return Database(folder, strict=True)


def _db(options: argparse.Namespace) -> int:
    stored = _open(options)
    if options.action == "show":
        return _show(stored, options.key)
    if options.key:
        raise UsageError(f"`db {options.action}` takes no key")
    if options.action == "clear":
        print(f"{stored.clear()} entries removed from {stored.path}")
        return 0
    entries = list(stored.items())
    for key, entry in entries:
        verdict = "winner" if "plan" in entry else "original"
        print(f"{key}  {verdict:8}  {entry.get('reason', '')}")
    print(f"{len(entries)} entries in {stored.path}")
    return 0


def _show(stored: Database, key: str | None) -> int:
    if not key:
        raise UsageError("`db show` needs a key")
    found = [(k, entry) for k, entry in stored.items() if k.startswith(key)]
    if len(found) != 1:
        raise UsageError(f"{len(found)} entries of {stored.path} begin with {key!r}")
    print(json.dumps(found[0][1], indent=1, ensure_ascii=False))
    return 0


def _verify(options: argparse.Namespace) -> int:
    try:
        data = json.loads(options.file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot read {options.file}: {error}") from error
    certificates = list(_certificates(data))
    if not certificates:
        raise UsageError(f"{options.file} holds no certificate")
    refuted = 0
    for certificate in certificates:
        verdict = verify.recheck(certificate, seed=options.seed)
        weak = verdict.bound > verdict.failure_probability
        refuted += weak or not verdict.equal
        proved = f"wrong with a probability of at most {verdict.bound:.2g}"
        if not verdict.equal:
            print(f"REFUTED: {verdict.reason}")
        else:
            print(f"{'NOT PROVED' if weak else 'equal'}: {proved}")
    return int(bool(refuted))


def _certificates(data: Any) -> list[Mapping[str, Any]]:
    """The certificates in a certificate, a report or an entry of the database."""
    if not isinstance(data, Mapping):
        return []
    if "regions" in data:
        found = [r.get("certificate") for r in data["regions"]]
    elif "entry" in data:
        found = [data["entry"].get("facts", {}).get("certificate")]
    else:
        found = [data] if "plan" in data else []
    return [c for c in found if c]


if __name__ == "__main__":
    sys.exit(main())
