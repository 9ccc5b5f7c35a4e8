"""The methods of TRL and transformers that are overridden or relied on still look as they did when they were.

What is overridden is found by itself: every class of ours against the foreign classes it derives from. The
signatures are in ``signatures.json``; ``python tests/training/test_seam.py`` records them anew.
"""

from __future__ import annotations

import importlib
import inspect
import json
import pkgutil
import re
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

import pytest

import trlmath

RECORDED = Path(__file__).with_name("signatures.json")
FOREIGN = ("trl", "transformers", "accelerate", "vllm")

# Relied on without being overridden: called by position or with these names, replaced, or registered with.
USED = {
    "transformers:Trainer.training_step": "trlmath/training/update.py (called past TRL's)",
    "transformers:Trainer._load_from_checkpoint": "trlmath/training/stepped_run.py",
    "transformers:TrainingArguments._setup_devices": "trlmath/training/checkpointing.py (replaced)",
    "transformers:integrations.integration_utils.rewrite_logs": "trlmath/training/trackers.py (replaced)",
    "transformers:integrations.sdpa_attention.sdpa_attention_forward": "trlmath/training/shared_prompts.py",
    "transformers:integrations.sdpa_attention.repeat_kv": "trlmath/training/shared_attention.py",
    "transformers:masking_utils.sdpa_mask": "trlmath/training/shared_prompts.py",
    "transformers:AttentionInterface.register": "trlmath/training/shared_prompts.py",
    "transformers:AttentionMaskInterface.register": "trlmath/training/shared_prompts.py",
    "trl:GRPOTrainer._compute_loss": "trlmath/training/update.py (its collectives are counted)",
    "trl:generation.vllm_generation.VLLMGeneration._iter_named_params": "trlmath/training/weights.py",
    "trl:generation.vllm_generation.VLLMGeneration.sync_weights": "trlmath/training/weights.py (replaced)",
    "trl:distributed.DistributedBackend.__init__": "trlmath/training/weights.py",
    **{
        f"trl:generation.vllm_client.VLLMClient.{name}": "trlmath/sampling/server_weights.py"
        for name in (
            *("__init__", "_get", "init_communicator", "weight_update", "update_named_param"),
            "close_communicator",
        )
    },
    "accelerate:state.GradientState._set_sync_gradients": "trlmath/training/accumulating.py",
    "accelerate:Accelerator.no_sync": "trlmath/training/accumulating.py",
    "vllm:model_executor.layers.utils.dispatch_cpu_unquantized_gemm": (
        "trlmath/sampling/vllm_engine.py (replaced: without, old weights are served)"
    ),
    "vllm:LLM.generate": "trlmath/sampling/vllm_engine.py",
    "vllm:LLM.reset_prefix_cache": "trlmath/sampling/vllm_load.py",
    "vllm:LLM.sleep": "trlmath/sampling/vllm_engine.py",
    "vllm:LLM.wake_up": "trlmath/sampling/vllm_engine.py",
}

# What TRL's trainers keep in private attributes, and ours read or set.
ATTRIBUTES = {
    "trl:GRPOTrainer": (
        "_entropy_bonus_enabled _last_loaded_step _logs _metrics _step _tokenizer _total_train_tokens",
        "trlmath/training/grpo.py, update.py and preflight.py",
    ),
    "trl:SFTTrainer": ("_metrics _total_train_tokens", "trlmath/training/sft.py and preflight.py"),
}

# vLLM's arguments: those that are given must be there, whatever else there is.
NAMED = {
    "vllm:SamplingParams": (
        "n temperature top_p top_k min_p min_tokens max_tokens stop include_stop_str_in_output "
        "repetition_penalty presence_penalty frequency_penalty seed logprobs prompt_logprobs detokenize",
        "trlmath/sampling/vllm_engine.py",
    ),
    "vllm:engine.arg_utils.EngineArgs": (
        "model dtype max_model_len max_num_seqs seed logprobs_mode enable_sleep_mode disable_log_stats "
        "enforce_eager enable_chunked_prefill max_num_batched_tokens distributed_executor_backend "
        "use_tqdm_on_load worker_extension_cls generation_config gpu_memory_utilization "
        "kv_cache_memory_bytes weight_transfer_config",
        "trlmath/sampling/vllm_engine.py and trlmath/sampling/server_process.py",
    ),
}


def resolve(key):
    """What a key such as ``trl:GRPOTrainer._generate`` names; None where it is gone."""
    package, _, path = key.partition(":")
    found, parts = importlib.import_module(package), path.split(".")
    for i, part in enumerate(parts):
        name = f"{package}.{'.'.join(parts[: i + 1])}"
        if not hasattr(found, part) and inspect.ismodule(found) and find_spec(name):
            importlib.import_module(name)
        found = getattr(found, part, None)
        if found is None:
            return None
    return found


