"""The winners database: whole entries or none, and never an error unless asked for."""

import json
import threading
from pathlib import Path

import pytest

from mirage_jax import Config, MirageWarning
from mirage_jax.database import Database, folder, open_database
from mirage_jax.errors import DatabaseError

ENTRY = {"reason": "fast", "numbers": [1, 2.5, None], "text": "μ"}


def test_what_is_put_is_got_by_another(tmp_path):
    Database(tmp_path / "new" / "folder").put("key", ENTRY)
    other = Database(tmp_path / "new" / "folder")
    assert other.get("key") == ENTRY
    assert other.get("missing") is None
    assert dict(other.items()) == {"key": ENTRY}


def test_the_last_writer_wins_and_no_debris_is_left(tmp_path):
    first, second = Database(tmp_path), Database(tmp_path)
    first.put("key", {"n": 1})
    second.put("key", {"n": 2})
    assert Database(tmp_path).get("key") == {"n": 2}
    assert [f.suffix for f in tmp_path.iterdir()] == [".json"]


def test_entries_are_copies(tmp_path):
    database, entry = Database(tmp_path), {"list": [1]}
    database.put("key", entry)
    entry["list"].append(2)
    assert database.get("key") == {"list": [1]}


@pytest.mark.parametrize("key", ["../escape", "a/b", "", ".hidden", "x" * 500, "μ"])
def test_any_key_stays_inside_the_folder(tmp_path, key):
    root = tmp_path / "winners"
    Database(root).put(key, ENTRY)
    assert Database(root).get(key) == ENTRY
    assert [p for p in tmp_path.rglob("*.json") if p.parent != root] == []


BROKEN = ["", "{", "[]", '{"format": 99}', '{"format": 1, "key": 3, "entry": {}}', "\0"]


@pytest.mark.parametrize("text", BROKEN)
def test_a_file_that_cannot_be_read_is_a_miss_and_a_warning(tmp_path, text):
    (tmp_path / "key.json").write_text(text)
    database = Database(tmp_path)
    with pytest.warns(MirageWarning, match=r"cannot read .*key\.json"):
        assert database.get("key") is None
    assert list(database.items()) == []
    database.put("key", ENTRY)
    assert Database(tmp_path).get("key") == ENTRY
    (tmp_path / "other.json").write_text(text)
    with pytest.raises(DatabaseError, match=r"other\.json"):
        Database(tmp_path, strict=True).get("other")


def test_a_file_of_another_key_is_a_miss(tmp_path):
    Database(tmp_path).put("a", ENTRY)
    (tmp_path / "a.json").rename(tmp_path / "b.json")
    assert Database(tmp_path).get("b") is None


def test_a_folder_that_cannot_be_written_costs_one_warning(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    database = Database(blocked / "winners")
    with pytest.warns(MirageWarning, match=r"cannot write .*MIRAGE_JAX_DATABASE"):
        database.put("a", ENTRY)
    database.put("b", ENTRY)
    assert database.get("a") == ENTRY, "kept in memory"
    with pytest.raises(DatabaseError, match="cannot write"):
        Database(blocked / "winners", strict=True).put("a", ENTRY)


def test_what_json_cannot_hold_is_the_callers_error(tmp_path):
    with pytest.raises(TypeError):
        Database(tmp_path).put("key", {"x": object()})
    assert list(tmp_path.iterdir()) == []


def test_clear(tmp_path):
    database = Database(tmp_path)
    for key in "abc":
        database.put(key, ENTRY)
    assert Database(tmp_path).clear() == 3
    assert list(tmp_path.iterdir()) == []
    assert Database(tmp_path).clear() == 0


def test_without_a_folder_it_lives_in_memory():
    database = Database(None)
    database.put("key", ENTRY)
    assert database.get("key") == ENTRY
    assert list(database.items()) == [("key", ENTRY)]
    assert database.clear() == 1
    assert Database(None).get("key") is None


def test_many_writers_at_once(tmp_path):
    def write(n):
        for i in range(20):
            Database(tmp_path).put(f"k{i}", {"by": n, "text": "x" * 2000})

    threads = [threading.Thread(target=write, args=(n,)) for n in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    entries = dict(Database(tmp_path, strict=True).items())
    assert len(entries) == 20
    assert all(e["by"] in range(4) for e in entries.values())


def test_files_are_readable_json(tmp_path):
    Database(tmp_path).put("key", ENTRY)
    assert json.loads((tmp_path / "key.json").read_text())["entry"] == ENTRY


def test_which_folder(monkeypatch, tmp_path):
    monkeypatch.delenv("MIRAGE_JAX_DATABASE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert folder(Config()) == tmp_path / "mirage_jax" / "winners"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/me")
    assert folder(Config()) == Path("/home/me/.cache/mirage_jax/winners")
    monkeypatch.delenv("HOME")
    assert folder(Config()) is None
    monkeypatch.setenv("MIRAGE_JAX_DATABASE", "/elsewhere")
    assert folder(Config()) == Path("/elsewhere")
    assert folder(Config(database="/here")) == Path("/here")
    assert folder(Config(database="off")) is None


def test_one_folder_is_one_database(tmp_path):
    config = Config(database=tmp_path)
    assert open_database(config) is open_database(config)
    assert open_database(config) is not open_database(config.replace(strict=True))
    off = Config(database="off")
    assert open_database(off) is not open_database(off)
