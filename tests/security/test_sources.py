"""No source evaluates, unpickles or runs through a shell what it was given: all of them are read for it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted(
    path for folder in ("trlmath", "recipes", "plugins", ".ci") for path in (ROOT / folder).rglob("*.py")
)
# (file, what) -> why it is no danger
ALLOWED = {
    ("trlmath/conformance/common.py", "pickle.loads"): "bytes made on the same line",
    ("trlmath/conformance/common.py", "import pickle"): "as above",
    ("trlmath/sampling/models.py", "import pickle"): "the name of an error",
}
MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "marshal", "shelve", "tarfile", "zipfile"}
CALLS = {"eval", "exec", "compile", "__import__", "sympify", "parse_expr", "literal_eval"}
LOADERS = {"torch.load", "yaml.load", "np.load", "numpy.load", "pickle.load", "pickle.loads"}
SHELLS = {"os.system", "os.popen", "subprocess.getoutput", "subprocess.getstatusoutput"}


def dotted(node):
    """`a.b.c` of an attribute or name; its last part where something else stands before."""
    if isinstance(node, ast.Attribute):
        before = dotted(node.value)
        return f"{before or '?'}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def given(call, name):
    """A keyword's constant value, or None."""
    found = next((k.value for k in call.keywords if k.arg == name), None)
    return found.value if isinstance(found, ast.Constant) else None


def dangers(source):
    """(line, what) of everything in a source that could run what it was given."""
    for node in ast.walk(ast.parse(source)):
        line = getattr(node, "lineno", 0)
        if isinstance(node, ast.Import):
            yield from ((line, f"import {a.name}") for a in node.names if a.name.split(".")[0] in MODULES)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in MODULES:
            yield line, f"import {node.module}"
        elif isinstance(node, ast.Call):
            name = dotted(node.func)
            last = name.rsplit(".", 1)[-1]
            # re.compile and model.eval() are other things
            if (name in CALLS) or (last in ("sympify", "parse_expr") and "." in name):
                yield line, name
            if name in LOADERS and given(node, "weights_only") is not True:
                yield line, name
            if name in SHELLS or given(node, "shell") is True:
                yield line, f"{name} with a shell"
            if given(node, "allow_pickle") or given(node, "trust_remote_code"):
                yield line, f"{name} runs what it loads"
            remote = "from_pretrained" in last and any(
                part in name for part in ("Auto", "Config", "Tokenizer", "Processor")
            )
            if remote and given(node, "trust_remote_code") is not False:
                yield line, f"{name} without trust_remote_code=False"


def test_nothing_runs_what_it_was_given():
    assert len(SOURCES) > 200
    found = [
        f"{name}:{line}: {what}"
        for path in SOURCES
        for line, what in dangers(path.read_text(encoding="utf-8"))
        if ((name := path.relative_to(ROOT).as_posix()), what) not in ALLOWED
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "source",
    [
        "eval(text)",
        "exec(text)",
        "import pickle",
        "from dill import loads",
        "sympy.sympify(text)",
        "torch.load(path)",
        "torch.load(path, weights_only=False)",
        "yaml.load(text)",
        "np.load(path, allow_pickle=True)",
        "subprocess.run(text, shell=True)",
        "os.system(text)",
        "import tarfile",
        "AutoModelForCausalLM.from_pretrained(path)",
        "AutoConfig.from_pretrained(path, trust_remote_code=True)",
    ],
)
def test_the_search_finds(source):
    assert list(dangers(source))


@pytest.mark.parametrize(
    "source", ["model.eval()", "re.compile(x)", "torch.load(p, weights_only=True)", "json.loads(text)"]
)
def test_the_search_lets_be(source):
    assert not list(dangers(source))
