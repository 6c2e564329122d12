"""What all tests share: a CPU, no stored winners, steady examples, golden files."""

import os
import pathlib
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, settings

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["MIRAGE_JAX_DATABASE"] = "off"

GOLDEN = pathlib.Path(__file__).parent / "golden"

settings.register_profile(
    "steady",
    deadline=None,
    derandomize=True,
    database=None,
    max_examples=40,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
settings.load_profile("steady")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds `--update-golden`."""
    parser.addoption(
        "--update-golden", action="store_true", help="write golden files anew"
    )


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compares a text with the file of that name, or writes it (`--update-golden`)."""

    def check(name: str, text: str) -> None:
        path = GOLDEN / request.path.parent.name / name
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert text == path.read_text(encoding="utf-8"), (
            "the text is not what it was; pytest --update-golden rewrites the file"
        )

    return check
