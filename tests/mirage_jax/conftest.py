"""Every test starts without settings, stored winners and outcomes of other tests."""

import os
from collections.abc import Iterator

import pytest

import mirage_jax
from mirage_jax import outcomes
from tests.mirage_jax.fakes import Winners


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Forgets what was before, and keeps away from the user's stored winners."""
    for name in [n for n in os.environ if n.startswith("MIRAGE_JAX_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("MIRAGE_JAX_DATABASE", "off")
    mirage_jax.clear_caches()
    yield
    mirage_jax.clear_caches()


@pytest.fixture
def winners(monkeypatch: pytest.MonkeyPatch) -> Winners:
    """In place of the pipeline, one in which every region has a winner."""
    pipeline = Winners()
    monkeypatch.setattr(outcomes.pipeline, "optimize_region", pipeline)
    return pipeline


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> None:
    """In place of the pipeline, one that fails."""

    def fail(region: object, config: object) -> None:
        raise ZeroDivisionError("the pipeline is broken")

    monkeypatch.setattr(outcomes.pipeline, "optimize_region", fail)
