"""Whole expert iteration runs on a tiny model: what they write, how they go on after a kill, odd cases."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from recording import RecordingLLM, recording_sampler

from trlmath.errors import DataError, EngineError, RecipeError, TrainingError
from trlmath.evaluation import run as evaluation_run
from trlmath.recipe import parse_recipe
from trlmath.training import expert_iteration_run, iteration_state, roll_out
from trlmath.training.expert_iteration_run import ExpertIterationRun
from trlmath.training.health import CHECKS
from trlmath.training.iterated_sft import IteratedSFTTrainer
from trlmath.training.sampled import SampledSoFar

REWARD = """
from trlmath import Grade

def vowels(completions, **kwargs):
    right = [float(sum(map(text.count, "aeiou")) >= LEAST) for text in completions]
    return [Grade(value, {"both": value}) for value in right]
"""


class Killed(BaseException):
    """Stands for SIGKILL: nothing catches it."""


def builder(tiny_dir, tmp_path):
    """Return what builds a small recipe; keyword arguments replace its sections."""

    def build(folder="run", least=1, **sections):
        (tmp_path / "reward.py").write_text(REWARD.replace("LEAST", str(least)), encoding="utf-8")
        (tmp_path / "plain.prompt").write_text("Q: {question} A:", encoding="utf-8")
        rows = "".join(json.dumps({"question": f"{a} + {a}?", "answer": str(2 * a)}) + "\n" for a in range(8))
        (tmp_path / "rows.jsonl").write_text(rows, encoding="utf-8")
        return parse_recipe(
            {
                "model": {"path": str(tiny_dir)},
                "data": {
                    "train": str(tmp_path / "rows.jsonl"),
                    "eval": str(tmp_path / "rows.jsonl"),
                    "prompt": str(tmp_path / "plain.prompt"),
                },
                "expert_iteration": {
                    "iterations": 2,
                    "problems_per_iteration": 4,
                    "temperatures": [1.0, 1.1],
                    "optimizer": "carried",
                },
                "sampling": {"engine": "transformers", "min_tokens": 4, "max_tokens": 10, "stop": []},
                "rollout": {"prompts_per_step": 2, "group_size": 3},
                "rewards": [f"{tmp_path / 'reward.py'}:vowels"],
                "filters": [
                    {
                        "name": "rising_threshold",
                        "options": {"score": "reward", "start": 1, "step": 0, "end": 1},
                    },
                    {"name": "per_problem", "options": {"max": 2}},
                    {"name": "elite", "options": {"size": 9, "score": "confidence"}},
                ],
                "batch": {"size": 4},
                "trainer": {"learning_rate": 1e-3, "optim": "adamw_torch", "lr_scheduler_type": "linear"},
                "evaluation": {"limit": 6, "chunk": 3, "settings": [{"name": "sampled"}]},
                "run": {"dir": str(tmp_path / folder)},
                **sections,
            }
        )

    return build


@pytest.fixture
def recipe(tiny_dir, tmp_path):
    """Build a small recipe in a folder of the test's own."""
    return builder(tiny_dir, tmp_path)


def run(recipe):
    """What recipes/expert_iteration.py does."""
    with ExpertIterationRun(recipe) as expert:
        expert.evaluate("before")
        for iteration in expert.iterations():
            traces = expert.sample(iteration)
            selection = expert.select(iteration, traces)
            expert.sft(iteration, selection)
            expert.evaluate(iteration)
        expert.finish()
    return expert


def lines(directory, name):
    file = directory / name
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def digest(directory):
    """Everything that a run leaves and that no clock has touched."""
    names = [
        "checkpoints/final/model.safetensors",
        "traces.jsonl",
        "filters.jsonl",
        "evaluation/samples.jsonl",
    ]
    hashes = {name: hashlib.sha256((directory / name).read_bytes()).hexdigest() for name in names}
    rows = lines(directory, "metrics.jsonl")
    told = [{k: v for k, v in row.items() if not k.startswith(("time/", "memory/"))} for row in rows]
    return hashes, told


@pytest.fixture(scope="module")
def straight(tiny_dir, tmp_path_factory):
    """An uninterrupted run: its recipe and its directory."""
    made = builder(tiny_dir, tmp_path_factory.mktemp("straight"))()
    return made, run(made).directory


