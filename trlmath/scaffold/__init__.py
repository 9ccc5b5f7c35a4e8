"""`trlmath plugins new`: write a complete plugin distribution from the templates beside this file."""

from __future__ import annotations

import re
from pathlib import Path

import jinja2

from trlmath import __version__
from trlmath.components import KINDS, PLURAL, Kind
from trlmath.errors import RecipeError, nearest
from trlmath.hookspecs import API
from trlmath.plugins import discover
from trlmath.recipe.yamls import parse

TEMPLATES = Path(__file__).parent / "templates"
# template -> file of the distribution; both are rendered
FILES = {
    "pyproject.toml.jinja": "pyproject.toml",
    "{{ kind }}.py.jinja": "{{ module }}.py",
    "test_{{ kind }}.py.jinja": "tests/test_{{ module }}.py",
    "README.md.jinja": "README.md",
    "ci.yml.jinja": ".github/workflows/test.yml",
    "gitignore.jinja": ".gitignore",
}


def write_plugin(name: str, kind: Kind, into: Path) -> Path:
    """Write the distribution of one component and return its folder, ``into/name``.

    Args:
        name: of the component, ``shout``; ``trlmath-shout`` means the same. The distribution is
            ``trlmath-shout``, its module ``trlmath_shout``.
        kind: what it offers.

    Raises:
        RecipeError: the name cannot be one, is taken by an installed component, or the folder exists.
    """
    short = re.sub(r"^trlmath[-_]", "", name)
    if kind not in KINDS:
        raise RecipeError(f"no kind {kind!r}.{nearest(kind, KINDS)} Kinds: {', '.join(KINDS)}.")
    if not re.fullmatch(r"[a-z][a-z0-9]*([-_][a-z0-9]+)*", short):
        raise RecipeError(
            f"{name!r} cannot be a plugin's name: use small letters, digits and single '-' or '_', such as "
            "brief-answers."
        )
    component = short.replace("-", "_")
    if not isinstance(parse(component, name), str):
        raise RecipeError(f"{name!r} cannot be a plugin's name: in a recipe {component} is not a text.")
    taken = discover().registry.names(kind)
    if component in taken:
        raise RecipeError(
            f"there is a {kind} {component!r} already (`trlmath plugins show`); choose another."
        )
    folder = into / name
    if into.exists() and not into.is_dir():
        raise RecipeError(f"{into} is a file. Give the folder to write into.")
    if folder.exists():
        raise RecipeError(
            f"{folder} exists already; nothing in it was changed. Choose another name or --into."
        )
    facts = {
        "kind": kind,
        "plural": PLURAL[kind],
        "component": component,
        "distribution": f"trlmath-{short.replace('_', '-')}",
        "module": f"trlmath_{component}",
        "cls": "".join(part.capitalize() for part in component.split("_")),
        "api": API,
        "lowest": ".".join(__version__.split(".")[:2]),
        "next": f"{__version__.split('.')[0]}.{int(__version__.split('.')[1]) + 1}",
    }
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        autoescape=False,  # Python and TOML, not HTML
    )
    for template, file in FILES.items():
        source = environment.from_string(template).render(facts)
        target = folder / environment.from_string(file).render(facts)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(environment.get_template(source).render(facts), encoding="utf-8")
    return folder
