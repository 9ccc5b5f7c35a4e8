"""The report page: complete, self-contained, small, quick, and safe against what models write."""

from __future__ import annotations

import base64
import hashlib
import json
import random
import re
import time

import pytest
from chrome import Chrome, find_chrome
from click.testing import CliRunner
from run_files import HOSTILE, evaluation, make_run

from trlmath.cli import cli
from trlmath.errors import DataError, PluginError
from trlmath.reports import page
from trlmath.reports.page import embedded, render, write_report
from trlmath.reports.page_charts import thinned
from trlmath.runs.read import StoredRun, read_run

browser = pytest.mark.skipif(find_chrome() is None, reason="no Chromium on this machine")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    return [
        make_run(folder / "first", seed=0, hostile=HOSTILE),
        make_run(folder / "second", seed=1, advantage={"name": "group", "options": {"std": False}}),
    ]


def data_of(text):
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    return json.loads(found[1])


def test_the_page_holds_what_the_run_has(runs):
    text = render([read_run(runs[1])])
    told = data_of(text)
    titles = [chart["title"] for chart in told["charts"]]
    for title in ("Reward", "Answer rate", "Format rate", "Entropy", "Length by correctness", "Categories"):
        assert title in titles
    assert "Memory" in titles
    assert "Right in format and answer" not in titles  # the same line as the reward
    points = next(chart for chart in told["charts"] if chart["title"] == "Answer rate")["points"]
    assert points[0]["x"] == [0, 12]
    assert points[0]["low"][0] < points[0]["y"][0] < points[0]["high"][0]
    assert "advantage.options.std" in text
    assert "no spread" in text
    assert len(told["rollouts"]) == 12 * 4 * 4 + 2 * 50


def test_before_and_after_are_paired(runs):
    text = render([read_run(runs[0])])
    assert re.search(r"\+\d+\.\d points <span>\[\+", text)


def test_nothing_hostile_is_markup(runs):
    text = render([read_run(path) for path in runs])
    assert "<script>window.pwned" not in text
    assert "<img" not in text
    assert "<svg" not in text
    assert "{{ 7 * 7 }}" in text  # no template runs in what is shown
    for character in "\x1b\u202e\u2028":
        assert character not in text
    assert any(r"\x1b[31mred" in row["completion"] for row in data_of(text)["rollouts"])
    assert text.count("<script") == 3
    assert text.count("</script>") == 3


def test_nothing_is_loaded_from_elsewhere(runs):
    text = render([read_run(runs[1])])
    head = text[: text.index("<style>")]
    assert not re.findall(r'(?:src|href)="(?!#|data:)', text.split('<script type="application/json"')[0])
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', head)[1].replace("&#39;", "'")
    assert "default-src 'none'" in policy
    scripts = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    hashes = [base64.b64encode(hashlib.sha256(s.encode()).digest()).decode() for s in scripts]
    assert hashes
    assert all(f"'sha256-{value}'" in policy for value in hashes)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "</script>", "<!--", "\u2028", "\ud800"])
def test_embedded_json_ends_no_script(value):
    text = embedded({"a": [value]})
    assert not set("<>&\u2028\ud800") & set(text)
    json.loads(text)


def test_a_run_in_progress_and_one_without_anything(tmp_path):
    run = make_run(tmp_path / "now", steps=2, status="running")
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"step": 3, "train/lo')
    assert "running" in render([read_run(run)])
    empty = tmp_path / "empty"
    empty.mkdir()
    (empty / "manifest.json").write_text("{}")
    text = render([read_run(empty)])
    assert "No training step yet." in text
    assert "No evaluation yet." in text


def test_a_cut_or_just_removed_file_of_rollouts(tmp_path, monkeypatch):
    run = make_run(tmp_path / "run", steps=2)
    first, last = sorted((run / "rollouts").glob("*.parquet"))
    gone = last.with_name("step-000009.parquet")
    monkeypatch.setattr(StoredRun, "rollout_files", lambda self: [last, gone])
    assert "What is" in render([read_run(run)])
    first.write_bytes(first.read_bytes()[:50])
    monkeypatch.undo()
    with pytest.raises(DataError, match=r"step-000000\.parquet cannot be read"):
        render([read_run(run)])


def test_a_plugins_section_is_text(runs, monkeypatch):
    answers = [PluginError("the hook raised"), ["odd"], [("Mine", "<b>bold</b>")]]
    monkeypatch.setattr(page, "ask", lambda hook, run: answers)
    shown = render([read_run(runs[1])])
    assert "<pre>&lt;b&gt;bold&lt;/b&gt;</pre>" in shown
    assert "report_sections must return" in shown
    assert "the hook raised" in shown


def test_rollouts_of_expert_iteration_are_named_by_iteration(tmp_path):
    run = make_run(tmp_path / "run", steps=2)
    for number, file in enumerate(sorted((run / "rollouts").iterdir())):
        file.rename(file.with_name(f"iteration-{number:03d}.parquet"))
    places = [row["at"] for row in data_of(render([read_run(run)]))["rollouts"]]
    assert list(dict.fromkeys(places)) == ["iteration 0", "iteration 1", "before/sampled", "after/sampled"]


def test_phases_are_stacked_and_right_answers_lie_lowest(tmp_path):
    run = make_run(tmp_path / "run", steps=2)
    charts = {chart["title"]: chart for chart in data_of(render([read_run(run)]))["charts"]}
    assert [line["name"] for line in charts["Step time by phase"]["lines"]] == ["generate", "update"]
    names = [line["name"] for line in charts["Categories"]["lines"]]
    assert names == ["both", "answer_only", "format_only", "no_think_end"]


