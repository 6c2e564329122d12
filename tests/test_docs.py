"""The code in the README and in the docs runs."""

import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parent.parent
PAGES = ["README.md", "docs/tour.md"]


def blocks(text: str) -> list[str]:
    """The Python blocks of a page."""
    return re.findall(r"^```python\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("page", PAGES)
def test_every_python_block_runs(page: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = blocks((ROOT / page).read_text(encoding="utf-8"))
    assert found
    namespace: dict[str, object] = {"__name__": page}
    for number, block in enumerate(found):
        exec(compile(block, f"{page} block {number}", "exec"), namespace)
    assert capsys.readouterr().out


def test_links_lead_somewhere() -> None:
    for page in ROOT.glob("**/*.md"):
        if any(part.startswith(".") for part in page.relative_to(ROOT).parts):
            continue
        text = page.read_text(encoding="utf-8")
        prose = re.sub(r"(?m)^    .*$", "", text)
        for link in re.findall(r"\]\(([^)#]+)", prose):
            if "://" not in link:
                assert (page.parent / link).exists(), f"{page.name}: {link}"


def test_the_test_command_of_the_readme_is_the_one_ci_runs() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    ci = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert "python -m pytest -n 2" in readme
    assert "python -m pytest -n 2" in ci
