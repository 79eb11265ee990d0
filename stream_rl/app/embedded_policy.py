"""The start policy: turns what `policy.model` and `policy.init` say into a Hugging Face folder."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from stream_rl.app.known_policies import recall, remember
from stream_rl.app.policy_cache import cached, default_folder
from stream_rl.errors import ConfigError
from stream_rl.rubrics.vocabulary import builtin

if TYPE_CHECKING:
    from stream_rl.app.embedded_recipe import EmbeddedRecipe, WriterRecipe

# Called with (what is being done, steps done, steps in all).
Progress = Callable[[str, int, int], None]

EMBEDDED = ("embedded", "embedded-large", "embedded-writer")
SMOLLM2 = "smollm2"
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model")


def ensure_policy(model: str, init: str, cache_dir: Path | None, on_progress: Progress) -> Path:
    """A folder with config, safetensors and tokenizer of the policy a run starts from.

    model: "embedded", "embedded-large", "embedded-writer" ("embedded" that can also write criteria), "smollm2",
        a folder, or the name of a model in the local hub cache
    init: "pretrained", or "random-tiny" for a small untrained network with the same tokenizer
    cache_dir: where built models are kept; None for `$STREAM_RL_CACHE` or `~/.cache/stream_rl`

    The embedded policy is built on first use (a minute or two) and found by content afterwards. Raises `ConfigError`.
    """
    cache = cache_dir or default_folder()
    tiny = init == "random-tiny"
    if model in EMBEDDED:
        name = f"{model}-tiny" if tiny else model
        folder = recall(cache, name)
        if folder is None:
            folder = _embedded(model, cache, tiny=tiny, on_progress=on_progress)
            remember(cache, name, folder)
        return folder
    if model == SMOLLM2:
        from stream_rl.app import smollm2  # heavy: transformers

        return smollm2.ensure(cache, tiny=tiny, on_progress=on_progress)
    if tiny:
        raise ConfigError(
            "policy.init",
            f"'random-tiny' is made for {', '.join((*EMBEDDED, SMOLLM2))}; for {model!r} use \"pretrained\".",
        )
    folder = Path(model).expanduser()
    if folder.exists():
        return _checked(folder, model)
    if folder.is_absolute() or model.startswith((".", "~")):
        raise ConfigError("policy.model", f"{model!r} does not exist; expected a folder with a Hugging Face model.")
    return _checked(_from_hub_cache(model), model)


def build_embedded(folder: Path, recipe: EmbeddedRecipe, on_progress: Progress) -> None:
    """Make tokenizer and network in `folder`, and teach it by imitation of the noisy player."""
    from learner import imitation, small_models  # heavy: torch
    from stream_rl.app import embedded_demos, embedded_tokenizer

    tokenizer = embedded_tokenizer.build(builtin())
    model = small_models.qwen3(
        recipe.shape,
        vocab_size=embedded_tokenizer.model_vocabulary_size(tokenizer),
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        seed=recipe.seed,
    )
    loss = None
    if recipe.imitation.steps:
        loss = imitation.imitate(
            model,
            embedded_demos.DemoSource(tokenizer, builtin(), recipe.demos),
            recipe.imitation,
            lambda step, total, loss: on_progress(f"imitating a scripted player, loss {loss:.2f}", step, total),
        )
    small_models.save(model, folder)
    embedded_tokenizer.save(tokenizer, folder)
    facts = {
        "recipe": msgspec.to_builtins(recipe),
        "final_loss": loss,
        "parameters": small_models.num_parameters(model),
    }
    (folder / "recipe.json").write_bytes(msgspec.json.format(msgspec.json.encode(facts)))


def build_writer(folder: Path, base: Path, recipe: WriterRecipe, on_progress: Progress) -> None:
    """Teach the embedded policy in `base` to answer the compact writing prompt, and save it to `folder`."""
    from transformers import AutoModelForCausalLM  # heavy: seconds

    from learner import imitation, small_models  # heavy: torch
    from stream_rl.app import embedded_tokenizer, embedded_writing

    tokenizer = embedded_tokenizer.build(builtin())
    with small_models.no_progress_bars():
        model = AutoModelForCausalLM.from_pretrained(base, dtype="float32")
    loss = imitation.imitate(
        model,
        embedded_writing.WritingSource(tokenizer, builtin(), recipe.writing),
        recipe.imitation,
        lambda step, total, loss: on_progress(f"learning to write criteria, loss {loss:.2f}", step, total),
    )
    small_models.save(model, folder)
    embedded_tokenizer.save(tokenizer, folder)
    facts = {"recipe": msgspec.to_builtins(recipe), "base": base.name, "final_loss": loss}
    (folder / "recipe.json").write_bytes(msgspec.json.format(msgspec.json.encode(facts)))


def _embedded(model: str, cache: Path, *, tiny: bool, on_progress: Progress) -> Path:
    from learner.small_models import SHAPES  # heavy: torch
    from stream_rl.app.embedded_recipe import RECIPES, WRITERS, content_key, writer_key

    writer = WRITERS.get(model)
    if writer and not tiny:
        base = _embedded(writer.base, cache, tiny=False, on_progress=on_progress)
        key = f"{model}-{writer_key(writer, base.name)}"
        return cached(cache, key, lambda folder: build_writer(folder, base, writer, on_progress))
    recipe, name = RECIPES[writer.base if writer else model], model
    if tiny:
        untrained = msgspec.structs.replace(recipe.imitation, steps=0)
        recipe, name = msgspec.structs.replace(recipe, shape=SHAPES["tiny"], imitation=untrained), "embedded-tiny"
    key = f"{name}-{content_key(recipe, builtin())}"
    return cached(cache, key, lambda folder: build_embedded(folder, recipe, on_progress))


def _from_hub_cache(name: str) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(name, local_files_only=True))
    except (HFValidationError, LocalEntryNotFoundError):
        known = [*EMBEDDED, SMOLLM2]
        nearest = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
        raise ConfigError(
            "policy.model",
            f"{name!r} is not one of {', '.join(known)}, not a folder, and not in the local hub cache "
            f"(nothing is downloaded; fetch it first with: hf download {name}).",
            nearest=nearest[0] if nearest else None,
        ) from None


def _checked(folder: Path, model: str) -> Path:
    if not (folder / "config.json").is_file():
        raise ConfigError("policy.model", f"{model!r} holds no config.json; expected a Hugging Face model.")
    if not any((folder / name).is_file() for name in _TOKENIZER_FILES):
        raise ConfigError(
            "policy.model", f"{model!r} holds no tokenizer; expected one of {', '.join(_TOKENIZER_FILES)}."
        )
    return folder.resolve()
