"""Fake installed distributions: a folder with a module and its metadata, found through sys.path."""

from __future__ import annotations

import textwrap
from pathlib import Path


def add_distribution(folder: Path, name: str, code: str, version: str = "1.0", entry: str = "") -> Path:
    """Write distribution `name` with one module of the same name (dashes to underscores) into `folder`."""
    module = name.replace("-", "_")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{module}.py").write_text(textwrap.dedent(code), encoding="utf-8")
    info = folder / f"{module}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n", encoding="utf-8"
    )
    (info / "entry_points.txt").write_text(f"[trlmath]\n{module} = {entry or module}\n", encoding="utf-8")
    (info / "RECORD").write_text(f"{module}.py,,\n", encoding="utf-8")
    return folder
