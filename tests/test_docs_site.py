"""Pages made from the code are up to date, every page is listed, and the site builds without a warning."""

from __future__ import annotations

import importlib.util
import os
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


def test_generated_pages_are_up_to_date():
    # in a process of its own: help texts depend on the terminal's width and on what tests have left behind
    code = (
        "import importlib.util as u, pathlib, sys; s = u.spec_from_file_location('d', sys.argv[1]); "
        "m = u.module_from_spec(s); s.loader.exec_module(m); docs = pathlib.Path(sys.argv[2]); "
        "print([n for n, t in m.generated().items() if (docs / n).read_text(encoding='utf-8') != t])"
    )
    environment = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES")}
    done = subprocess.run(
        [sys.executable, "-c", code, str(ROOT / ".ci" / "docs.py"), str(DOCS)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]", f"{done.stdout}: run `make docs` and commit them"


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
