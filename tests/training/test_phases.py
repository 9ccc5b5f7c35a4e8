"""What a run keeps between phases: whole at any moment, and read back as it was."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest
import torch

from trlmath.errors import DataError
from trlmath.runs.appended import cut_back
from trlmath.runs.directory import RunDirectory
from trlmath.training import tensors
from trlmath.training.phases import Progress, read_lines, read_progress, save_progress, write_lines


@pytest.fixture
def files(tmp_path):
    return RunDirectory(tmp_path / "run")


def text(value):
    return lambda path: path.write_text(value, encoding="utf-8")


def test_progress_names_whole_files_and_lets_old_ones_go(files):
    progress = Progress()
    assert read_progress(files.path) == (None, [])
    save_progress(files, progress, {"weights": ("0-w", text("zero")), "traces": ("0-t", text("t"))}, ())
    progress.iteration, progress.phase = 1, "evaluate"
    progress.evaluated["before"] = {"eval/both": 0.25}
    del progress.files["traces"]
    save_progress(files, progress, {"weights": ("1-w", text("one"))}, ())
    state = files.path / "state"
    # those of the progress before, in case a new one is damaged
    assert sorted(file.name for file in state.iterdir()) == [
        "0-t",
        "0-w",
        "1-w",
        "earlier.json",
        "progress.json",
    ]
    assert read_progress(files.path) == (progress, [])
    progress.iteration = 2
    save_progress(files, progress, {"weights": ("2-w", text("two"))}, ())
    assert sorted(file.name for file in state.iterdir()) == ["1-w", "2-w", "earlier.json", "progress.json"]
    (state / "1-w").unlink()
    assert read_progress(files.path) == (progress, [])
    assert (state / "2-w").read_text() == "two"


def test_a_kill_while_a_file_is_written_leaves_the_last_phase(files):
    progress = Progress()
    save_progress(files, progress, {"weights": ("0-w", text("zero"))}, ())

    def killed(path):
        path.write_text("ha", encoding="utf-8")
        raise KeyboardInterrupt

    progress.phase = "evaluate"
    with pytest.raises(KeyboardInterrupt):
        save_progress(files, progress, {"weights": ("1-w", killed)}, ())
    again, _ = read_progress(files.path)
    assert (again.phase, again.files) == ("sample", {"weights": "0-w"})


def test_rows_of_an_interrupted_phase_are_cut_off(files):
    files.append("metrics.jsonl", {"step": 1})
    progress = Progress()
    save_progress(files, progress, {}, ("metrics.jsonl", "traces.jsonl"))
    files.append("metrics.jsonl", {"step": 2})
    files.append("traces.jsonl", {"row": 1})
    cut_back(files.path, progress.sizes)
    assert (files.path / "metrics.jsonl").read_text() == '{"step": 1}\n'
    assert (files.path / "traces.jsonl").read_text() == ""
    (files.path / "metrics.jsonl").write_text("", encoding="utf-8")
    with pytest.raises(DataError, match=r"metrics.jsonl has lost rows"):
        cut_back(files.path, progress.sizes)


def test_what_cannot_be_read_is_told(files):
    save_progress(files, Progress(), {"weights": ("0-w", text("zero"))}, ())
    (files.path / "state" / "0-w").unlink()
    with pytest.raises(DataError, match="so the run cannot go on: state/progress.json .* 0-w is missing"):
        read_progress(files.path)
    (files.path / "state" / "progress.json").write_text(json.dumps({"iteraton": 1}), encoding="utf-8")
    with pytest.raises(DataError, match="cannot be read"):
        read_progress(files.path)


def cut(path):
    path.write_bytes(path.read_bytes()[:-2])


def flip(path):
    held = bytearray(path.read_bytes())
    held[len(held) // 2] ^= 1
    path.write_bytes(held)


@pytest.mark.parametrize("name", ["1-w", "1-f", "progress.json"])
@pytest.mark.parametrize("spoil", [cut, flip, Path.unlink, lambda path: path.write_bytes(b"")])
def test_damage_is_met_by_the_progress_before_the_last_weights(files, name, spoil):
    progress = Progress()
    save_progress(files, progress, {"weights": ("0-w", text("zero")), "filters": ("0-f", text("f"))}, ())
    progress.iteration, progress.phase = 1, "train"
    save_progress(files, progress, {"traces": ("1-t", text("t"))}, ())
    before = Progress(**asdict(progress))
    progress.phase = "evaluate"
    del progress.files["traces"]
    save_progress(files, progress, {"weights": ("1-w", text("one")), "filters": ("1-f", text("g"))}, ())
    save_progress(files, progress, {}, ())
    state = files.path / "state"
    spoil(state / name)
    again, passed = read_progress(files.path)
    assert len(passed) == 1
    assert passed[0].startswith("state/progress.json is passed over")
    assert again == before
    # going on puts what is whole in its place, and what is damaged is written anew
    save_progress(files, again, {}, ())
    assert read_progress(files.path) == (before, [])
    save_progress(files, again, {"weights": ("1-w", text("one"))}, ())
    assert read_progress(files.path) == (again, [])


def test_lines_hold_half_a_character(tmp_path):
    rows = [{"text": "\ud83d half"}, {"text": "ü\n"}]
    write_lines(tmp_path / "rows", rows)
    assert read_lines(tmp_path / "rows") == rows


# -- tensors --------------------------------------------------------------------------------------------


def network():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2))


def step(model, optimizer):
    optimizer.zero_grad()
    torch.manual_seed(1)
    model(torch.randn(5, 3)).square().sum().backward()
    optimizer.step()


@pytest.mark.parametrize("kind", [torch.optim.AdamW, torch.optim.SGD, torch.optim.Adafactor])
def test_weights_and_optimizer_go_on_bit_for_bit(tmp_path, kind):
    straight, optimizer = network(), None
    optimizer = kind(straight.parameters(), lr=0.01)
    step(straight, optimizer)
    tensors.write_weights(straight, tmp_path / "w")
    tensors.write_optimizer(optimizer, tmp_path / "o")
    step(straight, optimizer)

    again = network()
    tensors.read_weights(again, tmp_path / "w")
    other = kind(again.parameters(), lr=0.5)  # the rate is the file's
    tensors.read_optimizer(other, tmp_path / "o")
    step(again, other)
    for one, two in zip(straight.parameters(), again.parameters(), strict=True):
        assert torch.equal(one, two)


def test_only_trained_weights_are_kept_and_another_model_is_refused(tmp_path):
    model = network()
    model[0].requires_grad_(False)
    tensors.write_weights(model, tmp_path / "w")
    assert set(tensors.trained_weights(model)) == {"1.weight", "1.bias"}
    with pytest.raises(DataError, match="another model: 0.bias"):
        tensors.read_weights(network(), tmp_path / "w")
    other = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 3))
    other[0].requires_grad_(False)
    with pytest.raises(DataError, match="another model: 1.bias"):
        tensors.read_weights(other, tmp_path / "w")
    optimizer = torch.optim.AdamW(model[1].parameters())
    step(model, optimizer)
    tensors.write_optimizer(optimizer, tmp_path / "o")
    with pytest.raises(DataError, match="another optimizer"):
        tensors.read_optimizer(torch.optim.AdamW(network().parameters()), tmp_path / "o")