def test_curves_over_tokens_and_time(tmp_path):
    run = make_run(tmp_path / "run", steps=4)
    axes = data_of(render([read_run(run)]))["axes"]
    assert axes["tokens"] == [{"x": [0, 1, 2, 3, 4], "y": [0, 1000, 2000, 3000, 4000]}]
    assert axes["minutes"][0]["y"] == pytest.approx([0, 0.05, 0.1, 0.15, 0.2])


def test_a_long_line_is_averaged():
    steps, values = thinned(list(range(1, 2501)), [float(v) for v in range(1, 2501)], most=1000)
    assert len(steps) == len(values) == 834
    assert (steps[0], values[0]) == (3, 2.0)
    assert (steps[-1], values[-1]) == (2500, 2500.0)
    assert thinned([1, 2], [3.0, 4.0]) == ([1, 2], [3.0, 4.0])


def test_evaluations_in_between_are_not_read(tmp_path):
    run = make_run(tmp_path / "run", steps=2)
    evaluation(run, "step-1", 1, 0.5, random.Random(0), "text")
    reports = (run / "evaluation" / "reports.jsonl").read_text().splitlines()
    order = [reports[0], reports[2], reports[1]]
    (run / "evaluation" / "reports.jsonl").write_text("\n".join(order) + "\n")
    with (run / "evaluation" / "samples.jsonl").open("a") as file:
        file.write('{"setting": "after/sampled", "half')  # a line that is being written
    places = {row["at"] for row in data_of(render([read_run(run)]))["rollouts"]}
    assert places == {1, 2, "before/sampled", "after/sampled"}


def test_two_hundred_steps_fit(tmp_path):
    long = "Let me think about it. " * 60 + "</think> <answer> 4 </answer>"
    run = make_run(tmp_path / "long", steps=200, problems=8, size=8, text=long)
    started = time.perf_counter()
    file = write_report([run])
    seconds = time.perf_counter() - started
    assert file == run / "report.html"
    assert 300_000 < file.stat().st_size < 5_000_000
    steps = {row["at"] for row in data_of(file.read_text())["rollouts"] if isinstance(row["at"], int)}
    assert len(steps) == 40
    assert {1, 200} <= steps
    assert seconds < 20
    if find_chrome():
        with Chrome() as chrome:
            assert chrome.open(file) < 2
            assert chrome.js("document.querySelectorAll('#list article').length") == 15


def test_the_command(runs, tmp_path):
    out = tmp_path / "page.html"
    done = CliRunner().invoke(cli, ["report", *map(str, runs), "--out", str(out), "--title", "Both"])
    assert done.exit_code == 0, done.output
    assert "<title>Both" in out.read_text()
    with pytest.raises(DataError, match="holds no run.*first"):
        read_run(runs[0].parent)
    with pytest.raises(DataError, match="Did you mean 'first'"):
        read_run(runs[0].parent / "fist")


@browser
def test_in_a_browser(runs, tmp_path):
    out = write_report(runs, tmp_path / "page.html")
    with Chrome() as chrome:
        assert chrome.open(out) < 2
        chrome.js("new Promise(done => setTimeout(done, 300))")
        assert chrome.js("document.querySelectorAll('#charts canvas').length") >= 3
        assert chrome.js("typeof window.pwned") == "undefined"
        for axis, last in (("tokens", 12_000), ("step", 12)):
            chrome.js(f"over.value = '{axis}'; over.dispatchEvent(new Event('change'))")
            assert chrome.js("drawn[0].plot.data[0].at(-1)") == last
        assert chrome.js("document.querySelectorAll('img, svg').length") == 0
        shown = chrome.js("document.querySelector('#list').innerText")
        assert "<script>window.pwned = 1</script>" in shown
        assert r"\x1b[31m" in shown
        assert chrome.js("document.querySelectorAll('details.think[open]').length") == 0
        every = chrome.js("document.querySelectorAll('#list article').length")
        assert every == 15
        chrome.js(
            "{const s = document.getElementById('by-at'); s.value = '=after/sampled';"
            "s.dispatchEvent(new Event('change'))}"
        )
        chrome.js(
            "{const s = document.getElementById('by-category'); s.value = '=format_only';"
            "s.dispatchEvent(new Event('change'))}"
        )
        badges = chrome.js("[...document.querySelectorAll('#list .badge')].map(b => b.textContent)")
        assert 0 < len(badges) <= 15
        assert set(badges) == {"format_only"}
        chrome.js("document.querySelector('#list .meta button').click()")
        assert chrome.js("document.querySelectorAll('#list article').length") <= 2
        assert "one problem" in chrome.js("document.getElementById('found').textContent")
        assert chrome.console == []
        assert [url for url in chrome.requests if not url.startswith(("file:", "data:"))] == []
        assert len([url for url in chrome.requests if url.startswith("file:")]) == 1


@browser
def test_dark_and_narrow(runs, tmp_path):
    out = write_report(runs[:1], tmp_path / "page.html")
    colours = set()
    for dark in (False, True):
        with Chrome(dark=dark, mobile=True, width=360, height=740) as chrome:
            chrome.open(out)
            colours.add(chrome.js("getComputedStyle(document.body).backgroundColor"))
            assert chrome.js("document.documentElement.scrollWidth") == 360
            assert chrome.console == []
    assert len(colours) == 2
