"""Which tokens are given and which are trained: exact ids, drops with reasons, and the cache."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tiny import save_tiny_model
from transformers import AutoTokenizer

from trlmath import Problem, Prompt
from trlmath.data import examples as module
from trlmath.data.examples import content_hash, default_cache, tokenize_traces
from trlmath.data.traces import prompt_text
from trlmath.errors import DataError

PROMPT = Prompt("p", "Q: {question}\nA:")
CHATML = (
    "{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}<|endoftext|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)
MARKED = (
    "{% for m in messages %}<|{{ m.role }}|>\n{% if m.role == 'assistant' %}{% generation %}{{ m.content }}"
    "<|endoftext|>{% endgeneration %}{% else %}{{ m.content }}<|endoftext|>{% endif %}{{ '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return AutoTokenizer.from_pretrained(save_tiny_model(tmp_path_factory.mktemp("tiny")))


def chat(tokenizer, template):
    from copy import deepcopy

    changed = deepcopy(tokenizer)
    changed.chat_template = template
    return changed


def reasons(tokenized):
    return [(entry.index, entry.reason) for entry in tokenized.dropped]


def test_the_response_and_its_end_are_trained_and_the_prompt_is_what_generation_sees(tokenizer):
    problems = [Problem("1+1?", trace=" 2"), Problem("{x}", trace=" so\n 3", prompt="as it is:")]
    found = tokenize_traces(problems, PROMPT, tokenizer)
    texts = ["Q: 1+1?\nA:", "as it is:"]
    assert [e.prompt_ids for e in found.examples] == [tuple(tokenizer(text=t)["input_ids"]) for t in texts]
    assert [tokenizer.decode(e.response_ids) for e in found.examples] == [
        " 2<|endoftext|>",
        " so\n 3<|endoftext|>",
    ]
    assert [e.row for e in found.examples] == [0, 1]
    assert found.supervised == sum(len(e.response_ids) for e in found.examples)
    assert (found.dropped, found.joined, found.cut) == ([], 0, 0)


def test_an_end_of_text_that_is_there_is_not_doubled(tokenizer):
    (example,) = tokenize_traces([Problem("q", trace=" 2<|endoftext|>")], PROMPT, tokenizer).examples
    assert tokenizer.decode(example.response_ids) == " 2<|endoftext|>"


def test_rows_without_anything_to_train_are_dropped_with_their_reason(tokenizer):
    problems = [
        Problem("a", trace=None),
        Problem("b", trace=" \n"),
        Problem("c", trace="ok"),
        Problem("d", trace="one<|endoftext|>two"),
        Problem("e", trace=None, prompt=({"role": "user", "content": "e"},)),
    ]
    found = tokenize_traces(problems, PROMPT, tokenizer)
    assert [e.row for e in found.examples] == [2]
    assert reasons(found) == [
        (0, "no trace"),
        (1, "empty trace"),
        (3, "end-of-text inside the trace"),
        (4, "no message of the assistant"),
    ]
    assert {(e.moment, e.filter) for e in found.dropped} == {("trace", "tokenize")}


def test_over_long_traces_are_dropped_or_cut_at_their_end(tokenizer):
    problems = [Problem("q", trace="x" * 50), Problem("q", trace="y"), Problem("z" * 60, trace="y")]
    head = len(tokenizer(text="Q: q\nA:")["input_ids"])
    kept = tokenize_traces(problems, PROMPT, tokenizer, max_length=head + 10)
    assert [e.row for e in kept.examples] == [1]
    filled = f"prompt alone fills {head + 10} tokens: every label masked"
    assert reasons(kept) == [(0, f"over {head + 10} tokens"), (2, filled)]
    cut = tokenize_traces(problems, PROMPT, tokenizer, max_length=head + 10, over_long="cut")
    assert [len(e) for e in cut.examples][0] == head + 10
    assert tokenizer.eos_token_id not in cut.examples[0].response_ids
    assert tokenizer.decode(cut.examples[0].response_ids) == "x" * 10
    assert (cut.cut, reasons(cut)) == (1, [(2, filled)])


def test_a_trace_that_fits_exactly_is_whole(tokenizer):
    whole = len(tokenizer(text="Q: q\nA:yy")["input_ids"]) + 1
    found = tokenize_traces([Problem("q", trace="yy")], PROMPT, tokenizer, max_length=whole)
    assert (len(found.examples[0]), found.cut) == (whole, 0)


def test_a_boundary_that_would_merge_is_counted_and_trained_apart(tokenizer):
    ids = tokenizer(text="answer")["input_ids"]
    assert len(ids) < len(tokenizer(text="ans")["input_ids"]) + len(tokenizer(text="wer")["input_ids"])
    found = tokenize_traces([Problem("q", trace="wer", prompt="ans")], PROMPT, tokenizer)
    assert found.joined == 1
    assert found.examples[0].prompt_ids == tuple(tokenizer(text="ans")["input_ids"])


@pytest.mark.parametrize(
    ("problem", "options", "message"),
    [
        (Problem("q", metadata={"traces": "x"}), {}, "no trace.*data.columns.*Did you mean 'traces'"),
        (Problem("q", trace="x" * 50), {"max_length": 20}, "over 20 tokens.*over_long: cut"),
        (Problem("q" * 50, trace="x"), {"max_length": 20}, "prompt alone fills.*Raise batch.max_length"),
        (Problem("q", trace=" "), {}, "empty trace.*The first is row 0, whose question is 'q'"),
        (Problem("q", prompt=({"role": "user", "content": "q"},)), {}, "row 0.*the role 'assistant'"),
    ],
)
def test_nothing_left_is_an_error_with_the_likely_cause(tokenizer, problem, options, message):
    with pytest.raises(DataError, match=message):
        tokenize_traces([problem], PROMPT, tokenizer, **options)


MESSAGES = (
    {"role": "user", "content": "1+1?"},
    {"role": "assistant", "content": "2"},
    {"role": "user", "content": "and 2+2?"},
)


UNENDED = MARKED.replace("<|endoftext|>{% endgeneration %}", "{% endgeneration %}<|endoftext|>")


@pytest.mark.parametrize("template", [CHATML, MARKED, UNENDED])
def test_every_answer_of_a_conversation_is_trained_after_what_came_before(tokenizer, template):
    found = tokenize_traces([Problem("q", trace="4", prompt=MESSAGES)], PROMPT, chat(tokenizer, template))
    decoded = [(tokenizer.decode(e.prompt_ids), tokenizer.decode(e.response_ids)) for e in found.examples]
    first = "<|user|>\n1+1?<|endoftext|>\n<|assistant|>\n"
    assert decoded == [
        (first, "2<|endoftext|>"),
        (first + "2<|endoftext|>\n<|user|>\nand 2+2?<|endoftext|>\n<|assistant|>\n", "4<|endoftext|>"),
    ]


def test_a_template_that_ends_no_turn_gets_an_end_of_text(tokenizer):
    bare = "{% for m in messages %}[{{ m.role }}] {{ m.content }}{% endfor %}"
    bare += "{% if add_generation_prompt %}[assistant] {% endif %}"
    found = tokenize_traces([Problem("q", trace="4", prompt=MESSAGES[:1])], PROMPT, chat(tokenizer, bare))
    assert tokenizer.decode(found.examples[0].response_ids) == "4<|endoftext|>"


@pytest.mark.parametrize(
    ("template", "message"),
    [
        (None, "no chat template"),
        ("{{ messages | length }}{{ messages[-1].content }}", "changes what stands before an answer"),
        ("{{ raise_exception('roles!') }}", "refuses the messages of row 0: roles!"),
    ],
)
def test_a_chat_template_that_does_not_fit_is_an_error(tokenizer, template, message):
    with pytest.raises(DataError, match=message):
        tokenize_traces([Problem("q", trace="4", prompt=MESSAGES)], PROMPT, chat(tokenizer, template))


def test_a_template_that_marks_nothing_drops_the_row(tokenizer):
    nothing = MARKED.replace("assistant' %}{% gen", "tool' %}{% gen")
    problems = [Problem("q", trace="4", prompt=MESSAGES[:1]), Problem("q", trace="4")]
    found = tokenize_traces(problems, PROMPT, chat(tokenizer, nothing))
    assert reasons(found) == [(0, "the chat template marks no token of the answer")]


def test_the_cache_is_read_by_content(tokenizer, tmp_path, monkeypatch):
    problems = [Problem(f"q{i}", trace=f"t{i}") for i in range(5)] + [Problem("none")]
    first = tokenize_traces(problems, PROMPT, tokenizer, cache=tmp_path / "c")
    assert first == tokenize_traces(problems, PROMPT, tokenizer)
    calls = []

    def counted(*args):
        calls.append(args)
        return encode(*args)

    encode = module.encode
    monkeypatch.setattr(module, "encode", counted)
    assert tokenize_traces(problems, PROMPT, tokenizer, cache=tmp_path / "c") == first
    assert calls == []
    changed = [*problems[:-1], Problem("none", trace="now")]
    assert len(tokenize_traces(changed, PROMPT, tokenizer, cache=tmp_path / "c").examples) == 6
    assert len(calls) == 1


def test_the_hash_sees_everything_that_tokens_depend_on(tokenizer):
    problem = Problem("q", trace="t")
    base = ([problem], PROMPT, tokenizer, 10, "drop")
    other = [
        ([replace(problem, trace="u")], PROMPT, tokenizer, 10, "drop"),
        ([replace(problem, prompt="q")], PROMPT, tokenizer, 10, "drop"),
        ([problem, problem], PROMPT, tokenizer, 10, "drop"),
        ([problem], Prompt("p", "{question}"), tokenizer, 10, "drop"),
        ([problem], PROMPT, chat(tokenizer, CHATML), 10, "drop"),
        ([problem], PROMPT, tokenizer, 11, "drop"),
        ([problem], PROMPT, tokenizer, 10, "cut"),
    ]
    hashes = [content_hash(*given) for given in (base, *other)]
    assert len(set(hashes)) == len(hashes)
    tokenizer(text="a b", truncation=True, max_length=1)  # leaves its mark on the tokenizer
    assert content_hash(*base) == hashes[0]


def test_a_cache_that_cannot_be_read_says_what_to_do(tokenizer, tmp_path):
    problems = [Problem("q", trace="t")]
    name = content_hash(problems, PROMPT, tokenizer, None, "drop")
    (tmp_path / f"{name}.arrow").write_bytes(b"not arrow")
    with pytest.raises(DataError, match=r"\.arrow cannot be used: .*Delete it"):
        tokenize_traces(problems, PROMPT, tokenizer, cache=tmp_path)


def test_the_cache_lies_where_datasets_keeps_its_own(monkeypatch, tmp_path):
    from datasets import config

    monkeypatch.setattr(config, "HF_DATASETS_CACHE", tmp_path)
    assert default_cache() == tmp_path / "trlmath"


@pytest.mark.parametrize("begins", [False, True])
def test_generation_sees_the_tokens_of_the_prompt_trained_after(tokenizer, begins):
    from tokenizers.processors import TemplateProcessing

    changed = chat(tokenizer, ("<|pad|>" if begins else "") + CHATML)
    if begins:  # a tokenizer that begins every text with a token, and a template that writes it too
        changed.bos_token = "<|pad|>"
        changed.backend_tokenizer.post_processor = TemplateProcessing(
            single="<|pad|> $A", special_tokens=[("<|pad|>", 1)]
        )
        assert changed(text="a")["input_ids"][0] == 1
    problem = Problem("q", trace="4", prompt=MESSAGES)
    last = tokenize_traces([problem], PROMPT, changed).examples[-1]
    assert list(last.prompt_ids) == changed(text=prompt_text(problem, PROMPT, changed))["input_ids"]
    plain = Problem("q", trace="4")
    (example,) = tokenize_traces([plain], PROMPT, changed).examples
    assert list(example.prompt_ids) == changed(text=prompt_text(plain, PROMPT, changed))["input_ids"]
    assert changed.decode(example.response_ids) == "4<|endoftext|>"
