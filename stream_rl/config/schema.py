"""Every knob a user may set, declared and documented."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from stream_rl.config.algorithm import Algorithm
from stream_rl.config.base import Count, Fraction, NonNegative, NonNegativeFloat, PositiveFloat, Section


class Groups(Section, frozen=True, kw_only=True):
    """`[groups]`: how many rollouts make a round."""

    per_update: Count = 16  # P, groups trained in one update
    candidates: Count = 16  # C, candidate groups in one round, C >= P
    size: Count = 8  # G, rollouts of one task
    min_valid: NonNegative = 0  # fewer valid members: the group is discarded and refilled; 0 means half of `size`
    deadline_s: PositiveFloat = 300.0  # a group is closed with what it has after this long
    window: Count = 1  # rounds within which a finished group takes a straggler's place; 1: none does
    buffer: NonNegative = 0  # groups that may wait, judged, before later rounds stop; 0: (async_depth + 1) * candidates


class Policy(Section, frozen=True, kw_only=True):
    """`[policy]`: the model that learns."""

    model: str = "embedded"  # "embedded", "embedded-writer", "embedded-large", "smollm2", a folder, or a hub name
    init: Literal["pretrained", "random-tiny"] = "pretrained"  # "random-tiny": same architecture, made small
    dtype: Literal["float32", "bfloat16"] = "float32"  # parameters in learner and generator


class Scripted(Section, frozen=True, kw_only=True):
    """`[generate.scripted]`: how fast the engine "scripted" is, which has no model and samples evenly at random."""

    turn_s: NonNegativeFloat = 0.06  # of a turn, median
    spread: NonNegativeFloat = 0.6  # standard deviation of its logarithm: few turns take much longer; 0: none does


class Generate(Section, frozen=True, kw_only=True):
    """`[generate]`: sampling."""

    engine: Literal["auto", "vllm", "vllm-http", "transformers", "scripted"] = "auto"  # "auto": vllm where installed
    producers: Count = 1  # producer processes, each with a generator of its own
    servers: tuple[str, ...] = ()  # with "vllm-http": addresses of vLLM servers you run, one for each producer
    key_env: str = ""  # with "vllm-http": name of the environment variable that holds the servers' key
    temperature: PositiveFloat = 1.0  # of training rollouts
    max_tokens: Count = 8  # limit of one turn, where an environment sets none of its own
    max_turns: Count = 20  # limit of one episode, where an environment sets none of its own
    max_model_len: Count = 512  # longest token sequence, prompt and answers together
    concurrency: Count = 256  # sequences one generator samples at once
    threads: Count = 1  # CPU threads of one generator
    scripted: Scripted = Scripted()  # with the engine "scripted"


class EnvironmentConfig(Section, frozen=True, kw_only=True):
    """One `[[environments]]` entry."""

    name: str = "household"  # which world
    share: PositiveFloat = 1.0  # relative share of the training tasks
    data: str = ""  # folder or file of the user's data, for worlds that need one
    split: Literal["train"] = "train"  # training split; validation always uses the held-out one
    workers: Count = 1  # worker processes
    step_deadline_s: PositiveFloat = 10.0  # a call that takes longer ends the episode and restarts the worker
    worker_memory_mib: NonNegative = 4096  # a worker that holds more is replaced between episodes; 0: no limit
    max_turns: NonNegative = 0  # limit of one episode here, in training and validation; 0: generate.max_turns
    max_tokens: NonNegative = 0  # limit of one turn here, in training and validation; 0: generate.max_tokens
    history: NonNegative = 0  # past turns shown in a prompt that is written anew each turn; 0: all, in one conversation
    template: str = ""  # with `history`: a prompt file, or a built-in one by name; empty: the world's own
    thinking: bool = False  # with `history`: the policy thinks first and gives its action in tags
    options: dict[str, Any] = msgspec.field(default_factory=dict)  # the world's own settings, see `stream-rl envs list`


class EpisodeLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How long the episodes of one environment may be."""

    max_turns: int  # turns of an episode
    max_tokens: int  # tokens of a turn

    @property
    def episode_tokens(self) -> int:
        """Most tokens one episode can sample."""
        return self.max_turns * self.max_tokens


