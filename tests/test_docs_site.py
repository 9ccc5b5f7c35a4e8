"""Pages made from the code are up to date, every page is listed, and the site builds without a warning."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"


@pytest.fixture(scope="module")
def maker():
    spec = importlib.util.spec_from_file_location("docs_maker", ROOT / ".ci" / "docs.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_generated_pages_are_up_to_date(maker):
    stale = [
        name for name, text in maker.generated().items() if (DOCS / name).read_text(encoding="utf-8") != text
    ]
    assert not stale, f"{stale}: run `make docs` and commit them"


def test_every_command_has_its_help(maker):
    from trlmath.cli import COMMANDS

    text = maker.commands()
    for name in COMMANDS:
        assert f"## trlmath {name}\n" in text
    assert "## trlmath runs diff\n" in text
    assert "Usage: trlmath report [OPTIONS] RUN..." in text


def test_every_page_is_in_the_overview_once(maker):
    listed = [file for _, file in maker.pages()]
    assert len(listed) == len(set(listed))
    assert set(listed) == {page.name for page in DOCS.glob("*.md")} - {"README.md"}


def test_links_out_of_the_site_become_names(maker):
    assert maker.on_page_markdown("see [the log](../CHANGELOG.md).") == "see the log (`CHANGELOG.md`)."
    assert maker.on_page_markdown("see [Recipes](recipes.md)") == "see [Recipes](recipes.md)"


@pytest.mark.skipif(importlib.util.find_spec("mkdocs") is None, reason="pip install 'trlmath[docs]'")
def test_the_site_builds_without_a_warning(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(tmp_path / "site")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    home = (tmp_path / "site" / "index.html").read_text(encoding="utf-8")
    assert 'href="run-directory.html"' in home
    assert "https://fonts" not in home
