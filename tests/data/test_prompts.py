"""Prompts: the exact bytes of the source, plain replacement, template files."""

from __future__ import annotations

import hashlib

import pytest

from trlmath import Prompt
from trlmath.data.prompts import FOLDER, load_prompt
from trlmath.errors import PluginError, RecipeError

SHA256 = {
    "r1_zero": "56213732da87e12ace60a2b88a16df0af18280fb0563a957cbecc938a6a2ac0e",
    "question_only": "bf085a6e12c9d0e23a9dd157df084f933b2ef021caba82def1494bfb84a723c9",
}


@pytest.mark.parametrize("name", SHA256)
def test_the_bytes_are_those_of_the_source(name):
    assert hashlib.sha256((FOLDER / f"{name}.prompt").read_bytes()).hexdigest() == SHA256[name]
    assert load_prompt(name).sha256 == SHA256[name]


@pytest.mark.parametrize("name", SHA256)
def test_the_bytes_are_those_of_the_shared_folder(name, shared_dir):
    assert (FOLDER / f"{name}.prompt").read_bytes() == (
        shared_dir / "prompts" / f"{name}.prompt"
    ).read_bytes()


def test_r1_zero_opens_the_thinking_and_stops_at_the_answer():
    prompt = load_prompt("r1_zero")
    assert prompt.render("x").endswith("User: x\nAssistant: <think>")
    assert prompt.stop == "</answer>"
    assert load_prompt("question_only").stop is None


@pytest.mark.parametrize(
    "question",
    [
        "What is {x} in {question}?",
        r"\frac{1}{2} \boxed{}",
        "Größe: 10 € → ½? 数学 \U0001f600",
        "a\nb\r\nc",
        "{0} %s $x",
    ],
)
def test_questions_are_replaced_as_they_stand(question):
    assert load_prompt("question_only").render(question) == question
    assert Prompt("p", "{a} Q: {question} {b}").render(question) == f"{{a}} Q: {question} {{b}}"


def test_a_template_file_is_read_byte_for_byte(tmp_path):
    file = tmp_path / "mine.prompt"
    file.write_bytes("Frage: {question}\r\nAntwort für dich:".encode())
    prompt = load_prompt(str(file), {"stop": "END"})
    assert prompt.render("1?") == "Frage: 1?\r\nAntwort für dich:"
    assert (prompt.name, prompt.stop) == ("mine", "END")
    assert prompt.sha256 == hashlib.sha256(file.read_bytes()).hexdigest()
    with pytest.raises(RecipeError, match="no option 'stops'"):
        load_prompt(str(file), {"stops": "END"})


def test_wrong_template_files(tmp_path):
    with pytest.raises(RecipeError, match="no prompt file"):
        load_prompt(str(tmp_path / "none.prompt"))
    (tmp_path / "latin.prompt").write_bytes(b"\xe9 {question}")
    with pytest.raises(RecipeError, match="not UTF-8"):
        load_prompt(str(tmp_path / "latin.prompt"))
    (tmp_path / "empty.prompt").write_text("Answer {questions}")
    with pytest.raises(RecipeError, match="has no {question}"):
        load_prompt(str(tmp_path / "empty.prompt"))


def test_a_prompt_of_a_file_or_module_and_an_unknown_name(tmp_path):
    (tmp_path / "p.py").write_text(
        "from trlmath import Prompt\nterse = Prompt('terse', '{question}=')\nnope = 'just text'\nnumber = 3\n"
    )
    assert load_prompt(f"{tmp_path}/p.py:terse").render("1+1") == "1+1="
    with pytest.raises(PluginError, match="is the text 'just text', not a prompt"):
        load_prompt(f"{tmp_path}/p.py:nope")
    with pytest.raises(PluginError, match="is a int, not a trlmath.Prompt"):
        load_prompt(f"{tmp_path}/p.py:number")
    with pytest.raises(PluginError, match="Did you mean 'r1_zero'"):
        load_prompt("r1zero")
