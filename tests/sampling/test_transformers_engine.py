"""The transformers engine against plain forwards and transformers' own generate."""

from __future__ import annotations

import pytest
import torch
from hostile import check_cuts, check_nothing_leaks, hostile_copy, loaded

from trlmath.errors import EngineError, RecipeError
from trlmath.sampling import SamplingSettings
from trlmath.sampling.models import eos_token_ids
from trlmath.sampling.stopping import cut_after_stop, finish_reason, tail_tokens, whole
from trlmath.sampling.transformers_engine import TransformersSampler

PROMPTS = ["2 + 2 =", "Solve x: 3x = 12, please.", "½ of ∑"]


@pytest.fixture(scope="module")
def sampler(tiny):
    return TransformersSampler(*tiny)


@pytest.fixture(scope="module")
def prompts(tiny):
    return tiny[1](PROMPTS)["input_ids"]


def test_greedy_equals_transformers_generate(sampler, tiny, prompts):
    model, tokenizer = tiny
    groups = sampler.generate(prompts, SamplingSettings(temperature=0, max_tokens=24))
    for prompt, group in zip(prompts, groups, strict=True):
        expected = model.generate(
            torch.tensor([prompt]),
            do_sample=False,
            max_new_tokens=24,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )[0, len(prompt) :].tolist()
        assert list(group.rollouts[0].token_ids) == expected


def test_logprobs_are_of_the_distribution_drawn_from(sampler, tiny, prompts):
    model, _ = tiny
    settings = SamplingSettings(temperature=0.7, max_tokens=20, seed=3)
    for prompt, group in zip(prompts, sampler.generate(prompts, settings, n=4), strict=True):
        assert len(group.rollouts) == 4
        for rollout in group.rollouts:
            ids = torch.tensor([[*prompt, *rollout.token_ids]])
            with torch.no_grad():
                logits = model(ids).logits[0, len(prompt) - 1 : -1] / 0.7
            expected = logits.log_softmax(-1).gather(-1, torch.tensor(rollout.token_ids)[:, None])[:, 0]
            torch.testing.assert_close(torch.tensor(rollout.logprobs), expected, atol=2e-5, rtol=1e-4)


def test_score_equals_what_sampling_reported_at_temperature_one(sampler, prompts):
    groups = sampler.generate(prompts, SamplingSettings(max_tokens=12, seed=1))
    completions = [g.rollouts[0].token_ids for g in groups]
    for group, scores in zip(groups, sampler.score(prompts, completions), strict=True):
        assert scores == pytest.approx(group.rollouts[0].logprobs, abs=2e-5)


def test_sampling_frequencies_follow_the_model(sampler, tiny, prompts):
    model, _ = tiny
    with torch.no_grad():
        p = model(torch.tensor([prompts[0]])).logits[0, -1].softmax(-1)
    group = sampler.generate([prompts[0]], SamplingSettings(max_tokens=1, seed=0), n=20_000)[0]
    drawn = torch.bincount(torch.tensor([r.token_ids[0] for r in group.rollouts]), minlength=len(p)) / 20_000
    assert float((drawn - p).abs().max()) < 4 * 0.5 / 20_000**0.5


def test_one_seed_one_result(sampler, prompts):
    settings = SamplingSettings(max_tokens=16, seed=5)
    first = sampler.generate(prompts, settings, n=2)
    assert sampler.generate(prompts, settings, n=2) == first
    assert sampler.generate(prompts, SamplingSettings(max_tokens=16, seed=6), n=2) != first


def test_top_k_one_is_greedy(sampler, prompts):
    greedy = sampler.generate(prompts, SamplingSettings(temperature=0, max_tokens=8))
    top1 = sampler.generate(prompts, SamplingSettings(top_k=1, max_tokens=8))
    assert [g.rollouts[0].token_ids for g in greedy] == [g.rollouts[0].token_ids for g in top1]


def test_what_is_cut_away(sampler, tiny_dir):
    check_cuts(sampler, tiny_dir)


def test_stop_string_ends_and_stays_and_counts_as_finished(sampler, prompts):
    free = sampler.generate(prompts, SamplingSettings(temperature=0, max_tokens=30))
    for prompt, group in zip(prompts, free, strict=True):
        text = group.rollouts[0].text
        stop = text[4:6]
        cut = sampler.generate([prompt], SamplingSettings(temperature=0, max_tokens=30, stop=(stop,)))[
            0
        ].rollouts[0]
        assert cut.finish_reason == "stop"
        assert cut.text == text[: text.find(stop) + len(stop)]
        assert len(cut.token_ids) < 30


def test_min_tokens_holds_back_stop_and_end(sampler, prompts, tiny):
    settings = SamplingSettings(max_tokens=12, min_tokens=8, stop=("e", " ", "a"), seed=0)
    for group in sampler.generate(prompts, settings, n=16):
        for rollout in group.rollouts:
            assert len(rollout.token_ids) >= 8
            assert tiny[1].eos_token_id not in rollout.token_ids[:8]