def signature(target):
    """Parameters as text, without their types: those are written differently by every release."""
    if isinstance(target, property):
        return ["(property)"]
    if not callable(target):
        return ["(attribute)"]
    parameters = inspect.signature(inspect.unwrap(target)).parameters.values()
    told = []
    for p in parameters:
        stars = {p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "")
        default = "" if p.default is p.empty else "=" + _default(p.default)
        told.append(("/ " if p.kind is p.POSITIONAL_ONLY else "") + stars + p.name + default)
    return told


def _default(value):
    return repr(value) if isinstance(value, (bool, int, float, str, type(None))) else "..."


# the first is the command line; the second imports vLLM, and mixes into its worker without deriving from it
_NOT_WALKED = ("trlmath.__main__", "trlmath.sampling.vllm_worker")


@cache
def overridden():
    """Key -> what of ours overrides it, as ``file (Class.method)``."""
    found = {}
    for name in sorted(m.name for m in pkgutil.walk_packages(trlmath.__path__, "trlmath.")):
        if name in _NOT_WALKED:
            continue
        module = importlib.import_module(name)
        for cls in vars(module).values():
            if inspect.isclass(cls) and cls.__module__ == name:
                found |= overrides_of(cls)
    return found


def overrides_of(cls):
    """What one class, with the classes of ours mixed into it, overrides of its first foreign class."""
    theirs = [c for c in cls.__mro__ if c.__module__.split(".")[0] in FOREIGN]
    if not theirs:
        return {}
    first, found = theirs[0], {}
    ours = cls.__mro__[: cls.__mro__.index(first)]
    for own in reversed(ours):
        for name in vars(own):
            if not any(name in vars(c) for c in theirs) or name in _EVERY_CLASS:
                continue
            file = own.__module__.replace(".", "/") + ".py"
            found[f"{_place(first)}.{name}"] = f"{file} ({own.__qualname__}.{name})"
    return found


_EVERY_CLASS = ("__module__", "__doc__", "__dict__", "__weakref__", "__annotations__", "__abstractmethods__")
_EVERY_CLASS += ("_abc_impl", "__static_attributes__", "__firstlineno__", "__parameters__")


def _place(cls):
    package, _, module = cls.__module__.partition(".")
    if getattr(importlib.import_module(package), cls.__name__, None) is cls:
        return f"{package}:{cls.__name__}"
    return f"{package}:{module}.{cls.__name__}" if module else f"{package}:{cls.__name__}"


def told(package):
    """A package's name and version, for an error."""
    for name in (package, f"{package}-cpu"):
        try:
            return f"{name} {version(name)}"
        except PackageNotFoundError:
            continue
    return package


def moved(key, before, now, ours, then):
    """The sentence that says what moved, or None."""
    package, _, what = key.partition(":")
    if now == before:
        return None
    if now is None:
        return f"{told(package)} has no {what} any more: {ours} relies on it. It was there in {then}."
    gone, new = [p for p in before if p not in now], [p for p in now if p not in before]
    changes = [f"the parameter {p!r} is gone" for p in gone] + [f"the parameter {p!r} is new" for p in new]
    if not changes:
        changes = [f"its parameters are in another order: {', '.join(now)}"]
    elif len(gone) == len(new) == 1 and before.index(gone[0]) == now.index(new[0]):
        changes = [f"the parameter {gone[0]!r} is now {new[0]!r}"]
    return (
        f"{told(package)} moved {what}: {'; '.join(changes)}. Look at {ours}, which was written for "
        f"{then}; then record the new signature: python tests/training/test_seam.py."
    )


def recorded():
    return json.loads(RECORDED.read_text(encoding="utf-8"))


def installed(keys):
    return [key for key in keys if find_spec(key.partition(":")[0]) is not None]


def test_every_override_is_recorded_and_nothing_else():
    found, known = {*overridden(), *USED}, set(recorded()["signatures"])
    assert sorted(found - known) == [], (
        "overrides or uses without a recorded signature: read what you override, then record it "
        "(python tests/training/test_seam.py)"
    )
    stale = {key for key in known - found if find_spec(key.partition(":")[0])}
    assert sorted(stale) == [], "recorded, and no longer overridden or used: record anew"


def test_the_walk_finds_what_is_known_to_be_overridden():
    found = overridden()
    for name in ("_generate", "_calculate_rewards", "training_step", "compute_loss", "__init__"):
        assert f"trl:GRPOTrainer.{name}" in found
    assert "_save_checkpoint" in str(found)  # of a mixin that does not derive from TRL itself
    assert found["trl:SFTTrainer.training_step"].startswith("trlmath/training/sft.py")
    assert "transformers:TrainerCallback.on_log" in found


