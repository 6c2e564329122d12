"""What all tests share: a CPU, no stored winners, steady examples, golden files."""

import os
import pathlib
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, settings

os.environ.setdefault("MIRAGE_JAX_DATABASE", "off")

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


def pytest_configure(config: pytest.Config) -> None:
    """Chooses the platform before anything imports JAX: four CPU devices, or a GPU."""
    if "gpu" not in (config.option.markexpr or ""):
        os.environ.setdefault("JAX_PLATFORMS", "cpu")
    flags = os.environ.get("XLA_FLAGS", "")
    if "host_platform_device_count" not in flags:
        flags += " --xla_force_host_platform_device_count=4"
    os.environ["XLA_FLAGS"] = flags.strip()


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
