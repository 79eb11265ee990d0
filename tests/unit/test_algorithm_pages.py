"""The pages in docs/algorithms name functions, configurations and options: all of them must exist."""

import ast
import re
from pathlib import Path

import pytest

from stream_rl.config import Algorithm, Groups

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted((ROOT / "docs" / "algorithms").glob("*.md"))
LINK = re.compile(r"\[(?P<text>[^\]]*)\]\((?P<target>[^)#\s]+)\)")
NAME = re.compile(r"`(?P<name>\w+(?:\.\w+)?)`")


def defined_in(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{inner.name}" for inner in node.body if isinstance(inner, ast.FunctionDef)}
    return names


def test_every_system_has_its_page() -> None:
    assert {page.stem for page in PAGES} == {"gigpo", "grpo", "opsd", "orsd", "rised"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_lead_somewhere_and_named_functions_are_there(page: Path) -> None:
    for link in LINK.finditer(page.read_text(encoding="utf-8")):
        target = (page.parent / link["target"]).resolve()
        assert target.exists(), link[0]
        named = NAME.fullmatch(link["text"])
        if named and target.suffix == ".py":
            assert named["name"] in defined_in(target), link[0]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_its_configuration_and_the_options_it_names_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert f"configs/embedded-{page.stem}.toml" in text
    for path in re.findall(r"(?:configs|tests)/[\w/-]+\.\w+", text):
        assert (ROOT / path).is_file(), path
    for section, keys in (("algorithm", Algorithm), ("groups", Groups)):
        for key in re.findall(rf"\b{section}\.(\w+)", text):
            assert key in {*keys.__struct_fields__, "discarded"}, f"{section}.{key}"
