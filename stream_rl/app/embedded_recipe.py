"""How the embedded policy is made: shape, demonstrations, imitation.

What it is meant to be: a start for RL that succeeds in about a fifth of held-out episodes when sampled, and in clearly
more when told rubrics; and, as a writer, one that names criteria which tell the rollouts of a group apart.
`python -m benchmarks.policy_quality` measures all three.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import msgspec

from learner.imitation import ImitationRecipe
from learner.small_models import SHAPES, ModelShape
from stream_rl.app.embedded_demos import DemoRecipe
from stream_rl.app.embedded_sources import SOURCES, WRITER_SOURCES, Sources, add_sources
from stream_rl.app.embedded_writing import WritingRecipe
from stream_rl.rubrics.vocabulary import Vocabulary


class EmbeddedRecipe(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that decides the weights."""

    shape: ModelShape  # of the network
    demos: DemoRecipe = DemoRecipe()  # what is imitated
    imitation: ImitationRecipe = ImitationRecipe()  # how
    seed: int = 0  # of the first weights


RECIPES = {
    "embedded": EmbeddedRecipe(shape=SHAPES["embedded"]),
    # Four to five times the work: for machines with more than two cores.
    "embedded-large": EmbeddedRecipe(
        shape=SHAPES["embedded-large"], imitation=ImitationRecipe(matrix_lr=0.015, vector_lr=0.005)
    ),
}


class WriterRecipe(msgspec.Struct, frozen=True, kw_only=True):
    """What an embedded policy is taught after its first imitation, so that it can also write criteria."""

    base: str  # name in `RECIPES` of the policy it starts as
    writing: WritingRecipe = WritingRecipe()  # what is imitated
    imitation: ImitationRecipe = ImitationRecipe(  # how: short and gentle, for the play is to stay what it is
        steps=240, tokens_per_step=3000, matrix_lr=0.008, vector_lr=0.003, threads=1
    )


WRITERS = {"embedded-writer": WriterRecipe(base="embedded")}


def content_key(recipe: EmbeddedRecipe, vocabulary: Vocabulary) -> str:
    """Hash of the recipe, of the sources of world, player, tokenizer and imitation, and of the vocabulary's phrases.

    The policy reads hints and avoid notes alone. How a judge is told to decide a rubric is none of its business.
    """
    phrases = [(rubric.id, rubric.hint, rubric.avoid) for rubric in vocabulary.rubrics]
    ground = hashlib.sha256(msgspec.msgpack.encode(phrases)).hexdigest()
    return _key(msgspec.json.encode(recipe, order="sorted"), ground, SOURCES)


def writer_key(recipe: WriterRecipe, base_key: str) -> str:
    """Hash of the recipe, of the key of the policy it starts from, and of the sources of prompt, answers and rules."""
    return _key(msgspec.json.encode(recipe, order="sorted"), base_key, WRITER_SOURCES)


def _key(recipe: bytes, ground: str, sources: Iterable[Sources]) -> str:
    digest = hashlib.sha256(recipe)
    digest.update(ground.encode())
    add_sources(digest, sources)
    return digest.hexdigest()[:16]
