"""Does a data folder behave as upstream does? Recorded episodes of the upstream program are replayed on it."""

from __future__ import annotations

import logging
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TypedDict

import msgspec

from envs.webshop import pages
from envs.webshop.actions import parse_action
from envs.webshop.catalogue import Product
from envs.webshop.goals import NO_LIMIT, Goal
from envs.webshop.nouns import NounFinder, noun_finder
from envs.webshop.session import Session
from envs.webshop.shop import Shop, open_shop
from stream_rl.errors import UsageError

log = logging.getLogger(__name__)

_LIMIT = re.compile(r", and price lower than (\d+\.\d\d) dollars$")


class Clickables(msgspec.Struct, frozen=True):
    """Upstream's available actions."""

    has_search_bar: bool  # the start page
    clickables: list[str]  # labels, in order


class RecordedStep(msgspec.Struct, frozen=True):
    """What upstream answered. The first one of an episode has no action."""

    obs: str  # in text mode
    rich: str  # in rich mode
    av: Clickables  # afterwards
    action: str | None = None  # as it was sent
    reward: float = 0.0  # of this step
    done: bool = False  # the episode ended


class RecordedGrade(msgspec.Struct, frozen=True):
    """Parts of the recorded reward that upstream's chance decided."""

    r_price: bool  # the price drawn was within the limit


class Transcript(msgspec.Struct, frozen=True):
    """One recorded episode."""

    goal_idx: int  # position in upstream's shuffled goals
    steps: list[RecordedStep]  # in order
    verbose: RecordedGrade | None = None  # of the purchase; None if nothing was bought


class Mismatch(msgspec.Struct, frozen=True, kw_only=True):
    """One step that came out otherwise."""

    goal: int  # goal of the episode
    step: int  # position in the episode, 0 is the start page
    what: str  # "observation", "rich observation", "clickables", "reward", "done"; joined by ", "


class Replay(TypedDict):
    """Result of a replay."""

    steps: int  # compared, start pages included
    mismatches: int  # of them


def replay_transcripts(data_dir: str | Path, transcripts_file: str | Path, nouns: str = "rule") -> Replay:
    """Replay every recorded episode; compare observations of both modes, clickables, reward and end of each step.

    What upstream drew by chance is taken from the recording: limits from the instructions, and, where only a range of
    a price is known, the end of it that fits the recorded grade. Every mismatch is a warning in the log. Raises
    `ConfigError` for the data, `UsageError` for the transcripts.
    """
    transcripts = read_transcripts(Path(transcripts_file))
    shop, finder = open_shop(str(data_dir), 0, 0), noun_finder(nouns)
    wrong = [mismatch for transcript in transcripts for mismatch in replay(shop, transcript, finder)]
    for mismatch in wrong:
        log.warning("webshop: goal %d, step %d differs in %s", mismatch.goal, mismatch.step, mismatch.what)
    return Replay(steps=sum(len(transcript.steps) for transcript in transcripts), mismatches=len(wrong))


def read_transcripts(path: Path) -> list[Transcript]:
    """Recorded episodes: a JSON list. Raises `UsageError` for a file that is not one."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=list[Transcript])
    except (OSError, msgspec.DecodeError) as error:
        raise UsageError(f"webshop: {path} holds no recorded episodes: {error}") from error


def replay(shop: Shop, transcript: Transcript, nouns: NounFinder) -> Iterator[Mismatch]:
    """The steps of one episode that came out otherwise."""
    number = transcript.goal_idx
    if not 0 <= number < len(shop.goals):
        yield Mismatch(goal=number, step=0, what=f"the number of goals, which is {len(shop.goals)} here")
        return

    def price(product: Product) -> float:
        if transcript.verbose is None:
            return shop.price(product)
        return product.prices[0] if transcript.verbose.r_price else product.prices[-1]

    session = Session(
        shop.catalogue,
        shop.search,
        _as_recorded(shop.goals[number], transcript),
        price=price,
        nouns=nouns,
        rng=random.Random(0),
    )
    for place, recorded in enumerate(transcript.steps):
        before = session.reward
        if recorded.action is not None:
            session.act(parse_action(recorded.action))
        if what := ", ".join(_differences(session, recorded, session.reward - before)):
            yield Mismatch(goal=number, step=place, what=what)


def _as_recorded(goal: Goal, transcript: Transcript) -> Goal:
    """The goal with the limit of the recording, whatever limit our seed gave it."""
    limits = [found for node in transcript.steps[0].obs.split(" [SEP] ") if (found := _LIMIT.search(node))]
    ours = _LIMIT.sub("", goal.instruction)
    if not limits:
        return msgspec.structs.replace(goal, instruction=ours, price_limit=NO_LIMIT)
    return msgspec.structs.replace(goal, instruction=ours + limits[0].group(), price_limit=float(limits[0].group(1)))


def _differences(session: Session, recorded: RecordedStep, reward: float) -> Iterator[str]:
    if pages.plain(session.page) != recorded.obs:
        yield "observation"
    if pages.rich(session.page) != recorded.rich:
        yield "rich observation"
    here = Clickables(pages.has_search_bar(session.page), list(pages.clickables(session.page)))
    if here != recorded.av:
        yield "clickables"
    if reward != recorded.reward:
        yield "reward"
    if (session.grade is not None) != recorded.done:
        yield "done"
