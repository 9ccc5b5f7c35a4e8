"""The SFT trainer against TRL's own: the same gradient however a step is cut, packed or spread."""

from __future__ import annotations

import inspect
import random
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from datasets import Dataset
from transformers import AttentionInterface, AutoModelForCausalLM, AutoTokenizer, Trainer
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from trl import SFTConfig, SFTTrainer

from trlmath.data.examples import Example
from trlmath.errors import RecipeError
from trlmath.recipe.schema import BatchSection
from trlmath.training.packing import leak
from trlmath.training.sft import MathSFTTrainer
from trlmath.training.sft_batches import StepCollator, StepSampler, as_row

TESTS = Path(__file__).resolve().parents[1]


def some_examples(count=13, seed=0):
    """Examples of very different lengths."""
    rng = random.Random(seed)

    def ids(least, most):
        return tuple(rng.randrange(2, 200) for _ in range(rng.randrange(least, most)))

    return [Example(ids(3, 40), ids(1, 60), row) for row in range(count)]


def arguments(folder, **changes):
    plain = {
        "output_dir": str(folder),
        "use_cpu": True,
        "report_to": [],
        "logging_steps": 1,
        "save_strategy": "no",
        "disable_tqdm": True,
        "gradient_checkpointing": False,
        "bf16": False,
        "max_length": None,
        "dataset_kwargs": {"skip_prepare_dataset": True},
        "learning_rate": 1e-3,
        "max_steps": 3,
    }
    return SFTConfig(**{**plain, **changes})


@pytest.fixture
def make(tiny_dir, tmp_path):
    """Build a `MathSFTTrainer` on a tiny model."""

    def build(examples=None, batch=None, attention="sdpa", peft_config=None, dtype="float32", **changes):
        return MathSFTTrainer(
            examples=examples or some_examples(),
            batch=BatchSection(**{"size": 13, **(batch or {})}),
            model=AutoModelForCausalLM.from_pretrained(tiny_dir, dtype=dtype, attn_implementation=attention),
            args=arguments(tmp_path / "out", **changes),
            processing_class=AutoTokenizer.from_pretrained(tiny_dir),
            peft_config=peft_config,
        )

    return build


@pytest.fixture
def trls_gradient(tiny_dir, tmp_path):
    """The gradient TRL's own trainer takes from all examples as one padded batch."""

    def of(examples):
        rows = [as_row(example) for example in examples]
        trainer = SFTTrainer(
            model=AutoModelForCausalLM.from_pretrained(tiny_dir, dtype="float32"),
            args=arguments(tmp_path / "trl", per_device_train_batch_size=len(rows)),
            train_dataset=Dataset.from_list(rows),
            processing_class=AutoTokenizer.from_pretrained(tiny_dir),
        )
        iterator = iter(trainer.get_train_dataloader())
        (inputs,), items = trainer.get_batch_samples(iterator, 1, torch.device("cpu"))
        trainer.current_gradient_accumulation_steps = 1
        loss = trainer.training_step(trainer.model, inputs, items)
        return gradient(trainer.model), float(loss)

    return of


def gradient(model):
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def our_gradient(trainer):
    """Of the first step; and its loss and number of forwards."""
    (step,), _ = trainer.get_batch_samples(iter(trainer.get_train_dataloader()), 1, torch.device("cpu"))
    loss = trainer.training_step(trainer.model, step)
    return gradient(trainer.model), float(loss), len(step["parts"])


def assert_same(found, expected, relative=1e-5):
    scale = max(float(g.abs().max()) for g in expected.values())
    assert scale > 0
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(
            found[name], value, atol=relative * scale, rtol=relative, msg=lambda m, n=name: f"{n}: {m}"
        )


@pytest.mark.parametrize("packing", [False, True])
@pytest.mark.parametrize(("budget", "parts"), [(None, 1), (300, 2), (100, 5), (1, 13)])
def test_the_update_is_trls_uncut_one_for_any_split(make, trls_gradient, budget, parts, packing):
    examples = some_examples()
    expected, loss = trls_gradient(examples)
    found, ours, cut = our_gradient(make(examples, {"microbatch_tokens": budget, "packing": packing}))
    assert cut >= parts if budget != 1 else cut == 13
    assert ours == pytest.approx(loss, rel=1e-5)
    assert_same(found, expected)