def test_a_stop_string_counts_where_it_ends_after_min_tokens(sampler, prompts):
    """As in vLLM: what ends in the first min_tokens tokens ends nothing, then or later."""
    free = sampler.generate([prompts[0]], SamplingSettings(temperature=0, max_tokens=30))[0].rollouts[0]
    for floor in (0, 2, 7):
        held = len(whole(sampler._texts([free.token_ids[:floor]])[0]))
        for stop in {free.text[at : at + size] for at in range(0, 15, 2) for size in (1, 3)}:
            if stop != whole(stop):
                continue  # a random model's half a character
            settings = SamplingSettings(temperature=0, max_tokens=30, min_tokens=floor, stop=(stop,))
            cut = sampler.generate([prompts[0]], settings)[0].rollouts[0]
            end = next((e for e in range(held + 1, len(free.text) + 1) if free.text[:e].endswith(stop)), None)
            assert cut.text == free.text[:end]
            assert cut.finish_reason == ("length" if end is None else "stop")
            assert floor < len(cut.token_ids) <= 30


def test_pairs_of_any_length_are_scored_together_as_each_alone(tiny, prompts):
    sampler = TransformersSampler(*tiny, max_rows=3)
    completions = [[7] * 9, [3, 4], [], [5, 6, 7, 8]]
    pairs = ([*prompts, prompts[0][:1]], completions)
    scores, entropies = sampler.score_with_entropies(*pairs)
    for i in range(4):
        one, its = sampler.score_with_entropies([pairs[0][i]], [completions[i]])
        assert scores[i] == pytest.approx(one[0], abs=1e-5)
        assert entropies[i] == pytest.approx(its[0], abs=1e-5)
        assert len(scores[i]) == len(completions[i])
    assert sampler.score(*pairs) == scores


def test_cut_off_is_length(sampler, prompts):
    rollout = sampler.generate([prompts[0]], SamplingSettings(temperature=0, max_tokens=3))[0].rollouts[0]
    assert (rollout.finish_reason, len(rollout.token_ids)) == ("length", 3)


def test_chunks_do_not_change_greedy_results(tiny, prompts):
    settings = SamplingSettings(temperature=0, max_tokens=10)
    small = TransformersSampler(*tiny, max_rows=1).generate(prompts, settings)
    large = TransformersSampler(*tiny).generate(prompts, settings)
    assert [g.rollouts[0].token_ids for g in small] == [g.rollouts[0].token_ids for g in large]


def test_no_room_is_an_error_that_names_the_numbers(sampler, prompts):
    with pytest.raises(EngineError, match=r"sampling.max_tokens is 1000.*context of 256"):
        sampler.generate(prompts, SamplingSettings(max_tokens=1000))
    narrow = TransformersSampler(sampler.model, sampler.tokenizer, context=40)
    with pytest.raises(EngineError, match=r"sampling.max_tokens is 39.*context of 40"):
        narrow.generate(prompts, SamplingSettings(max_tokens=39))
    with pytest.raises(EngineError, match="41 tokens together, more than the engine's context of 40"):
        narrow.score([[1] * 40], [[2]])
    with pytest.raises(EngineError, match="2 prompts and 1 completions"):
        narrow.score([[1], [1]], [[2]])
    with pytest.raises(EngineError, match="no tokens"):
        narrow.score([[]], [[2]])


def test_mode_is_restored(sampler, tiny, prompts):
    tiny[0].train()
    sampler.generate(prompts, SamplingSettings(max_tokens=2))
    assert tiny[0].training
    tiny[0].eval()


@pytest.mark.parametrize(
    ("values", "key"),
    [
        ({"temperature": -1}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"min_tokens": 9, "max_tokens": 3}, "min_tokens"),
    ],
)
def test_settings_out_of_range_are_named(values, key):
    with pytest.raises(RecipeError, match=f"sampling.{key}"):
        SamplingSettings(**values)


def test_stop_helpers():
    assert cut_after_stop("a</answer>b</answer>", ["</answer>", "zz"]) == ("a</answer>", True)
    assert cut_after_stop("abc", ["x"]) == ("abc", False)
    assert cut_after_stop("abcd", ["abcd", "bc"]) == ("abc", True)  # the one that is complete first
    assert cut_after_stop("ababab", ["ab"], held=2) == ("abab", True)
    assert cut_after_stop("ababab", ["ab"], held=3) == ("abab", True)  # begun before, complete after
    assert cut_after_stop("ab", ["ab"], held=2) == ("ab", False)
    assert finish_reason("length", "vLLM") == "length"
    for other in ("abort", "error", "repetition", None):
        with pytest.raises(EngineError, match=f"vLLM ended a completion by {other!r}"):
            finish_reason(other, "vLLM")
    assert tail_tokens(["ab", "½½"]) == 5


def test_a_models_generation_config_does_not_leak_in(tiny_dir, tmp_path):
    model, tokenizer = loaded(hostile_copy(tiny_dir, tmp_path / "hostile"))
    check_nothing_leaks(TransformersSampler(model, tokenizer, eos_token_ids(model, tokenizer)), tiny_dir)
