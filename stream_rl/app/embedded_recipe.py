"""How the embedded policy is made: shape, demonstrations, imitation.

What it is meant to be: a start for RL that succeeds in about a fifth of held-out episodes when sampled, and in clearly
more when told rubrics. `python -m benchmarks.policy_quality` measures both.
"""

from __future__ import annotations

import hashlib
from importlib import resources

import msgspec

from learner.imitation import ImitationRecipe
from learner.small_models import SHAPES, ModelShape
from stream_rl.app.embedded_demos import DemoRecipe
from stream_rl.rubrics.vocabulary import Vocabulary

_SOURCES = (
    ("envs.household", None),
    ("learner", ("imitation.py", "small_models.py")),
    ("stream_rl.app", ("embedded_demos.py", "embedded_tokenizer.py")),
)


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


def content_key(recipe: EmbeddedRecipe, vocabulary: Vocabulary) -> str:
    """Hash of the recipe, of the sources of world, player, tokenizer and imitation, and of the vocabulary."""
    digest = hashlib.sha256(msgspec.json.encode(recipe, order="sorted"))
    digest.update(vocabulary.digest.encode())
    for package, names in _SOURCES:
        folder = resources.files(package)
        for file in sorted(folder.iterdir(), key=lambda file: file.name):
            if file.name.endswith(".py") and (names is None or file.name in names):
                digest.update(f"{package}/{file.name}".encode())
                digest.update(file.read_bytes())
    return digest.hexdigest()[:16]
