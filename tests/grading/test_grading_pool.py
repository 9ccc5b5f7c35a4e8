"""The workers: limits that hold, one bad answer that harms no other, and no process left behind."""

import importlib.util
import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from trlmath.errors import GradingError
from trlmath.grading import grade_answer, grade_answers, grade_response, pool

SUM = (r"\sum_{k=1}^{10} k", "55")
ENDLESS = (r"\prod_{k=1}^{10^{9}} (1+\frac{1}{k^2})", "3")

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")


@pytest.fixture(scope="module", autouse=True)
def _short_limit() -> Iterator[None]:
    """A limit of 2.5 s for this module's pool."""
    pool.shutdown()
    old, pool.TIMEOUT = pool.TIMEOUT, 2.5
    yield
    pool.TIMEOUT = old
    pool.shutdown()


def _workers() -> list[int]:
    return [process.pid for process in multiprocessing.active_children() if process.pid is not None]


def _alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def _gone(pids: list[int], seconds: float = 10.0) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if not any(_alive(pid) for pid in pids):
            return True
        time.sleep(0.05)
    return False


def test_the_cheap_road_starts_no_process() -> None:
    code = """
        import multiprocessing, sys
        from trlmath.grading import grade_answers
        verdicts = grade_answers(["0.5", "x+1", "5 or 6"], ["1/2", "1+x", "5"])
        assert [v.equal for v in verdicts] == [True, True, False]
        assert not multiprocessing.active_children()
        heavy = {"sympy", "math_verify", "latex2sympy2_extended", "pebble", "torch"} & set(sys.modules)
        assert not heavy, heavy
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True, timeout=60)


def test_sums_are_decided_by_a_worker() -> None:
    assert grade_answer(*SUM).equal is True
    assert grade_answer(SUM[0], "56").equal is False
    assert grade_answer(r"\sum_{k=1}^{n} k", r"\frac{n(n+1)}{2}").equal is True


def test_deep_nests_are_read_by_a_worker() -> None:
    assert grade_answer("{" * 1000 + "5" + "}" * 1000, "5").equal is True
    assert grade_answer(r"\sqrt{" * 300 + "1" + "}" * 300, "1").equal is True
    assert grade_answer(r"\frac{1}{" * 220 + "2" + "}" * 220, "2").equal is True
    assert grade_answer("(" * 9000 + "5" + ")" * 9000, "6").equal is not True


def test_an_endless_answer_is_a_timeout_and_harms_no_other() -> None:
    start = time.monotonic()
    pairs = [("1", "1"), ENDLESS, SUM, (r"\sum_{k=1}^{4} k", "10"), ("2", "3"), (r"\sum_{k=1}^{4} k", "11")]
    verdicts = grade_answers([p for p, _ in pairs], [g for _, g in pairs])
    assert [v.equal for v in verdicts] == [True, None, True, True, False, False]
    assert verdicts[1].rule == "timeout"
    assert time.monotonic() - start < 30
    assert grade_answer(r"\sum_{k=1}^{5} k", "15").equal is True  # the killed worker was replaced


def test_a_timeout_is_its_own_category() -> None:
    grade = grade_response(f" </think> <answer>{ENDLESS[0]}</answer>", ENDLESS[1])
    assert (grade.category, grade.reward, grade.format, grade.answer) == ("grader_timeout", None, 1, None)


def test_c_code_that_holds_the_interpreter_is_killed_too() -> None:
    future = pool.pool()._pool.schedule(pow, args=(7, 10**9), timeout=1.0)
    start = time.monotonic()
    with pytest.raises(TimeoutError):
        future.result(timeout=30)
    assert time.monotonic() - start < 8


@pytest.mark.slow
def test_the_limit_counts_from_the_start_of_execution() -> None:
    # Eight sleeps of 0.8 s on two workers: the last waits over 2 s in the queue, beyond the limit of 1.5 s.
    futures = [pool.pool()._pool.schedule(time.sleep, args=(0.8,), timeout=1.5) for _ in range(8)]
    assert [future.result(timeout=60) for future in futures] == [None] * 8


def test_memory_is_limited() -> None:
    future = pool.pool()._pool.schedule(bytearray, args=(64 * 1024**3,), timeout=5.0)
    with pytest.raises(MemoryError):
        future.result(timeout=30)


def test_a_worker_that_dies_is_replaced() -> None:
    assert grade_answer(r"\sum_{k=1}^{6} k", "21").equal is True
    for pid in _workers():
        os.kill(pid, signal.SIGKILL)
    time.sleep(0.5)
    assert grade_answer(r"\sum_{k=1}^{7} k", "28").equal is True


def test_from_threads() -> None:
    results: dict[int, bool | None] = {}

    def work(number: int) -> None:
        total = number * (number + 1) // 2
        results[number] = grade_answer(rf"\sum_{{k=1}}^{{{number}}} k", str(total)).equal
        results[-number] = grade_answer(rf"\sqrt{{{number}}}+\sqrt{{2}}", rf"\sqrt2+\sqrt{{{number}}}").equal

    threads = [threading.Thread(target=work, args=(number,)) for number in range(20, 28)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 16
    assert set(results.values()) == {True}


def _in_child(number: int) -> bool | None:
    return grade_answer(rf"\sum_{{k=1}}^{{{number}}} k", str(number * (number + 1) // 2)).equal


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_from_daemonic_children(method: str) -> None:
    assert grade_answer(*SUM).equal is True  # a forked child inherits a pool that is not its own
    before = _workers()
    context = multiprocessing.get_context(method)
    with context.Pool(1) as children:
        assert children.map(_in_child, [31, 32]) == [True, True]
    assert all(_alive(pid) for pid in before)
    assert grade_answer(r"\sum_{k=1}^{9} k", "45").equal is True


@pytest.mark.slow
def test_a_bare_fork_leaves_the_parents_workers_alone() -> None:
    assert grade_answer(*SUM).equal is True
    before = _workers()
    code = f"""
        import os, sys, multiprocessing
        from trlmath.grading import grade_answer
        assert grade_answer(*{SUM!r}).equal
        before = [p.pid for p in multiprocessing.active_children()]
        child = os.fork()
        if child == 0:
            assert grade_answer(r"\\sum_{{k=1}}^{{8}} k", "36").equal
            sys.exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert [p.pid for p in multiprocessing.active_children()] == before
        assert grade_answer(r"\\sum_{{k=1}}^{{7}} k", "28").equal
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True, timeout=120)
    assert _workers() == before


