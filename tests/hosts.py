"""Two hosts on one machine: network namespaces with addresses of their own. Linux, and root."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

HOSTS = {"tm-a": "10.77.31.1", "tm-b": "10.77.31.2"}
INTERFACE = "veth-tm"


def available() -> bool:
    """Whether this machine lets us make them."""
    if os.geteuid() or not shutil.which("ip"):
        return False
    made = (
        subprocess.run(["ip", "netns", "add", "tm-probe"], capture_output=True, check=False).returncode == 0
    )
    if made:
        subprocess.run(["ip", "netns", "del", "tm-probe"], check=False)
    return made


@contextmanager
def two_hosts() -> Iterator[dict[str, str]]:
    """Make them, joined by a cable; name -> address."""
    _remove()
    try:
        for name in HOSTS:
            _ip("netns", "add", name)
            _ip("-n", name, "link", "set", "lo", "up")
        _ip(
            "link",
            "add",
            INTERFACE,
            "netns",
            "tm-a",
            "type",
            "veth",
            "peer",
            "name",
            INTERFACE,
            "netns",
            "tm-b",
        )
        for name, address in HOSTS.items():
            _ip("-n", name, "addr", "add", f"{address}/24", "dev", INTERFACE)
            _ip("-n", name, "link", "set", INTERFACE, "up")
        yield HOSTS
    finally:
        _remove()


def on(host: str, *command: str) -> list[str]:
    """The command line that runs `command` on a host."""
    return ["ip", "netns", "exec", host, *command]


def unplug(host: str) -> None:
    """Pull the host's cable: nothing is said, nothing arrives any more."""
    _ip("-n", host, "link", "set", INTERFACE, "down")


def plug(host: str) -> None:
    """Put it back."""
    _ip("-n", host, "link", "set", INTERFACE, "up")


def _remove() -> None:
    for name in HOSTS:
        subprocess.run(["ip", "netns", "pids", name], capture_output=True, check=False)
        subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)
