"""Run a script with a small disk of its own, which can fill up or be read-only: a tmpfs in a namespace."""

from __future__ import annotations

import shlex
import subprocess
import sys

import pytest


def on_small_disk(folder, *steps, timeout=540):
    """Run `steps` in turn in one shell in which `folder` is a disk of its own; (output, exit status) of each.

    A step is a command (list of words), or a size such as ``"200k"`` or ``"ro"`` to remount with. Skips the
    test where the kernel does not let a user mount.
    """
    folder.mkdir(parents=True, exist_ok=True)
    there, script = shlex.quote(str(folder)), ["mount -t tmpfs -o size=64k none " + shlex.quote(str(folder))]
    for step in steps:
        if isinstance(step, str):
            option = step if step in ("ro", "rw") else f"size={step}"
            script.append(f"mount -o remount,{option} {there}")
        else:
            script.append(f"{shlex.join(map(str, step))} 2>&1 && echo '=== 0' || echo \"=== $?\"")
    told = subprocess.run(["unshare", "-rm", "true"], capture_output=True, check=False)
    if sys.platform != "linux" or told.returncode:
        pytest.skip("no user namespaces here to mount a small disk in")
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-ec", "\n".join(script)],
        capture_output=True, text=True, timeout=timeout, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    outputs, output = [], []
    for line in done.stdout.splitlines():
        if line.startswith("=== "):
            outputs.append(("\n".join(output), int(line[4:])))
            output = []
        else:
            output.append(line)
    return outputs