class JudgeEndpoint(Section, frozen=True, kw_only=True):
    """One `[[judge.endpoints]]` entry."""

    url: str  # base address ending in /v1, or "embedded" for the rule judge this project starts
    model: str = "rules"  # model name sent to the endpoint
    key_env: str = ""  # name of the environment variable that holds the key; the key itself is never stored
    requests_per_minute: NonNegative = 0  # 0: no limit
    tokens_per_minute: NonNegative = 0  # 0: no limit
    concurrency: Count = 8  # requests in flight at once
    deadline_s: PositiveFloat = 30.0  # for one tagging, retries included
    price_in: NonNegativeFloat = 0.0  # per million prompt tokens
    price_out: NonNegativeFloat = 0.0  # per million completion tokens
    tier: NonNegative = 0  # lower tiers are preferred while they can keep up
    delay_s: NonNegativeFloat = 0.0  # with "embedded": every answer takes at least so long, as a model's would


class JudgeConfig(Section, frozen=True, kw_only=True):
    """`[judge]`: the judging stage."""

    required: bool = True  # false: groups go on without verdicts when no endpoint answers
    vocabulary: str = "builtin"  # "builtin" or a TOML file of rubrics
    endpoints: tuple[JudgeEndpoint, ...] = ()  # none: no judging
    chunk: Count = 64  # rubrics, or written criteria, asked in one request
    second_share: Fraction = 0.02  # share of tagged rollouts that are tagged again, to see how far the judge agrees
    hedge_share: Fraction = 0.05  # second requests for late answers, as a share of all others; 0: none


class Learner(Section, frozen=True, kw_only=True):
    """`[learner]`: the DeepSpeed engine."""

    lr: PositiveFloat = 1e-6  # constant learning rate
    weight_decay: NonNegativeFloat = 0.0  # AdamW
    betas: tuple[Fraction, Fraction] = (0.9, 0.95)  # AdamW
    grad_clip: PositiveFloat = 1.0  # global gradient norm
    zero_stage: Annotated[int, Meta(ge=0, le=3)] = 1  # DeepSpeed ZeRO
    ranks: Count = 1  # processes
    threads: Count = 1  # CPU threads of one rank
    mini_batches: Count = 1  # optimiser steps in one update
    token_budget: Count = 8192  # padded tokens of one micro-batch
    checkpoint_every: NonNegative = 20  # updates between checkpoints; 0: only at the end
    lora_rank: NonNegative = 0  # rank of adapters, which alone are trained and published; 0: all parameters are
    lora_alpha: PositiveFloat = 32.0  # adapters are scaled by lora_alpha / lora_rank


class Weights(Section, frozen=True, kw_only=True):
    """`[weights]`: how versions reach the generators."""

    transport: Literal["files", "stream", "nccl"] = "files"  # a shared directory; pulled from the learner; over NCCL
    dtype: Literal["policy", "bfloat16"] = "policy"  # of published parameters; "bfloat16" rounds (docs/weights.md)
    mode: Literal["in_flight", "drain"] = "in_flight"  # "drain": running groups finish before an update
    directory: str = ""  # where version files lie; empty: memory-backed where there is one
    deadline_s: PositiveFloat = 120.0  # a generator that takes longer is restarted


class Eval(Section, frozen=True, kw_only=True):
    """`[eval]`: held-out validation, without guidance."""

    every: NonNegative = 10  # updates between evaluations (and one at start and end); 0: never
    tasks: Count = 200  # held-out tasks
    rollouts: Count = 2  # rollouts of each
    temperature: NonNegativeFloat = 1.0  # sampling temperature; 0 = greedy


class Alarms(Section, frozen=True, kw_only=True):
    """`[alarms]`: limits past which an update is called a collapse."""

    entropy_floor: NonNegativeFloat = 0.05  # mean token entropy, nats
    all_fail_share: Fraction = 0.9  # share of groups whose members all fail
    cut_share: Fraction = 0.2  # share of actions cut at the token limit
    patience: Count = 3  # consecutive updates past a limit before the alarm is raised


