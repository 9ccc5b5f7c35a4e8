"""A model directory whose generation config asks for everything that a recipe did not, and what must hold."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

PROMPT = "Solve x: 3x = 12, please."
SETTINGS = {
    "do_sample": True,
    "temperature": 0.1,
    "top_k": 1,
    "top_p": 0.2,
    "min_p": 0.9,
    "repetition_penalty": 2.0,
    "max_new_tokens": 2,
    "min_new_tokens": 2,
}


def hostile_copy(folder: Path, to: Path) -> Path:
    """Copy a model directory; its generation config now also ends at the sixth token of a greedy answer."""
    shutil.copytree(folder, to, dirs_exist_ok=True)
    own = json.loads((to / "generation_config.json").read_text())
    own |= {**SETTINGS, "eos_token_id": [own["eos_token_id"], greedy(folder)[5]]}
    (to / "generation_config.json").write_text(json.dumps(own))
    return to


def loaded(folder):
    """(model, tokenizer) in float32."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(folder, dtype="float32").eval()
    return model, AutoTokenizer.from_pretrained(folder)


def greedy(folder, tokens=12):
    """What the model itself says to `PROMPT` at temperature 0, where no token ends it."""
    import torch

    model, tokenizer = loaded(folder)
    ids = tokenizer(PROMPT)["input_ids"]
    start = len(ids)
    for _ in range(tokens):
        with torch.no_grad():
            ids.append(int(model(torch.tensor([ids])).logits[0, -1].argmax()))
    return ids[start:]


def check_nothing_leaks(sampler, folder, exact=True):
    """What `sampler`, over a `hostile_copy` of `folder`, must do: follow the request, and end where both end.

    Args:
        exact: its log-probabilities are those of float32.
    """
    import torch

    from trlmath.sampling import SamplingSettings

    model, tokenizer = loaded(folder)
    ids = tokenizer(PROMPT)["input_ids"]
    with torch.no_grad():
        p = model(torch.tensor([ids])).logits[0, -1].softmax(-1)
    assert p.max() < 0.6, "a distribution that temperature and top_k would change"

    # drawn from the model's own distribution: not sharpened, nothing cut away, nothing penalised
    drawn = sampler.generate([ids], SamplingSettings(max_tokens=1, seed=0), n=1024)[0].rollouts
    shares = torch.bincount(torch.tensor([r.token_ids[0] for r in drawn]), minlength=len(p)) / len(drawn)
    assert float((shares - p).abs().max()) < 4 * 0.5 / len(drawn) ** 0.5
    for rollout in drawn[:20]:
        told, own = rollout.logprobs[0], float(p[rollout.token_ids[0]].log())
        assert abs(told - own) < (1e-3 if exact else 0.2)

    # the request's lengths, not the config's; end tokens of both sides end, and min_tokens holds both back
    answer = greedy(folder)
    held = sampler.generate([ids], SamplingSettings(temperature=0, max_tokens=12, min_tokens=12))[0].rollouts[
        0
    ]
    assert (len(held.token_ids), held.finish_reason) == (12, "length")
    assert not {tokenizer.eos_token_id, answer[5]} & set(held.token_ids)
    if not exact:
        return
    ended = sampler.generate([ids], SamplingSettings(temperature=0, max_tokens=12))[0].rollouts[0]
    assert list(ended.token_ids) == answer[: answer.index(answer[5]) + 1]
    assert ended.finish_reason == "stop"
    # a stop string stays in the text and is no truncation, on the last allowed token too
    text = tokenizer.decode(answer[:3])
    asked = SamplingSettings(temperature=0, max_tokens=3, stop=(text[-1],))
    stopped = sampler.generate([ids], asked)[0].rollouts[0]
    assert stopped.finish_reason == "stop"
    assert stopped.text == text[: text.index(text[-1]) + 1]


# each alone, and all together in the order that both engines take: temperature, min_p, top_k, top_p
CUTS = (
    {"temperature": 0.7, "top_p": 0.5},
    {"top_k": 3},
    {"min_p": 0.3},
    {"temperature": 1.3, "min_p": 0.1, "top_k": 8, "top_p": 0.8},
)


def check_cuts(sampler, folder):
    """Temperature, min_p, top_k and top_p leave the tokens, and with the probabilities, that they say."""
    import torch

    from trlmath.sampling import SamplingSettings

    model, tokenizer = loaded(folder)
    ids = tokenizer(PROMPT)["input_ids"]
    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits[0, -1]
    for cut in CUTS:
        p = (logits / cut.get("temperature", 1.0)).softmax(-1)
        p = torch.where(p >= cut.get("min_p", 0.0) * p.max(), p, 0.0)
        p = torch.where(p >= p.topk(cut.get("top_k", len(p))).values[-1], p, 0.0)
        p = p / p.sum()
        before = p.sort(descending=True)
        mass = before.values.cumsum(-1) - before.values  # of the likelier ones
        p[before.indices[mass >= cut.get("top_p", 1.0)]] = 0.0
        expected = (p / p.sum()).log()
        assert 1 < int((p > 0).sum()) < len(p) // 2, f"{cut} cuts nothing: no test"
        settings = SamplingSettings(**cut, max_tokens=1, seed=0)
        rollouts = sampler.generate([ids], settings, n=128)[0].rollouts
        assert len({r.token_ids for r in rollouts}) > 1
        for rollout in rollouts:
            assert abs(rollout.logprobs[0] - float(expected[rollout.token_ids[0]])) < 1e-3, cut