@pytest.mark.slow
@pytest.mark.parametrize("end", ["normal", "SIGKILL", "SIGTERM"])
def test_no_process_outlives_its_parent(end: str) -> None:
    code = f"""
        import multiprocessing, sys, time
        from trlmath.grading import grade_answer, pool
        assert grade_answer(*{SUM!r}).equal
        p = pool.pool()
        p._pool.schedule(pow, args=(7, 10**9))  # a worker stuck in C code
        time.sleep(0.5)
        print(*(process.pid for process in multiprocessing.active_children()), flush=True)
        {"sys.exit()" if end == "normal" else "time.sleep(60)"}
    """
    parent = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    workers = [int(word) for word in parent.stdout.readline().split()]
    assert len(workers) == 2
    if end != "normal":
        parent.send_signal(getattr(signal, end))
    parent.wait(timeout=30)
    assert _gone(workers)


def test_the_main_module_is_not_run_again_in_workers(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "print('main runs', flush=True)\n"
        "from trlmath.grading import grade_answer\n"
        f"assert grade_answer(*{SUM!r}).equal\n"  # no `if __name__` guard
    )
    out = subprocess.run(
        [sys.executable, str(script)], check=True, timeout=60, capture_output=True, text=True
    )
    assert out.stdout.count("main runs") == 1


@pytest.mark.slow
def test_a_pool_that_grades_wrongly_refuses_to_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "PROOF", (("0.5", r"\frac13", True), ("0.83", r"\frac56", False)))
    with pytest.raises(GradingError, match="grade wrongly"):
        pool.Pool(1)


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("accelerate") is None, reason="needs accelerate")
def test_from_the_ranks_of_accelerate_launch(tmp_path: Path) -> None:
    script = tmp_path / "rank.py"
    script.write_text(
        "from accelerate import Accelerator\n"
        "from trlmath.grading import grade_answer\n"
        "accelerator = Accelerator(cpu=True)\n"
        f"verdict = grade_answer(*{SUM!r}).equal\n"
        "open(f'{__file__}.{accelerator.process_index}', 'w').write(str(verdict))\n"
        "accelerator.wait_for_everyone()\n"
        "accelerator.end_training()\n"
    )
    launch = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2", str(script)]
    subprocess.run(
        launch, check=True, timeout=200, capture_output=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    assert [Path(f"{script}.{rank}").read_text() for rank in (0, 1)] == ["True", "True"]
