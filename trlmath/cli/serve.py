"""`trlmath serve RECIPE`: vLLM's own server, started with what a recipe needs."""

from __future__ import annotations

import ipaddress

import click

from trlmath.cli.echo import echo
from trlmath.errors import TrlmathError


@click.command()
@click.argument("recipe")
@click.argument("overrides", nargs=-1, metavar="[KEY.SUBKEY=VALUE]...")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8000,
    show_default=True,
    help="Port to listen on; 0 picks a free one.",
)
@click.option(
    "--context", type=click.IntRange(1), help="Most tokens of prompt and completion; default: the model's."
)
def serve(recipe: str, overrides: tuple[str, ...], host: str, port: int, context: int | None) -> None:
    """Start a vLLM server for RECIPE (a YAML file or a shipped name) and keep it until Ctrl-C.

    A run uses it with sampling.mode=server sampling.url=URL, on the same machine or another. The model, its
    dtype and sampling.engine_options (tensor_parallel_size: 2, ...) are the recipe's, sampling.devices the
    GPUs it takes. VLLM_API_KEY in the environment, here and at the run, is a password for completions.
    """
    from trlmath.cli.launch import quiet_libraries
    from trlmath.recipe import load_recipe

    quiet_libraries()
    loaded = load_recipe(recipe, ["sampling.mode=server", *overrides])

    from trlmath.sampling.models import located, read_model_files
    from trlmath.sampling.serving import start_server

    path = located(loaded.model.path)
    files = read_model_files(path)
    if files.base is not None:
        raise TrlmathError(
            f"model.path: {path!r} is a LoRA adapter. Serve its base model ({files.base}); a run with "
            "model.lora sends the merged weights."
        )
    if not _loopback(host):
        echo(
            f"note: everyone who reaches {host}:{port} can ask this server and give it weights; keep it "
            "behind a firewall.",
            err=True,
        )
    process = start_server(loaded, files.path, context or files.context, loaded.model.dtype, host, port)
    try:
        process.wait(loaded.sampling.start_timeout)
        echo(f"ready at {process.url}: sampling.mode=server sampling.url={process.url}")
        status = process.process.wait()
        raise TrlmathError(f"the vLLM server ended with status {status}; its output is above.")
    except KeyboardInterrupt:
        echo("\nstopping", err=True)
    except TrlmathError as error:
        echo(f"error: {error}", err=True)
        raise SystemExit(1) from error
    finally:
        process.stop()
    echo("stopped", err=True)


def _loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
