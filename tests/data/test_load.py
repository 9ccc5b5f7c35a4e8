"""Problems by name: files, registered datasets, Hub ids, column mapping, and what is wrong with each."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from trlmath import Problem
from trlmath.data.files import read_rows
from trlmath.data.load import column_names, load_problems, require_answers
from trlmath.errors import DataError, PluginError
from trlmath.recipe import Ref

ROWS = [
    {"question": "What is {x}?\u2028", "answer": 72, "level": "é"},
    {"question": "½ + ½", "answer": "1", "solution": "easy"},
]


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Return a function that writes a file into the working directory and gives its name."""
    monkeypatch.chdir(tmp_path)

    def write(name, text):
        (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
        return name

    return write


def lines(*rows):
    return "\n".join(json.dumps(row, ensure_ascii=False) for row in rows)


def expected(solution=True):
    first = Problem("What is {x}?\u2028", "72", metadata={"level": "é"})
    return [first, Problem("½ + ½", "1", "easy")]


def test_json_lines(write):
    assert load_problems(write("a.jsonl", lines(*ROWS) + "\n\n")) == expected()
    assert load_problems(write("bom.jsonl", b"\xef\xbb\xbf" + lines(*ROWS).encode())) == expected()
    assert load_problems(Ref(name="a.jsonl")) == expected()


def test_json(write):
    assert load_problems(write("a.json", json.dumps(ROWS))) == expected()


def test_csv(write):
    name = write("a.csv", 'question,answer,level\n"a, ""b""\nc",1/2,\nd\u2028e,,3\r\n')
    assert load_problems(name) == [
        Problem('a, "b"\nc', "1/2", metadata={"level": None}),
        Problem("d\u2028e", None, metadata={"level": "3"}),
    ]


def test_parquet(write, tmp_path):
    import pyarrow
    import pyarrow.parquet

    table = pyarrow.table({"question": ["a", "b"], "answer": [1.5, None], "level": [1, 2]})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    assert load_problems("a.parquet") == [
        Problem("a", "1.5", metadata={"level": 1}),
        Problem("b", None, metadata={"level": 2}),
    ]


def test_columns_are_mapped_and_the_rest_is_kept(write):
    name = write("a.jsonl", lines({"problem": "q", "gold": "3", "answer": "long text", "n": 1}))
    assert load_problems(name, columns={"question": "problem", "answer": "gold"}) == [
        Problem("q", "3", metadata={"answer": "long text", "n": 1})
    ]


def error(spec, **more):
    with pytest.raises(DataError) as caught:
        load_problems(spec, **more)
    return str(caught.value)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.jsonl", "", "is empty"),
        ("a.json", "[]", "is empty"),
        ("a.csv", "question,answer\n", "is empty"),
        ("a.jsonl", '{"question": "q"}\n{"question": ', "line 2 is not valid JSON"),
        ("a.jsonl", '{"question": "q"}\n[1]', "line 2 is a JSON list"),
        ("a.json", '{"question": "q"}', "a list of objects is needed"),
        ("a.jsonl", b"\xff\xfe", "not UTF-8"),
        ("a.csv", "question,answer\na,b,c\n", "line 2: the number of cells"),
        ("a.csv", "question,answer,answer\na,b,c\n", "names the column 'answer' more than once"),
        ("a.parquet", b"PAR0", "cannot be read as parquet"),
        ("a.jsonl", '{"questoin": "q"}', "no column 'question' for question. Did you mean 'questoin'?"),
        ("a.jsonl", '{"question": null}', "no question in row 0"),
        ("a.jsonl", '{"question": "q"}\n{"question": " "}', "no question in row 1"),
        ("a.jsonl", '{"question": "q", "answer": ["1"]}', "holds a list in column 'answer', row 0"),
        ("a.txt", "q", "unknown file type '.txt'"),
        ("a.jsonlines", "q", "unknown file type '.jsonlines'. Did you mean '.jsonl'?"),
        ("noext", "q", "unknown file type"),
    ],
)
def test_a_wrong_file_says_where_and_what(write, name, text, message):
    assert message in error(write(name, text))


def test_a_file_that_is_not_there(write, tmp_path):
    write("train.jsonl", "x")
    assert "no file trian.jsonl" in error("trian.jsonl")
    assert "Did you mean 'train.jsonl'" in error("trian.jsonl")
    assert "no file" in error("./some/where.jsonl")
    assert "is a folder" in error(str(tmp_path))
    assert "takes no options" in error(Ref(name="train.jsonl", options={"split": "x"}))


