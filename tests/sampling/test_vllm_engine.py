"""Real vLLM in this process: meaning of the settings, and weights that are fresh after a load."""

from __future__ import annotations

import json

import pytest
import torch
from hostile import check_cuts, check_nothing_leaks, hostile_copy, loaded

from trlmath.errors import EngineError
from trlmath.sampling import SamplingSettings
from trlmath.sampling.transformers_engine import TransformersSampler

pytestmark = [pytest.mark.vllm, pytest.mark.slow, pytest.mark.timeout(300)]

TOLERANCE = {"float32": 1e-4, "bfloat16": 0.15}


@pytest.fixture(scope="module", params=["float32", "bfloat16"])
def engine(request, tiny_dir, tmp_path_factory):
    """An engine over a model directory whose generation config disagrees with every test here."""
    from trlmath.sampling.vllm_engine import VllmSampler

    folder = hostile_copy(tiny_dir, tmp_path_factory.mktemp("hostile"))
    sampler = VllmSampler(str(folder), dtype=request.param, context=256, max_seqs=32)
    sampler.test_dtype = request.param
    sampler.test_ends = json.loads((folder / "generation_config.json").read_text())["eos_token_id"]
    yield sampler
    sampler.close()


@pytest.fixture(scope="module")
def prompts(tiny):
    return tiny[1](["2 + 2 =", "Solve x: 3x = 12, please."])["input_ids"]


def reference(tiny, scale=1.0):
    import copy

    model = copy.deepcopy(tiny[0])
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(scale)
    return TransformersSampler(model, tiny[1])


def difference(engine, sampler, prompts):
    completions = [
        g.rollouts[0].token_ids for g in sampler.generate(prompts, SamplingSettings(max_tokens=24, seed=0))
    ]
    ours, theirs = (s.score(prompts, completions) for s in (sampler, engine))
    gaps = [abs(a - b) for x, y in zip(ours, theirs, strict=True) for a, b in zip(x, y, strict=True)]
    return sum(gaps) / len(gaps)


def test_scores_agree_then_stale_then_fresh(engine, tiny, prompts):
    """The engine follows new weights; the check itself can see old ones."""
    allowed = TOLERANCE[engine.test_dtype]
    changed = reference(tiny, 1.15)
    assert difference(engine, reference(tiny), prompts) < allowed
    assert difference(engine, changed, prompts) > 2 * allowed
    before = engine.weights_version
    engine.load_weights(changed.model.named_parameters())
    assert engine.weights_version == before + 1
    assert difference(engine, changed, prompts) < allowed
    # what is generated comes from them too: reported log-probabilities are the new policy's
    group = engine.generate(prompts, SamplingSettings(max_tokens=16, temperature=1.0), n=2)[0]
    for rollout in group.rollouts:
        scores = changed.score([prompts[0]], [rollout.token_ids])[0]
        gaps = [abs(a - b) for a, b in zip(scores, rollout.logprobs, strict=True)]
        assert sum(gaps) / len(gaps) < allowed
    engine.load_weights(tiny[0].named_parameters())
    assert difference(engine, reference(tiny), prompts) < allowed


def test_a_part_of_the_weights_is_told(engine, tiny):
    with pytest.raises(EngineError, match=r"parameters were given none \(model\.layers\.0\.mlp"):
        engine.load_weights((n, p) for n, p in tiny[0].named_parameters() if "mlp" not in n)
    # the engine's matrix is of three: it is given something, but not all
    model = engine.llm.llm_engine.model_executor.driver_worker.model_runner.model
    real = model.load_weights
    model.load_weights = lambda named: set() if "k_proj" in named[0][0] else real(named)
    with pytest.raises(EngineError, match=r"were not taken \(model\.layers\.0\.self_attn\.k_proj"):
        engine.load_weights(tiny[0].named_parameters())
    del model.load_weights
    engine.load_weights(tiny[0].named_parameters())


def test_old_prefixes_are_dropped_also_while_somebody_asks(engine, tiny):
    from vllm import SamplingParams

    prompt = tiny[1]("A reasoning process, and then </think> <answer> 1 </answer>: " * 3)["input_ids"]
    llm = engine.llm
    engine.load_weights(tiny[0].named_parameters())
    other = llm.llm_engine.add_request(
        "99", {"prompt_token_ids": prompt}, SamplingParams(max_tokens=60, min_tokens=60)
    )
    for _ in range(3):
        llm.llm_engine.step()
    assert not llm.reset_prefix_cache(), "blocks are held: else this is no test"
    changed = reference(tiny, 1.15)
    engine.load_weights(changed.model.named_parameters())
    llm.llm_engine.abort_request([other])
    while llm.llm_engine.has_unfinished_requests():
        llm.llm_engine.step()
    (group,) = engine.generate([prompt], SamplingSettings(max_tokens=8, seed=0), n=4)
    scores = changed.score([prompt] * 4, [r.token_ids for r in group.rollouts])
    told = [logp for rollout in group.rollouts for logp in rollout.logprobs]
    gaps = [abs(a - b) for a, b in zip([logp for row in scores for logp in row], told, strict=True)]
    assert sum(gaps) / len(gaps) < TOLERANCE[engine.test_dtype]
    engine.load_weights(tiny[0].named_parameters())