def test_nothing_that_is_relied_on_has_moved():
    told = recorded()
    ours = {**USED, **overridden()}
    wrong = []
    for key in installed(told["signatures"]):
        target = resolve(key)
        now = None if target is None else signature(target)
        package = key.partition(":")[0]
        then = f"{package} {told['versions'].get(package, '(unknown)')}"
        sentence = moved(key, told["signatures"][key], now, ours.get(key, "trlmath"), then)
        wrong += [sentence] if sentence else []
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("key", ATTRIBUTES)
def test_the_private_attributes_are_still_there(key):
    names, ours = ATTRIBUTES[key]
    source = inspect.getsource(resolve(key))
    missing = [name for name in names.split() if f"self.{name}" not in source]
    assert not missing, f"{told('trl')}: {key} has no {', '.join(missing)} any more. Look at {ours}."


def private_uses(folder):
    """(file, name) of what is private in a foreign class that our code names, and does not define itself."""
    foreign = (
        "trl:GRPOTrainer",
        "trl:SFTTrainer",
        "transformers:TrainingArguments",
        "accelerate:Accelerator",
    )
    classes = [resolve(key) for key in (*foreign, "trl:generation.vllm_generation.VLLMGeneration")]
    theirs = {n for cls in classes for n in dir(cls) if re.fullmatch(r"_[a-z]\w*", n)}
    texts = {file: file.read_text(encoding="utf-8") for file in sorted(folder.rglob("*.py"))}
    defined = set(re.findall(r"def (_\w+)", "".join(texts.values())))
    for file, text in texts.items():
        for name in sorted((theirs - defined) & set(re.findall(r"""[."'](_[a-z]\w*)\b""", text))):
            yield file.name, name


def test_what_is_private_to_others_and_used_is_recorded():
    known = {key.rpartition(".")[2] for key in recorded()["signatures"]}
    used = list(private_uses(Path(trlmath.__file__).parent))
    assert ("stepped_run.py", "_load_from_checkpoint") in used
    assert ("checkpointing.py", "_setup_devices") in used
    assert [f"{name} in {file}" for file, name in used if name not in known] == [], (
        "add what is used to USED and record it (python tests/training/test_seam.py)"
    )


@pytest.mark.vllm
@pytest.mark.parametrize("key", NAMED)
def test_vllm_still_has_the_arguments_it_is_given(key):
    names, ours = NAMED[key]
    there = inspect.signature(resolve(key)).parameters
    missing = [name for name in names.split() if name not in there]
    what = key.partition(":")[2]
    assert not missing, f"{told('vllm')}: {what} has no {', '.join(missing)} any more. Look at {ours}."


@pytest.mark.vllm
def test_vllm_mixes_our_extension_into_a_worker_without_clashes():
    from vllm.v1.worker.worker_base import WorkerBase

    from trlmath.sampling.vllm_worker import WorkerExtension

    clashes = [n for n in vars(WorkerExtension) if hasattr(WorkerBase, n) and not n.startswith("__")]
    assert not clashes, f"{told('vllm')} has {clashes} of its own: rename ours in sampling/vllm_worker.py"


@pytest.mark.parametrize(
    ("before", "now", "words"),
    [
        (["self", "prompts"], ["self", "prompts", "images=None"], "the parameter 'images=None' is new"),
        (["self", "inputs", "a"], ["self", "inputs"], "the parameter 'a' is gone"),
        (["self", "inputs"], ["self", "batch"], "the parameter 'inputs' is now 'batch'"),
        (["self", "a", "b"], ["self", "b", "a"], "in another order: self, b, a"),
        (["self"], None, "has no GRPOTrainer._generate any more"),
    ],
)
def test_the_sentence_says_what_moved(before, now, words):
    sentence = moved("trl:GRPOTrainer._generate", before, now, "trlmath/training/grpo.py", "trl 1.16.0")
    assert words in sentence
    assert told("trl") in sentence
    assert "trlmath/training/grpo.py" in sentence


def test_an_override_that_nobody_recorded_is_found():
    from trl import GRPOTrainer

    class Careless(GRPOTrainer):
        __module__ = "trlmath.training.careless"

        def _compute_loss(self, model, inputs):
            return None

        def quite_our_own(self):
            return None

    assert list(overrides_of(Careless)) == ["trl:GRPOTrainer._compute_loss"]


def record():
    """Write ``signatures.json`` from what is installed; what is not installed keeps its record."""
    old = recorded() if RECORDED.exists() else {"versions": {}, "signatures": {}}
    keys = sorted({*overridden(), *USED})
    there = set(installed(keys))
    told = {
        k: signature(resolve(k)) if k in there else old["signatures"][k]
        for k in keys
        if k in there or k in old["signatures"]
    }
    versions = dict(old["versions"])
    for package in FOREIGN:
        for name in (package, f"{package}-cpu"):
            try:
                versions[package] = version(name)
            except PackageNotFoundError:
                continue
    RECORDED.write_text(json.dumps({"versions": versions, "signatures": told}, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    record()