class Page(Section, frozen=True, kw_only=True):
    """`[page]`: the live page that the orchestrator serves on loopback."""

    serve: bool = True  # false: no page
    port: Annotated[int, Meta(ge=0, le=65535)] = 0  # loopback port; 0: any free one, which `up` prints


class Simulate(Section, frozen=True, kw_only=True):
    """`[simulate]`: what `stream-rl simulate` starts from; a run does not read it."""

    profile: str = ""  # file of service times, by its path from this configuration file's folder or from here


class Config(Section, frozen=True, kw_only=True):
    """A whole run."""

    seed: NonNegative = 0  # seeds tasks, sampling and the learner
    updates: Count = 40  # optimiser updates of the run
    async_depth: NonNegative = 1  # S, updates generation may run ahead
    max_lag: NonNegative = 0  # groups older than this are refused by the learner; 0: async_depth + window - 1
    groups: Groups = Groups()
    policy: Policy = Policy()
    generate: Generate = Generate()
    environments: tuple[EnvironmentConfig, ...] = (EnvironmentConfig(),)
    judge: JudgeConfig = JudgeConfig()
    algorithm: Algorithm = Algorithm()
    learner: Learner = Learner()
    weights: Weights = Weights()
    eval: Eval = Eval()
    alarms: Alarms = Alarms()
    simulate: Simulate = Simulate()
    page: Page = Page()
    sinks: tuple[Literal["tensorboard", "wandb", "trackio", "prometheus"], ...] = ()  # more places for metrics
    port: Annotated[int, Meta(ge=0, le=65535)] = 0  # the orchestrator's loopback port; 0: any free one
    stall_s: PositiveFloat = 600.0  # no progress for this long ends the run with an explanation

    def limits(self, environment: str) -> EpisodeLimits:
        """Limits of an environment's episodes: its own, or those of `[generate]`. Raises `KeyError`."""
        entry = {e.name: e for e in self.environments}[environment]
        return EpisodeLimits(
            max_turns=entry.max_turns or self.generate.max_turns,
            max_tokens=entry.max_tokens or self.generate.max_tokens,
        )

    @property
    def episode_tokens(self) -> int:
        """Most tokens one episode of any environment can sample."""
        return max(self.limits(entry.name).episode_tokens for entry in self.environments)

    @property
    def lag_limit(self) -> int:
        """The lag a trained group may have at most, in updates: S, and W - 1 more for who makes way in a window."""
        return self.max_lag or self.async_depth + self.groups.window - 1

    @property
    def min_valid(self) -> int:
        """Valid members a group needs."""
        return self.groups.min_valid or max(1, self.groups.size // 2)

    @property
    def permits(self) -> int:
        """(S + 1) * C: groups that may be between lease and live weights."""
        return (self.async_depth + 1) * self.groups.candidates

    @property
    def buffer(self) -> int:
        """Judged groups that may wait for selection."""
        return self.groups.buffer or self.permits

    @property
    def needs_tags(self) -> bool:
        """Whether any switch reads vocabulary tags."""
        a = self.algorithm
        hinted = a.distillation != "none" and a.rubrics == "vocabulary"
        return a.selection in ("rised", "mmr") or a.steering or hinted

    @property
    def needs_bundles(self) -> bool:
        """Whether the policy writes rubric bundles."""
        return self.algorithm.distillation != "none" and self.algorithm.rubrics == "written"

    @property
    def written_bundles(self) -> int:
        """Bundles the policy writes about each group; the `single` baseline reads the first alone."""
        if not self.needs_bundles:
            return 0
        return 1 if self.algorithm.bundle_choice == "single" else self.algorithm.bundles

    @property
    def learner_chooses(self) -> bool:
        """Whether the learner chooses among a group's bundles, by how their gap goes with step returns."""
        a = self.algorithm
        return self.needs_bundles and a.bundle_choice == "aligned" and a.bundle_score == "within"

    @property
    def needs_scores(self) -> bool:
        """Whether a verifier scores written criteria."""
        a = self.algorithm
        return self.needs_bundles and a.bundle_choice == "aligned" and a.bundle_score == "outcome"

    @property
    def needs_judge(self) -> bool:
        """Whether any switch reads a judge's answers."""
        return self.needs_tags or self.needs_scores