def test_only_the_last_micro_batch_synchronises(make, monkeypatch):
    seen, loss = [], MathSFTTrainer.compute_loss

    def spy(self, *args, **kwargs):
        seen.append(self.accelerator.sync_gradients)
        return loss(self, *args, **kwargs)

    monkeypatch.setattr(MathSFTTrainer, "compute_loss", spy)
    our_gradient(make(batch={"microbatch_tokens": 300}))
    assert len(seen) > 1
    assert seen == [False] * (len(seen) - 1) + [True]


@pytest.mark.parametrize("changes", [{"loss_type": "dft"}, {"label_smoothing_factor": 0.1}])
def test_other_losses_of_trl_are_cut_as_well(make, changes):
    whole, loss, _ = our_gradient(make(**changes))
    cut, ours, parts = our_gradient(make(batch={"microbatch_tokens": 100}, **changes))
    assert parts > 3
    assert ours == pytest.approx(loss, rel=1e-5)
    assert_same(cut, whole)


@pytest.mark.slow
@pytest.mark.parametrize("count", [13, 1])  # with one example, the second process has nothing of its own
def test_two_processes_take_the_gradient_of_one(tiny_dir, trls_gradient, tmp_path, count):
    examples = some_examples(count)
    expected, loss = trls_gradient(examples)
    torch.save([(e.prompt_ids, e.response_ids) for e in examples], tmp_path / "examples.pt")
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    files = [str(tiny_dir), str(tmp_path / "examples.pt"), str(tmp_path / "found.pt")]
    done = subprocess.run(
        [sys.executable, *launcher, str(TESTS / "sft_processes.py"), *files],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = torch.load(tmp_path / "found.pt")
    assert found["loss"] == pytest.approx(loss, rel=1e-5)
    if count > 1:
        assert all(rows > 0 for rows in found["rows"])
    assert sum(found["rows"]) == count
    assert_same(found["gradient"], expected)


# -- which rows -----------------------------------------------------------------------------------


def test_forwards_hold_rows_of_like_length_and_no_more_padding_than_needed(make):
    trainer = make(batch={"microbatch_tokens": 150})
    (step,), _ = trainer.get_batch_samples(iter(trainer.get_train_dataloader()), 1, torch.device("cpu"))
    widths = [part["input_ids"].size(1) for part in step["parts"]]
    assert widths == sorted(widths, reverse=True)
    for part in step["parts"]:
        rows, width = part["input_ids"].shape
        assert rows * width <= 150 or rows == 1
        assert int(part["attention_mask"].sum(-1).max()) == width
    trained = sum(len(e.response_ids) for e in trainer.examples)
    assert sum(step["supervised"]) == trained == sum(int((p["labels"] != -100).sum()) for p in step["parts"])
    assert step["tokens"] == sum(len(e) for e in trainer.examples)


def test_a_collated_row_trains_the_response_only(make):
    trainer = make([Example((5, 6, 7), (8, 9, 1), 0)], {"size": 1})
    part = trainer.data_collator(trainer.examples)["parts"][0]
    assert part["input_ids"].tolist() == [[5, 6, 7, 8, 9, 1]]
    assert part["labels"].tolist() == [[-100, -100, -100, 8, 9, 1]]


# -- packing --------------------------------------------------------------------------------------


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_packed_rows_have_the_logits_they_have_alone(make, attention):
    trainer = make(batch={"packing": True}, attention=attention)
    model = trainer.model.eval()
    rows = [as_row(e) for e in trainer.examples[:4]]
    packed = trainer.data_collator.collate(rows)
    assert packed["input_ids"].size(0) == 1
    labels = packed.pop("labels")
    with torch.no_grad():
        together = model(**packed, use_cache=False).logits[0]
        start = 0
        for row in rows:
            alone = model(torch.tensor([row["input_ids"]])).logits[0]
            torch.testing.assert_close(together[start : start + len(alone)], alone, atol=1e-4, rtol=1e-4)
            start += len(alone)
    assert start == labels.size(1)


def test_packing_is_refused_where_rows_would_see_each_other(make):
    """An attention that transformers makes no mask for: it is causal over the whole packed sequence."""

    def causal_only(module, query, key, value, attention_mask, **kwargs):
        kwargs["is_causal"] = True
        return sdpa_attention_forward(module, query, key, value, None, **kwargs)

    AttentionInterface.register("causal_only", causal_only)
    make(attention="causal_only")  # padded rows are apart by themselves
    with pytest.raises(RecipeError, match="batch.packing: .*causal_only.*does not keep packed rows apart"):
        make(batch={"packing": True}, attention="causal_only")


def test_the_leak_of_isolated_rows_is_nothing(make):
    trainer = make(batch={"packing": True})
    rows = [as_row(e)["input_ids"] for e in trainer.examples[:3]]
    assert leak(trainer.model, trainer.data_collator.collate, rows) < 1e-6


# -- a whole training -----------------------------------------------------------------------------


def logs(trainer):
    return [entry for entry in trainer.state.log_history if "loss" in entry]


def test_training_learns_and_logs_what_a_step_was(make):
    trainer = make(batch={"size": 5, "microbatch_tokens": 120}, num_train_epochs=20, max_steps=-1)
    trainer.train()
    steps = logs(trainer)
    assert len(steps) == 20 * 3  # the last step of an epoch has what is left of the 13
    assert steps[-1]["loss"] < 0.7 * steps[0]["loss"]
    first = steps[0]
    rows = [trainer.examples[row] for row in StepSampler(trainer._lengths, 5, trainer.args.seed).steps()[0]]
    assert first["supervised_tokens"] == sum(len(e.response_ids) for e in rows)
    assert first["tokens"] == sum(len(e) for e in rows)
    for key in ("time/data", "time/update", "time/optimizer", "step_time", "entropy", "grad_norm"):
        assert first[key] >= 0, key
    assert first["time/data_share"] == pytest.approx(first["time/data"] / first["step_time"], abs=1e-3)
    assert first["step_time"] == pytest.approx(
        first["time/data"] + first["time/update"] + first["time/optimizer"], rel=1e-3
    )


def test_metrics_do_not_depend_on_the_cut(make):
    whole, cut = make(max_steps=1), make(batch={"microbatch_tokens": 80}, max_steps=1)
    whole.train(), cut.train()
    assert logs(cut)[0]["microbatches"] > 4
    for key in ("loss", "grad_norm", "entropy", "mean_token_accuracy", "supervised_tokens", "num_tokens"):
        assert logs(cut)[0][key] == pytest.approx(logs(whole)[0][key], rel=1e-4), key


def test_worker_processes_collate_the_same_steps(make):
    plain, ahead = make(batch={"size": 5}), make(batch={"size": 5}, dataloader_num_workers=1)
    plain.train(), ahead.train()
    assert [e["loss"] for e in logs(plain)] == [e["loss"] for e in logs(ahead)]


def test_gradient_checkpointing_changes_no_gradient(make):
    trainer = make(batch={"microbatch_tokens": 100}, gradient_checkpointing=True)
    assert trainer.args.gradient_checkpointing
    expected, _, _ = our_gradient(make(batch={"microbatch_tokens": 100}))
    steps = []
    for layer in trainer.model.model.layers:
        layer.mlp.register_forward_pre_hook(lambda *_: steps.append(1))
    trainer.model.gradient_checkpointing_enable({"use_reentrant": False})
    found, _, parts = our_gradient(trainer)
    assert len(steps) == 2 * parts * len(trainer.model.model.layers)  # each forward is computed again
    assert_same(found, expected)


def test_bfloat16_trains(make):
    trainer = make(bf16=True, max_steps=8)
    trainer.train()
    losses = [e["loss"] for e in logs(trainer)]
    assert losses[-1] < losses[0]
    exact = make(max_steps=1)
    exact.train()
    assert losses[0] == pytest.approx(logs(exact)[0]["loss"], rel=0.02)
    assert losses[0] != logs(exact)[0]["loss"]


def test_lora_trains_the_adapter_alone(make):
    from peft import LoraConfig

    adapter = LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
    trainer = make(batch={"microbatch_tokens": 100}, peft_config=adapter, learning_rate=1e-2)
    before = {n: p.clone() for n, p in trainer.model.named_parameters()}
    trainer.train()
    changed = {n for n, p in trainer.model.named_parameters() if not torch.equal(p, before[n])}
    assert changed
    assert all("lora_" in name for name in changed)


def test_warmup_and_clipping_are_taken_from_the_arguments(make):
    trainer = make(
        max_steps=10, warmup_steps=0.5, max_grad_norm=0.01, lr_scheduler_type="constant_with_warmup"
    )
    trainer.train()
    rates = [e["learning_rate"] for e in logs(trainer)]
    assert rates[:6] == pytest.approx([0, 2e-4, 4e-4, 6e-4, 8e-4, 1e-3])
    assert rates[6:] == pytest.approx([1e-3] * 4)
    assert all(e["grad_norm"] > 0.01 for e in logs(trainer))  # the norm before it is clipped


def test_what_batch_decides_cannot_be_set_beside_it(make, tiny_dir):
    with pytest.raises(ValueError, match="gradient_accumulation_steps must be 1"):
        make(gradient_accumulation_steps=2)
    with pytest.raises(ValueError, match="no examples"):
        MathSFTTrainer(examples=[], batch=BatchSection(), model=None, args=arguments(tiny_dir))


def test_an_optimizer_can_be_carried_on(make, tiny_dir, tmp_path):
    first = make(max_steps=2)
    first.train()
    carried = first.optimizer.optimizer if hasattr(first.optimizer, "optimizer") else first.optimizer
    second = MathSFTTrainer(
        examples=some_examples(7, seed=1),
        batch=BatchSection(size=7),
        model=first.model,
        args=arguments(tmp_path / "second", max_steps=1),
        processing_class=AutoTokenizer.from_pretrained(tiny_dir),
        optimizers=(carried, None),
    )
    second.train()
    assert {int(s["step"]) for s in carried.state.values()} == {3}


@pytest.mark.parametrize("saved_at", [4, 6])  # in the middle of the second epoch, and at its end
def test_a_checkpoint_goes_on_bit_identically(make, tmp_path, saved_at):
    batch = {"size": 5, "microbatch_tokens": 120}
    whole = make(batch=batch, max_steps=8)
    whole.train()
    first = make(batch=batch, max_steps=8, save_strategy="steps", save_steps=saved_at)
    first.train()
    second = make(batch=batch, max_steps=8)
    second.train(resume_from_checkpoint=str(tmp_path / "out" / f"checkpoint-{saved_at}"))
    assert [e["loss"] for e in logs(second)][saved_at:] == [e["loss"] for e in logs(whole)][saved_at:]
    for (name, one), two in zip(whole.model.named_parameters(), second.model.parameters(), strict=True):
        assert torch.equal(one, two), name


# -- the seam -------------------------------------------------------------------------------------

PINNED = {
    (SFTTrainer, "training_step"): "(self, *args, **kwargs)",
    (SFTTrainer, "compute_loss"): "(self, model, inputs, return_outputs=False, num_items_in_batch=None)",
    (Trainer, "get_train_dataloader"): "(self) -> torch.utils.data.dataloader.DataLoader",
    (Trainer, "floating_point_ops"): "(self, inputs: dict[str, torch.Tensor | typing.Any]) -> int",
}


@pytest.mark.parametrize(("owner", "name"), PINNED, ids=lambda value: getattr(value, "__name__", value))
def test_overridden_methods_have_the_signature_they_were_written_for(owner, name):
    assert str(inspect.signature(getattr(owner, name))) == PINNED[owner, name]


def test_batches_are_asked_for_as_when_it_was_overridden():
    assert list(inspect.signature(Trainer.get_batch_samples).parameters) == [
        "self",
        "epoch_iterator",
        "num_batches",
        "device",
    ]


def test_the_collator_gives_nothing_for_no_rows():
    collator = StepCollator(lambda rows: {"rows": rows}, 10, False)
    assert collator([]) == {"parts": [], "supervised": [], "tokens": 0}