def test_a_run_leaves_its_lineage_metrics_and_model(straight):
    made, directory = straight
    traces = lines(directory, "traces.jsonl")
    assert {row["trained_in"] for row in traces} == {0, 1}
    assert any(row["iteration"] == 0 for row in traces if row["trained_in"] == 1), (
        "no elite was trained again"
    )
    assert all(row["score"] == 1.0 and row["weights_version"] == row["iteration"] for row in traces)
    per_iteration = [[row for row in traces if row["trained_in"] == i] for i in range(2)]
    assert len(per_iteration[1]) <= 9
    assert {row["temperature"] for row in traces if row["iteration"] == 1} == {1.1}

    rows = lines(directory, "metrics.jsonl")
    for name in ("train/kept_share", "train/pool_size", "train/sampled_entropy", "train/both", "time/sft"):
        assert len([row for row in rows if name in row]) == 2, name
    assert [row["train/pool_size"] for row in rows if "train/pool_size" in row] == list(
        map(len, per_iteration)
    )
    steps = [row["step"] for row in rows if "train/loss" in row]
    assert steps == list(range(1, len(steps) + 1))
    assert [row["step"] for row in rows if "eval/both" in row][0] == 0
    assert len([row for row in rows if "eval/entropy" in row]) == 3
    manifest = json.loads((directory / "manifest.json").read_text())
    assert (manifest["status"], manifest["iterations"], manifest["summary"]["steps"]) == (
        "finished",
        2,
        steps[-1],
    )
    assert manifest["summary"]["before"] != manifest["summary"]["after"]
    ledger = lines(directory, "filters.jsonl")
    assert {"iteration", "filter", "reason", "index"} <= set(ledger[0])
    assert not (directory / "state").exists()
    assert sorted(file.name for file in (directory / "rollouts").iterdir()) == [
        "iteration-000.parquet",
        "iteration-001.parquet",
    ]
    with pytest.raises(RecipeError, match="already holds a run"):
        run(made)


def after(calls, function):
    """`function`, killed after it was called so often."""
    left = [calls]

    def wrapped(*arguments, **named):
        answer = function(*arguments, **named)
        left[0] -= 1
        if left[0] == 0:
            raise Killed
        return answer

    return wrapped


@pytest.mark.parametrize(
    ("where", "name", "calls", "phase"),
    [
        (evaluation_run, "append_samples", 1, (0, "sample")),  # in the middle of the evaluation before
        (expert_iteration_run, "roll_out", 2, (1, "sample")),  # sampled, not kept
        (iteration_state, "save_progress", 6, (1, "train")),  # start, before, 3 of iteration 0, sampled
        (IteratedSFTTrainer, "training_step", 3, (1, "train")),
        (iteration_state, "save_progress", 7, (1, "evaluate")),
        (evaluation_run, "append_samples", 5, (1, "evaluate")),
        (iteration_state, "save_progress", 8, (2, "sample")),  # all done, not finished
    ],
)
def test_a_killed_run_goes_on_and_ends_bit_identical(
    recipe, straight, monkeypatch, where, name, calls, phase
):
    with monkeypatch.context() as patch:
        patch.setattr(where, name, after(calls, getattr(where, name)))
        with pytest.raises(Killed):
            run(recipe())
    continued = run(recipe())
    manifest = json.loads((continued.directory / "manifest.json").read_text())
    [resumed] = manifest["resumed"]
    assert (resumed["iteration"], resumed["phase"]) == phase
    assert digest(continued.directory) == digest(straight[1])


def test_a_kill_in_sampling_costs_one_chunk(recipe, straight, monkeypatch):
    drawn = []

    def chunk(sampler, data, rows, settings, n):
        drawn.append(settings.seed)
        return sample(sampler, data, rows, settings, n)

    sample = roll_out._chunk
    monkeypatch.setattr(roll_out, "_chunk", chunk)
    with monkeypatch.context() as patch:
        patch.setattr(SampledSoFar, "add", after(2, SampledSoFar.add))
        with pytest.raises(Killed):
            run(recipe())
    (kept,) = (Path(recipe().run.dir) / "state").glob("*-sampled.jsonl")
    with kept.open("r+b") as file:  # the second one was cut
        file.truncate(kept.stat().st_size - 9)
    first = drawn[:2]
    drawn.clear()
    continued = run(recipe())
    assert drawn[0] == first[1]
    assert first[0] not in drawn
    assert digest(continued.directory) == digest(straight[1])