def test_mapping_to_a_column_or_field_that_is_not_there(write):
    name = write("a.jsonl", lines(*ROWS))
    assert "no column 'gold' for answer" in error(name, columns={"answer": "gold"})
    assert "no field 'anwser'. Did you mean 'answer'" in error(name, columns={"anwser": "level"})


def test_answers_that_are_missing_are_counted(write):
    some = load_problems(
        write("a.jsonl", lines({"question": "a", "answer": None}, {"question": "b", "answer": "1"}))
    )
    with pytest.raises(DataError, match=r"no answer in 1 of 2 rows \(first: row 0\).*gradable_gold"):
        require_answers(some, "a.jsonl")
    none = load_problems(write("b.jsonl", lines({"question": "a", "anwser": "1"}, {"question": "b"})))
    with pytest.raises(DataError, match="no answer in any of its 2 rows.*Did you mean 'anwser'"):
        require_answers(none, "b.jsonl")
    require_answers([Problem("a", "0")], "c")


def test_the_columns_that_rewards_can_name(write):
    assert column_names(load_problems(write("a.jsonl", lines(*ROWS)))) == [
        "level",
        "question",
        "answer",
        "solution",
    ]


def test_a_dataset_in_a_file(tmp_path):
    (tmp_path / "d.py").write_text(
        "from trlmath import Problem\n"
        "class Two:\n"
        "    def __init__(self, n: int = 2): self.n = n\n"
        "    def load(self, split):\n"
        "        for i in range(self.n):\n"
        "            yield Problem(f'{split}{i}', str(i), metadata={'k': i})\n"
        "class Empty:\n"
        "    def load(self, split): return []\n"
        "class Wrong:\n"
        "    def load(self, split): return [{'question': 'a'}]\n"
        "class Raises:\n"
        "    def load(self, split): raise OSError('disk')\n"
        "class NoLoad:\n"
        "    pass\n"
    )
    two = f"{tmp_path}/d.py:Two"
    assert [p.question for p in load_problems(Ref(name=two, options={"n": 3}), "eval")] == [
        "eval0",
        "eval1",
        "eval2",
    ]
    assert load_problems(two, columns={"answer": "k"})[1] == Problem("train1", "1", metadata={"answer": "1"})
    assert "no row in its split 'train'" in error(f"{tmp_path}/d.py:Empty")
    for name, message in [
        ("Wrong", "yields dict"),
        ("Raises", "raised OSError in load\\('train'\\): disk"),
        ("NoLoad", "without a method load"),
    ]:
        with pytest.raises(PluginError, match=message):
            load_problems(f"{tmp_path}/d.py:{name}")


def test_nano_is_a_dataset_with_disjoint_splits():
    train = load_problems(Ref(name="nano", options={"train_size": 50}), "train")
    held_out = load_problems(Ref(name="nano", options={"eval_size": 50}), "eval")
    assert len(train) == 50
    assert not {p.question for p in train} & {p.question for p in held_out}
    require_answers(train + held_out, "nano")


def test_names_paths_and_hub_ids_are_told_apart(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "no dataset is called 'nanoo'. Did you mean 'nano'?" in error("nanoo")
    calls = []

    def load_dataset(name, config, split, revision):
        calls.append((name, config, split, revision))
        return [{"question": "q", "answer": "1"}]

    monkeypatch.setitem(__import__("sys").modules, "datasets", SimpleNamespace(load_dataset=load_dataset))
    load_problems("owner/name-1.5")
    load_problems("owner/name", "eval")
    load_problems(
        Ref(name="owner/name", options={"config": "main", "split": "dev", "revision": "abc"}), "eval"
    )
    assert calls == [
        ("owner/name-1.5", None, "train", None),
        ("owner/name", None, "test", None),
        ("owner/name", "main", "dev", "abc"),
    ]
    assert "no option 'spilt'. Did you mean 'split'" in error(Ref(name="owner/name", options={"spilt": "x"}))
    for path in ("./owner/name", "/owner/name", "a/b/c"):
        assert "unknown file type" in error(path)


def test_a_hub_id_that_cannot_be_loaded_says_what_to_do():
    message = error("nobody-at-all/no-such-dataset")  # the tests run offline
    assert "cannot be loaded" in message
    assert "give a local file" in message


def test_gsm8k(shared_dir):
    problems = load_problems(str(shared_dir / "data" / "gsm8k_test.jsonl"))
    assert len(problems) == 1319
    require_answers(problems, "gsm8k")
    assert problems[0].answer == "18"
    assert "farmers' market" in problems[0].question


def test_read_rows_does_not_split_at_unicode_line_separators(write):
    assert read_rows(__import__("pathlib").Path(write("a.jsonl", lines(ROWS[0]))))[0]["question"].endswith(
        "\u2028"
    )