def test_settings_mean_the_same(engine, tiny, prompts):
    """Finish reasons, stop strings that stay, minimum and maximum length, as on the other engine."""
    cut = engine.generate(prompts, SamplingSettings(temperature=0, max_tokens=3))
    assert [(r.finish_reason, len(r.token_ids)) for g in cut for r in g.rollouts] == [("length", 3)] * 2
    free = engine.generate(prompts, SamplingSettings(temperature=0, max_tokens=30))[0].rollouts[0].text
    stop = free[4:6]
    stopped = engine.generate(prompts[:1], SamplingSettings(temperature=0, max_tokens=30, stop=(stop,)))[
        0
    ].rollouts[0]
    assert (stopped.finish_reason, stopped.text) == ("stop", free[: free.find(stop) + len(stop)])
    held = engine.generate(prompts, SamplingSettings(max_tokens=12, min_tokens=8, stop=("e", " ")), n=8)
    assert all(len(r.token_ids) >= 8 for g in held for r in g.rollouts)
    with pytest.raises(EngineError, match=r"sampling.max_tokens is 250.*context of 256"):
        engine.generate(prompts, SamplingSettings(max_tokens=250))
    if engine.test_dtype == "float32":
        own = TransformersSampler(*tiny, engine.test_ends)
        ours = own.generate(prompts, SamplingSettings(temperature=0, max_tokens=30))
        theirs = engine.generate(prompts, SamplingSettings(temperature=0, max_tokens=30))
        assert [g.rollouts[0].token_ids for g in ours] == [g.rollouts[0].token_ids for g in theirs]
        # a stop string that is complete before min_tokens, one that begins before, and later ones
        for floor in (3, 6, 20):
            for begin in (0, 3, 6):
                settings = SamplingSettings(
                    temperature=0, max_tokens=30, min_tokens=floor, stop=(free[begin : begin + 3], free[10])
                )
                ours, theirs = (s.generate(prompts, settings) for s in (own, engine))
                told = [
                    [
                        (g.rollouts[0].text, g.rollouts[0].token_ids, g.rollouts[0].finish_reason)
                        for g in groups
                    ]
                    for groups in (ours, theirs)
                ]
                assert told[0] == told[1]


def test_a_completion_that_fills_the_context_is_scored(engine, tiny, prompts):
    engine.load_weights(tiny[0].named_parameters())
    room = 256 - len(prompts[0])
    full = engine.generate(prompts[:1], SamplingSettings(max_tokens=room, min_tokens=room, seed=0))[0]
    pairs = ([prompts[0], prompts[1]], [full.rollouts[0].token_ids, [5, 6]])
    assert len(pairs[1][0]) == room
    for ours, theirs in zip(reference(tiny).score(*pairs), engine.score(*pairs), strict=True):
        assert len(ours) == len(theirs)
        assert abs(ours[-1] - theirs[-1]) < 5 * TOLERANCE[engine.test_dtype]
        gaps = [abs(a - b) for a, b in zip(ours, theirs, strict=True)]
        assert sum(gaps) / len(gaps) < TOLERANCE[engine.test_dtype]
    with pytest.raises(EngineError, match="257 tokens together, more than the engine's context of 256"):
        engine.score([pairs[0][0]], [[*pairs[1][0], 5]])


def test_a_group_that_shares_its_prompt_draws_from_the_model(engine, tiny, tiny_dir):
    """The prompt is longer than a block of the cache: completions after the first do not read it again."""
    engine.load_weights(loaded(tiny_dir)[0].named_parameters())
    assert engine.llm.llm_engine.vllm_config.cache_config.block_size <= 32
    prompt = tiny[1]("A reasoning process, and then </think> <answer> 1 </answer>: " * 3)["input_ids"]
    assert len(prompt) > 64
    group = engine.generate([prompt], SamplingSettings(max_tokens=16, seed=1), n=6)[0]
    assert len({r.token_ids for r in group.rollouts}) > 1
    scores = reference(tiny).score([prompt] * 6, [r.token_ids for r in group.rollouts])
    for rollout, own in zip(group.rollouts, scores, strict=True):
        gaps = [abs(a - b) for a, b in zip(rollout.logprobs, own, strict=True)]
        assert sum(gaps) / len(gaps) < TOLERANCE[engine.test_dtype]


def test_seed_repeats(engine, prompts):
    settings = SamplingSettings(max_tokens=12, seed=7)
    assert engine.generate(prompts, settings, n=3) == engine.generate(prompts, settings, n=3)
    groups = engine.generate(prompts, settings, n=3)
    assert len({r.text for g in groups for r in g.rollouts}) > 1


def test_a_models_generation_config_does_not_leak_in(engine, tiny_dir):
    engine.load_weights(loaded(tiny_dir)[0].named_parameters())
    check_nothing_leaks(engine, tiny_dir, exact=engine.test_dtype == "float32")


def test_what_is_cut_away(engine, tiny_dir):
    if engine.test_dtype != "float32":
        pytest.skip("rounding moves what lies at a bound")
    engine.load_weights(loaded(tiny_dir)[0].named_parameters())
    check_cuts(engine, tiny_dir)


def test_groups_are_handed_out_as_they_finish(engine, prompts, monkeypatch):
    """The first of them while others are still generated: long before the engine's last step."""
    steps, came = [], {}
    step = engine.llm.llm_engine.step
    monkeypatch.setattr(engine.llm.llm_engine, "step", lambda: steps.append(0) or step(), raising=False)

    def take(number, group):
        came[number] = (len(steps), group)

    settings = SamplingSettings(max_tokens=24, seed=3)  # more of them than the engine takes at once
    groups = engine.generate(prompts * 12, settings, n=2, on_group=take)
    assert [came[number][1] for number in range(len(groups))] == groups
    assert min(at for at, _ in came.values()) < len(steps), "all came at the end"
    again = engine.generate(prompts * 12, settings, n=2)
    assert [[r.token_ids for r in g.rollouts] for g in again] == [
        [r.token_ids for r in g.rollouts] for g in groups
    ]