def test_an_adapter_goes_on_too(recipe, monkeypatch):
    lora = {"path": recipe().model.path, "lora": {"r": 2, "target_modules": ["q_proj", "v_proj"]}}

    def adapter(directory):
        return (directory / "checkpoints" / "final" / "adapter_model.safetensors").read_bytes()

    expected = adapter(run(recipe("straight", model=lora)).directory)
    with monkeypatch.context() as patch:
        patch.setattr(iteration_state, "save_progress", after(5, iteration_state.save_progress))
        with pytest.raises(Killed):
            run(recipe(model=lora))
    assert adapter(run(recipe(model=lora)).directory) == expected


def test_a_run_of_another_recipe_is_not_gone_on_with(recipe, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(expert_iteration_run, "roll_out", after(1, expert_iteration_run.roll_out))
        with pytest.raises(Killed):
            run(recipe())
    with pytest.raises(RecipeError, match=r"another recipe: batch.size was 4, is 2\. .*Nothing was changed"):
        run(recipe(batch={"size": 2}))
    with pytest.raises(RecipeError, match="already holds a run"):
        run(recipe(run={"dir": recipe().run.dir, "resume": False}))


def test_auto_finds_the_newest_unfinished_run(recipe, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    auto = {"run": {"resume": "auto"}}
    with monkeypatch.context() as patch:
        patch.setattr(expert_iteration_run, "roll_out", after(1, expert_iteration_run.roll_out))
        with pytest.raises(Killed):
            run(recipe(**auto))
    with ExpertIterationRun(recipe(**auto)) as expert:
        assert expert.progress.evaluated.keys() == {"before"}
        with ExpertIterationRun(recipe(**auto)) as another:  # the one that runs is passed over
            assert another.directory != expert.directory
            assert another.progress.evaluated == {}
    with ExpertIterationRun(recipe()) as expert:  # without auto: a new one
        assert expert.progress.evaluated == {}


def test_nothing_kept_raises_the_temperature_and_trains_nothing(recipe, tiny_dir):
    expert = run(recipe(least=1000))
    rows = lines(expert.directory, "metrics.jsonl")
    assert [row["train/temperature"] for row in rows if "train/temperature" in row] == pytest.approx(
        [1.0, 1.2]
    )
    assert [row["train/kept_share"] for row in rows if "train/kept_share" in row] == [0.0, 0.0]
    assert not [row for row in rows if "train/loss" in row]
    assert len([row for row in rows if "eval/both" in row]) == 1  # the weights have not changed
    assert (expert.progress.raised, expert.progress.weights_version) == (2, 0)


def test_nothing_kept_can_end_the_run(recipe):
    section = {"iterations": 5, "problems_per_iteration": 4, "nothing_kept": "stop"}
    expert = run(recipe(least=1000, expert_iteration=section))
    manifest = json.loads((expert.directory / "manifest.json").read_text())
    assert (manifest["status"], manifest["stopped"], manifest["iterations"]) == (
        "finished",
        "nothing kept",
        1,
    )


def test_everything_kept(recipe):
    expert = run(recipe(filters=[], expert_iteration={"iterations": 1, "problems_per_iteration": 8}))
    rows = lines(expert.directory, "metrics.jsonl")
    assert [row["train/kept_share"] for row in rows if "train/kept_share" in row] == [1.0]
    assert len(lines(expert.directory, "traces.jsonl")) == 8 * 3


def test_early_stop_and_averaging_count_iterations(recipe):
    section = {"iterations": 4, "problems_per_iteration": 2}
    stop = {"metric": "eval/mean_length", "patience": 1, "min_delta": 1000}
    expert = run(recipe(expert_iteration=section, early_stop=stop, averaging={"kind": "last", "last": 2}))
    assert (expert.progress.iteration, expert.progress.stopped) == (1, "no improvement")


def test_too_few_problems_are_told(recipe, tmp_path):
    with pytest.raises(DataError, match=r"8 training problems, and an iteration draws 9"):
        ExpertIterationRun(recipe(expert_iteration={"problems_per_iteration": 9}))
    (tmp_path / "none.jsonl").write_text("", encoding="utf-8")
    built = recipe()
    data = built.data.model_copy(update={"train": replace_name(built.data.train, tmp_path / "none.jsonl")})
    with pytest.raises(DataError):
        ExpertIterationRun(built.model_copy(update={"data": data}))
    assert not (tmp_path / "run").exists()


def replace_name(ref, path):
    return ref.model_copy(update={"name": str(path)})


# -- an engine with weights of its own ------------------------------------------------------------------


@pytest.fixture
def recording(monkeypatch, tiny_dir):
    """Let the run build a `VllmSampler` around a `RecordingLLM`; returns the list of events."""
    from transformers import AutoModelForCausalLM

    from trlmath.sampling.transformers_engine import TransformersSampler

    events = []

    def factory(recipe, engine, context, **more):
        def build(trainer):
            reference = TransformersSampler(trainer.model, trainer.processing_class)
            own = TransformersSampler(
                AutoModelForCausalLM.from_pretrained(tiny_dir), trainer.processing_class
            )
            return recording_sampler(monkeypatch, own, events), reference

        return build

    monkeypatch.setattr(expert_iteration_run, "sampler_factory", factory)
    train = IteratedSFTTrainer.train_on
    monkeypatch.setattr(
        IteratedSFTTrainer, "train_on", lambda *a, **k: (events.append("sft"), train(*a, **k))[1]
    )
    return events


def test_the_engine_sleeps_while_sft_runs_and_wakes_with_the_new_weights(recipe, recording):
    section = {"iterations": 1, "problems_per_iteration": 2}
    expert = run(recipe(expert_iteration=section, evaluation={"limit": 2, "settings": [{"name": "sampled"}]}))
    loaded = ["wake weights", "load", "reset", "wake kv_cache", "score", "generate", "sleep"]
    sampled = ["wake weights+kv_cache", "generate", "sleep"]
    #                   before     sample          after: the new weights, proven on a probe
    assert recording == ["sleep", *loaded, *sampled, "sft", *loaded, "shutdown"]
    rows = lines(expert.directory, "metrics.jsonl")
    assert [row["engine/freshness"] for row in rows if "engine/freshness" in row] == [0.0, 0.0]
    assert [r["engine/weights_version"] for r in rows if "time/sync" in r] == [0, 1]
    assert expert.progress.weights_version == 1


def test_an_engine_with_old_weights_ends_the_run(recipe, recording, monkeypatch):
    load, times = RecordingLLM.load_weights, []

    def once(self, weights):
        if "sft" not in recording:
            load(self, weights)
        times.append(1)

    monkeypatch.setattr(RecordingLLM, "load_weights", once)
    with pytest.raises(EngineError, match="does not generate from the trainer's weights"):
        run(
            recipe(
                expert_iteration={"iterations": 1, "problems_per_iteration": 4},
                trainer={"learning_rate": 0.05},
            )
        )


def test_checks_end_an_expert_iteration_with_its_rollouts_on_disk(recipe, tmp_path):
    # four tokens of at most four: every completion is cut off
    cut = {"engine": "transformers", "min_tokens": 4, "max_tokens": 4, "stop": []}
    with pytest.raises(
        TrainingError, match=r"by the check all_truncated: .*iteration-000\.parquet"
    ) as caught:
        run(recipe(sampling=cut, checks={"all_truncated": "stop"}))
    assert "Raise sampling.max_tokens" in str(caught.value)
    assert (tmp_path / "run" / "rollouts" / "iteration-000.parquet").is_file()
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert (manifest["status"], manifest["step"]) == ("failed", 0)


def test_a_loss_that_is_no_number_ends_its_sft_and_healthy_iterations_pass(recipe, tmp_path):
    every = dict.fromkeys(CHECKS, "stop") | {"window": 2}
    ends = {"engine": "transformers", "max_tokens": 24, "stop": list("aeiourstlnh")}
    assert run(recipe(checks=every, sampling=ends)).progress.iteration == 2
    hot = {"learning_rate": 1e30, "optim": "sgd", "max_grad_norm": 1e30}
    with pytest.raises(TrainingError, match=r"by the check nan: train/.* is not a number"):
        run(recipe("hot", trainer=hot, batch={"size": 1}))
