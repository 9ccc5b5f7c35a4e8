"""Which changes of a recipe make it another run."""

from __future__ import annotations

from trlmath.recipe import parse_recipe
from trlmath.training.resume import changes


def test_another_address_or_deadline_is_the_same_run_and_another_engine_is_not(tmp_path):
    server = {"mode": "server", "url": "http://a:1", "request_timeout": 5}
    (tmp_path / "recipe.yaml").write_text(parse_recipe({"sampling": server}).to_yaml())
    moved = {"mode": "server", "url": ["http://b:2", "http://c:3"], "weights_dir": "/shared/w"}
    assert changes(tmp_path, parse_recipe({"sampling": moved})) == []
    told = changes(tmp_path, parse_recipe({"sampling": {"engine": "transformers"}}))
    assert told == [
        "sampling.engine was 'auto', is 'transformers'",
        "sampling.mode was 'server', is 'colocate'",
    ]
