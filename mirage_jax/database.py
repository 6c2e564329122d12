"""The winners database: a folder of JSON files, one per key.

Files are written under another name and renamed, so that readers see a whole file or
none, and the last of several writers wins. A folder that cannot be used, or a file that
cannot be read, costs one warning: the database then lives in memory.
"""

import hashlib
import json
import os
import re
import tempfile
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mirage_jax import config as configuration
from mirage_jax.config import Config
from mirage_jax.errors import DatabaseError, MirageWarning

FORMAT = 1
_SAFE_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,119}")


class Database:
    """Winners by key, on disk where there is a folder, and in memory.

    Args:
      path: the folder, made when first written to; None keeps everything in memory.
      strict: whether a failure raises `DatabaseError` instead of warning.
    """

    def __init__(self, path: Path | None, *, strict: bool = False) -> None:
        self.path = path
        self.strict = strict
        self._memory: dict[str, dict[str, Any]] = {}
        self._warned = False
        self._lock = threading.Lock()

    def get(self, key: str) -> dict[str, Any] | None:
        """The entry of `key`, or None."""
        if key in self._memory:
            return self._memory[key]
        file = self._file(key)
        if file is None:
            return None
        entry = self._read(file)
        if entry is None or entry[0] != key:
            return None
        self._memory[key] = entry[1]
        return entry[1]

    def put(self, key: str, entry: dict[str, Any]) -> None:
        """Stores `entry`, which must be what JSON can hold, under `key`."""
        text = json.dumps({"format": FORMAT, "key": key, "entry": entry}, indent=1)
        self._memory[key] = json.loads(text)["entry"]
        file = self._file(key)
        if file is None:
            return
        try:
            self._write(file, text)
        except OSError as error:
            self._failed(f"cannot write {file}: {error}")

    def items(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Every (key, entry), sorted by key."""
        found: dict[str, dict[str, Any]] = {}
        for file in self._files():
            pair = self._read(file)
            if pair is not None:
                found[pair[0]] = pair[1]
        return iter(sorted({**found, **self._memory}.items()))

    def clear(self) -> int:
        """Removes every entry and returns how many there were."""
        count = len(list(self.items()))
        self._memory.clear()
        for file in self._files():
            try:
                file.unlink(missing_ok=True)
            except OSError as error:
                self._failed(f"cannot remove {file}: {error}")
        return count

    def _file(self, key: str) -> Path | None:
        if self.path is None:
            return None
        safe = _SAFE_NAME.fullmatch(key)
        return self.path / f"{key if safe else _digest(key)}.json"

    def _files(self) -> list[Path]:
        if self.path is None:
            return []
        try:
            return sorted(self.path.glob("*.json"))
        except OSError as error:
            self._failed(f"cannot read {self.path}: {error}")
            return []

    def _read(self, file: Path) -> tuple[str, dict[str, Any]] | None:
        try:
            record = json.loads(file.read_text(encoding="utf-8"))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError) as error:
            self._failed(f"cannot read {file}: {error}")
            return None
        if not isinstance(record, dict) or record.get("format") != FORMAT:
            self._failed(f"cannot read {file}: it is not of format {FORMAT}")
            return None
        key, entry = record.get("key"), record.get("entry")
        if not isinstance(key, str) or not isinstance(entry, dict):
            self._failed(f"cannot read {file}: it holds no entry")
            return None
        return key, entry

    def _write(self, file: Path, text: str) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=file.parent, prefix=".", suffix=".tmp")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as stream:
                stream.write(text)
            Path(name).replace(file)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise

    def _failed(self, what: str) -> None:
        message = f"winners database: {what}"
        if self.strict:
            raise DatabaseError(message)
        with self._lock:
            warned, self._warned = self._warned, True
        if not warned:
            warnings.warn(
                f"{message}. Winners are kept in memory only; set "
                "`Config(database=...)` or MIRAGE_JAX_DATABASE to another folder.",
                MirageWarning,
                stacklevel=4,
            )


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


def folder(config: Config) -> Path | None:
    """The folder that `config` means, or None for no database."""
    variables = configuration.environment()
    name = config.database
    if name == "auto":
        name = variables.get("MIRAGE_JAX_DATABASE") or "auto"
    if name == "off":
        return None
    if name != "auto":
        return Path(name).expanduser()
    cache = variables.get("XDG_CACHE_HOME")
    home = variables.get("HOME")
    if not cache and not home:
        return None
    return Path(cache or Path(home or ".") / ".cache") / "mirage_jax" / "winners"


_opened: dict[tuple[Path | None, bool], Database] = {}
_opening = threading.Lock()


def open_database(config: Config) -> Database:
    """The database of `config`; the same object for the same folder.

    `database="off"` gives a fresh one without a folder, which remembers nothing
    beyond its own life.
    """
    path = folder(config)
    if path is None:
        return Database(None, strict=config.strict)
    with _opening:
        return _opened.setdefault(
            (path, config.strict), Database(path, strict=config.strict)
        )
