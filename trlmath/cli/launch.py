"""What every recipe script begins with: read the command line, load the recipe, hold errors readable."""

from __future__ import annotations

import atexit
import errno
import json
import logging
import os
import re
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

import click

from trlmath.cli.echo import echo, guard_tracebacks
from trlmath.errors import TrlmathError, visible
from trlmath.launcher import follow_launcher, left_out, stop_asked
from trlmath.recipe import Recipe, check_sections, load_recipe
from trlmath.reward_faults import left_threads

INTERRUPTED = 130
NO_SPACE = (
    "the run's files cannot be written (is the disk full?): {error}. Make room (see also run.keep_last), "
    "then start the same command again: it goes on from the last whole checkpoint."
)
_FULL = ("os error 28", "No space left on device", "unexpected pos", "PytorchStreamWriter failed")
# seconds that threads of rewards have to end
LEAVING = 10.0
# seconds that other processes than the first wait before they tell an error
PATIENCE = 15.0


def launch(name: str, run: Callable[[Recipe], None], check: Callable[[Recipe], None]) -> NoReturn:
    """Run a recipe script's command line and exit.

    Args:
        name: the script's, for its default recipe ``nano/<name>``.
        run: does the work.
        check: what ``--dry-run`` checks before printing the recipe.
    """

    @click.command(context_settings={"help_option_names": ["-h", "--help"]})
    @click.option(
        "--config", default=f"nano/{name}", show_default=True, help="Recipe: a YAML file or a shipped name."
    )
    @click.option("--dry-run", is_flag=True, help="Check the recipe, print it with every default, and stop.")
    @click.argument("overrides", nargs=-1, metavar="[KEY.SUBKEY=VALUE]...")
    def command(config: str, dry_run: bool, overrides: tuple[str, ...]) -> None:
        recipe = load_recipe(config, list(overrides))
        check_sections(recipe, name)
        if dry_run:
            check(recipe)
            if _first():
                echo(recipe.to_yaml(), nl=False)
            return
        run(recipe)

    command.help = (
        f"Run the recipe {name}. Override any key by its dotted path, e.g. sampling.temperature=0.7."
    )
    quiet_libraries()
    guard_tracebacks()
    # a launcher of several processes passes Ctrl-C on as SIGTERM
    signal.signal(signal.SIGTERM, _interrupt)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _ctrl_c)
    follow_launcher()
    if told := left_out():
        echo(f"note     {told}", err=True)
    try:
        with readable_errors():
            command(standalone_mode=False)
    except Exception as error:  # noqa: BLE001 - it is shown, and the end is ours
        sys.excepthook(type(error), error, error.__traceback__)
        leave(1)
    leave(0)


@contextmanager
def readable_errors() -> Iterator[None]:
    """Print errors that a person can act on without a traceback, and exit with a status."""
    try:
        yield
    except TrlmathError as error:
        if os.environ.get("TRLMATH_TRACEBACK"):
            raise
        _tell(visible(error))
        leave(1)
    except click.ClickException as error:
        error.show()
        leave(error.exit_code)
    except (KeyboardInterrupt, click.Abort):  # Abort is a RuntimeError too
        if _first():
            echo("\ninterrupted: what was written so far is complete and readable.", err=True)
        leave(INTERRUPTED)
    except Exception as error:
        if os.environ.get("TRLMATH_TRACEBACK") or not (lost_process(error) or no_space(error)):
            raise
        if no_space(error):
            _tell(NO_SPACE.format(error=visible(str(error) or type(error).__name__).splitlines()[0]))
            leave(1)
        told = visible(re.sub(r"^\[[^]]*] *", "", str(error).splitlines()[0]))
        _tell(
            "another process of this run is gone, or did not answer within trainer.ddp_timeout: "
            f"{told}. Look at its output, and start the same command again on every host."
        )
        _end_now(1)  # leaving the group politely would wait for the one that is gone


def no_space(error: BaseException | None) -> bool:
    """Whether something could not be written because the disk is full, or read-only by now."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS):
            return True
        # safetensors' own words, and torch.save's, which do not say why
        if any(words in str(error) for words in _FULL):
            return True
        error = error.__cause__ or error.__context__
    return False


def lost_process(error: BaseException) -> bool:
    """Whether an exchange between the processes of a run failed because one does not answer."""
    if not isinstance(error, RuntimeError):
        return False
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(error, getattr(torch.distributed, "DistError", ())):
        return True
    text = str(error).lower()
    return "gloo" in text and any(words in text for words in ("timed out", "closed by peer", "reset by peer"))


def _tell(error: str) -> None:
    """Print an error once, and hand it to the launcher, whose own long report ends with it."""
    if not _first():
        # mistakes in a recipe meet every process: the first one tells, and the launcher then ends this one
        time.sleep(PATIENCE)
        echo(f"error in process {os.environ['RANK']}: {error}", err=True)
    else:
        echo(f"error: {error}", err=True)
    if file := os.environ.get("TORCHELASTIC_ERROR_FILE"):
        extra = {"py_callstack": f"error: {error}", "timestamp": str(int(time.time()))}
        Path(file).write_text(
            json.dumps({"message": {"message": error, "extraInfo": extra}}), encoding="utf-8"
        )


def leave(status: int) -> NoReturn:
    """End the process.

    What a reward has left running is not waited for longer than `LEAVING` seconds. One process of several
    ends without the interpreter's teardown: gloo's threads may still be letting go of the last exchange, for
    which they need the interpreter's lock. Whoever waits for them with that lock in hand, as DDP's reducer
    does when it is the group's last owner, waits for ever; an interpreter that goes away under them aborts.
    """
    if left_threads():
        threading.Thread(target=_end_anyway, args=(status,), daemon=True).start()
    torch = sys.modules.get("torch")
    if torch is not None and torch.distributed.is_available() and torch.distributed.is_initialized():
        _leave_group(torch.distributed, torch.distributed.group.WORLD, status)
    sys.exit(status)


def _leave_group(distributed: Any, held: object, status: int) -> NoReturn:
    """Do what an exit does, but for destructors; `held` is the group, which keeps an owner to the end."""
    distributed.destroy_process_group()
    while left_threads():
        time.sleep(0.05)
    atexit._run_exitfuncs()
    _end_now(status)


def _end_now(status: int) -> NoReturn:
    with suppress(OSError, ValueError):  # nobody reads any more, or it is closed
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(status)


def _end_anyway(status: int) -> NoReturn:
    time.sleep(LEAVING)
    names = ", ".join(thread.name for thread in left_threads()[:5])
    echo(f"not waiting for threads that rewards have left running: {names}", err=True)
    _end_now(status)


def quiet_libraries() -> None:
    """Set what the libraries read on import, where the user has not: no noise nobody can act on."""
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("HF_DATASETS_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    # vLLM speaks before it reads its own variable
    logging.getLogger("vllm").setLevel(os.environ["VLLM_LOGGING_LEVEL"])
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"vllm\b")
    # it prints a whole row for every step with one that cannot be scored, which train/unscorable counts
    logging.getLogger("trl.trainer.grpo_trainer").addFilter(_not_about_unscorable)


def _not_about_unscorable(record: logging.LogRecord) -> bool:
    return not str(record.msg).startswith("All reward functions returned None")


def _interrupt(number: int, frame: object) -> NoReturn:
    stop_asked()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a second one ends at once
    raise KeyboardInterrupt


def _ctrl_c(number: int, frame: object) -> NoReturn:
    stop_asked()
    raise KeyboardInterrupt


def _first() -> bool:
    return int(os.environ.get("RANK", "0")) == 0
