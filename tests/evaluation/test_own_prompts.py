"""Held-out rows that bring a prompt of their own are evaluated with it."""

from __future__ import annotations

import json

from trlmath.evaluation.prepare import prepare_evaluation
from trlmath.recipe import parse_recipe


def test_a_prompt_column_is_given_as_it_is(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({"prompt": "2+2=", "answer": "4"}) + "\n")
    prepared = prepare_evaluation(parse_recipe({"data": {"eval": str(path)}}))
    assert prepared.data.prompts == ["2+2="]
    assert prepared.data.prompt_ids == [prepared.files.tokenizer(text="2+2=")["input_ids"]]
