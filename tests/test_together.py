"""An error of one process is raised on every one, with its words; nobody is left waiting."""

from __future__ import annotations

import threading

import pytest

from trlmath.errors import DataError, PluginError
from trlmath.together import agree, from_main, gathered


def processes(work):
    """Run `work(process, gather)` in two threads that gather as two processes would; what each ended with."""
    barrier, given, ended = threading.Barrier(2), {}, {}

    def one(process):
        def gather(items):
            given[process] = items
            barrier.wait(5)
            return [*given[0], *given[1]]

        try:
            ended[process] = work(process, gather)
        except Exception as error:  # noqa: BLE001  (what is looked at)
            ended[process] = error

    threads = [threading.Thread(target=one, args=(process,)) for process in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    return ended[0], ended[1]


def test_what_each_makes_comes_in_their_order():
    assert processes(lambda p, gather: gathered(lambda: [p, p + 10], gather, p)) == ([0, 10, 1, 11],) * 2


@pytest.mark.parametrize("failing", [0, 1])
def test_an_error_of_one_is_everyones(failing):
    def work(process, gather):
        def make():
            if process == failing:
                raise PluginError("reward 'mine' raised")
            return []

        return gathered(make, gather, process)

    ended = processes(work)
    assert [type(error) for error in ended] == [PluginError, PluginError]
    assert str(ended[failing]) == "reward 'mine' raised"
    assert str(ended[1 - failing]) == f"process {failing}: reward 'mine' raised"


def test_agreeing_on_nothing_and_on_different_errors():
    assert processes(lambda p, gather: agree(None, gather, p)) == (None, None)
    errors = [DataError("here"), PluginError("there")]
    assert processes(lambda p, gather: agree(errors[p], gather, p)) == tuple(errors)


@pytest.mark.parametrize("error", [None, DataError("no checkpoint is whole")])
def test_what_the_main_process_finds_everyone_does(error, monkeypatch):
    told, came = [], threading.Barrier(2)

    def broadcast(items):
        if items[0] is not None:
            told.extend(items)
        came.wait(5)
        items[:] = told

    monkeypatch.setattr("trlmath.together.broadcast_object_list", broadcast)

    def work():
        if error is not None:
            raise error
        return ["found"]

    assert processes(lambda p, _: from_main(p == 0, work)) == (error or ["found"],) * 2
