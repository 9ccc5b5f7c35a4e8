"""Teachers: what an OpenAI-compatible server is asked and how its answers are read; a model in process."""

from __future__ import annotations

import json

import pytest
from made_up_server import send_json, serving

from trlmath import Group, Rollout
from trlmath.errors import EngineError
from trlmath.sampling.settings import SamplingSettings
from trlmath.sampling.teacher import LocalTeacher, ServedTeacher

SETTINGS = SamplingSettings(temperature=0.5, top_p=0.9, max_tokens=9, stop=("</answer>",), seed=5)


@pytest.fixture
def server():
    """A server whose answers a test can change; `asked` keeps what it was asked."""

    def answer(handler, text):
        if text is None:
            models = [{"id": name, "owned_by": http.owner} for name in http.names]
            return send_json(handler, {"data": models})
        body = json.loads(text)
        http.asked.append((handler.path, body, handler.headers.get("Authorization")))
        if http.busy:
            http.busy -= 1
            return send_json(handler, {"error": "slow down"}, 429)
        said = http.text or f"t{body.get('seed')}"
        choice = {"message": {"content": said}} if "chat" in handler.path else {"text": said}
        told = {
            "choices": [choice | {"finish_reason": http.finish}],
            "usage": {"completion_tokens": 4},
        }
        return send_json(handler, told if http.answers else {"error": "no"})

    with serving(answer) as http:
        http.asked, http.busy, http.finish, http.text, http.answers = [], 0, "stop", None, True
        http.names, http.owner = ["m"], "someone"
        yield http


def test_groups_come_back_in_order_each_completion_with_its_own_seed(server):
    groups = ServedTeacher(server.url + "/v1").generate(["one", "two"], SETTINGS, n=2)
    assert [[r.text for r in g.rollouts] for g in groups] == [["t5", "t6"], ["t7", "t8"]]
    assert [g.prompt for g in groups] == ["one", "two"]
    assert len(groups[0].rollouts[0].token_ids) == 4
    bodies = sorted((body for _, body, _ in server.asked), key=lambda body: body["seed"])
    assert bodies[0] == {
        "model": "m",
        "prompt": "one",
        "temperature": 0.5,
        "top_p": 0.9,
        "max_tokens": 9,
        "seed": 5,
    }


def test_vllm_is_told_every_setting_and_keeps_the_stop_string(server):
    server.owner = "vllm"
    ServedTeacher(server.url).generate(["one"], SETTINGS, n=1)
    body = server.asked[0][1]
    assert (body["stop"], body["include_stop_str_in_output"]) == (["</answer>"], True)
    assert (body["top_k"], body["min_tokens"], body["repetition_penalty"]) == (0, 0, 1.0)


def test_the_text_of_other_servers_is_cut_after_the_stop_string(server):
    server.text, server.finish = "a </answer> b </answer>", "length"
    (group,) = ServedTeacher(server.url).generate(["one"], SETTINGS, n=1)
    assert (group.rollouts[0].text, group.rollouts[0].finish_reason) == ("a </answer>", "stop")
    server.text = "cut off"
    (group,) = ServedTeacher(server.url).generate(["one"], SETTINGS, n=1)
    assert group.rollouts[0].finish_reason == "length"


def test_chat_and_key(server):
    teacher = ServedTeacher(server.url, "m", chat=True, api_key="secret")
    teacher.generate(["one"], SETTINGS, n=1)
    path, body, key = server.asked[0]
    assert (path, body["messages"]) == ("/v1/chat/completions", [{"role": "user", "content": "one"}])
    assert key == "Bearer secret"
    assert "secret" not in json.dumps(teacher.identity)


def test_a_busy_server_is_asked_again(server, monkeypatch):
    monkeypatch.setattr("trlmath.sampling.server_http.RETRY_AFTER", (0.01, 0.01))
    server.busy = 2
    assert ServedTeacher(server.url).generate(["one"], SETTINGS, n=1)[0].rollouts[0].text == "t5"


def test_what_can_be_wrong(server):
    server.names = ["big", "small"]
    with pytest.raises(EngineError, match="serves big, small, not None.*--model"):
        ServedTeacher(server.url)
    with pytest.raises(EngineError, match="not 'smal'. Did you mean 'small'"):
        ServedTeacher(server.url, "smal")
    server.answers = False
    with pytest.raises(EngineError, match="does not answer as OpenAI's does"):
        ServedTeacher(server.url, "big").generate(["one"], SETTINGS, n=1)


class Engine:
    """Repeats what it is given."""

    def generate(self, prompts, settings, n):
        return [Group("", tuple(p), (Rollout(str(len(p)), (1,)),) * n) for p in prompts]


class Letters:
    """A tokenizer of one token a letter."""

    chat_template = None

    def __call__(self, text, add_special_tokens=True):
        return {"input_ids": [[0] * add_special_tokens + list(map(ord, t)) for t in text]}

    def apply_chat_template(self, messages, tokenize, add_generation_prompt):
        assert not tokenize
        assert add_generation_prompt
        return f"<u>{messages[0]['content']}<a>"


def test_a_local_teacher_is_loaded_when_it_is_asked():
    loaded = []

    def load():
        loaded.append(1)
        return Engine()

    teacher = LocalTeacher({"model": "x"}, Letters(), load)
    assert loaded == []
    groups = teacher.generate(["ab"], SETTINGS, 2)
    teacher.generate(["ab"], SETTINGS, 1)
    assert loaded == [1]
    assert (groups[0].prompt, groups[0].rollouts[0].text, len(groups[0].rollouts)) == ("ab", "3", 2)
    with pytest.raises(EngineError, match="no chat template"):
        LocalTeacher({"model": "x"}, Letters(), load, chat=True)
    letters = Letters()
    letters.chat_template = "there is one"
    chat = LocalTeacher({"model": "x"}, letters, load, chat=True)
    assert chat.tokenize(["q"]) == [list(map(ord, "<u>q<a>"))]
