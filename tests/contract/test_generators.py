"""One contract for every generator: vLLM, transformers, scripted."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import msgspec
import numpy as np
import pytest
import pytest_asyncio
from safetensors.torch import load_file, save_file

from stream_rl import fingerprint, model_folder
from stream_rl.errors import GenerationFailed, WeightsRejected
from stream_rl.generate import probe
from stream_rl.generate.options import GeneratorOptions
from stream_rl.generate.scripted import ScriptedGenerator
from stream_rl.generate.weight_swap import SwapDeadlines
from stream_rl.ports import GenerateRequest, GenerateResult, Generator
from stream_rl.types import AdapterRecord, VersionSpan, WeightsManifest
from tests import micro_models

RUN = "run-of-this-test"
STOP = 7

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(400),  # one vLLM start is 15 s of a free core
    pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::ResourceWarning"),
]


class Stage:
    """A running generator, the models behind it and the weights it can be updated to."""

    def __init__(self, generator: Generator, folder: Path, models: list[Any], options: GeneratorOptions) -> None:
        self.generator = generator
        self.options = options
        self.folder = folder
        self.models = models  # by weights, not by version: version v of this module holds models[v % 2]
        self.has_model = generator.engine != "scripted"

    def model(self, version: int) -> Any:
        return self.models[version % 2]

    def publish(self, version: int, *, run_id: str = RUN) -> WeightsManifest:
        path = self.folder / f"{run_id}-{version}.safetensors"
        return micro_models.publish(self.model(version), path, run_id=run_id, version=version)

    async def update(self) -> WeightsManifest:
        manifest = self.publish(self.generator.version + 1)
        report = await self.generator.update(manifest)
        assert (report.version, report.fingerprint) == (manifest.version, manifest.fingerprint)
        assert 0 <= report.load_s <= report.pause_s
        if self.has_model:
            np.testing.assert_allclose(report.probe, self.probe(manifest.version), atol=1e-5)
        return manifest

    def probe(self, version: int) -> Any:
        """What a plain forward says of the prompt every generator is asked about after an update."""
        ids = probe.prompt(micro_models.VOCAB)
        return micro_models.logprobs(
            self.model(version), ids + micro_models.greedy(self.model(version), ids, 1), 1, 1.0
        )

    async def revive(self) -> None:
        """A new generator over the engine of a poisoned one, with sound weights: saves this module an engine's start.

        The version is that of the poisoned update, which the engine may have labelled its weights with.
        """
        broken: Any = self.generator
        options = msgspec.structs.replace(self.options, version=broken.version + 1)
        if broken.engine == "vllm":
            from stream_rl.generate.options import model_shape
            from stream_rl.generate.vllm_engine import VllmGenerator

            assert await broken._llm.is_paused()
            self.generator = VllmGenerator(broken._llm, options, model_shape(options.model))
            broken._engine = None
            await self.update()
            assert not await self.generator._llm.is_paused()
        else:
            from stream_rl.generate.transformers_engine import TransformersGenerator

            self.generator = TransformersGenerator(broken._model, options)
            await self.update()


def say(prompt: tuple[int, ...]) -> list[int]:
    """The script: a fixed walk through the ids that does not meet `STOP` in its first 500 tokens."""
    return [8 + (sum(prompt) + step) % 300 for step in range(500)]


@pytest_asyncio.fixture(
    scope="module",
    loop_scope="module",
    params=["scripted", "transformers", pytest.param("vllm", marks=pytest.mark.vllm)],
)
async def stage(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stage]:
    folder = tmp_path_factory.mktemp(request.param)
    models = [micro_models.make(0), micro_models.make(1)]
    options = GeneratorOptions(
        model=micro_models.save(models[0], folder / "model"),
        max_model_len=micro_models.MAX_LEN,
        concurrency=64,
        run_id=RUN,
    )
    generator: Generator
    if request.param == "scripted":
        generator = ScriptedGenerator(
            say,
            run_id=RUN,
            vocab_size=micro_models.VOCAB,
            max_model_len=micro_models.MAX_LEN,
            token_s=lambda prompt: 0.002,
            load_s=0.01,
        )
    elif request.param == "transformers":
        from stream_rl.generate.transformers_engine import TransformersGenerator

        generator = await TransformersGenerator.start(options)
    else:
        pytest.importorskip("vllm")
        from stream_rl.generate.vllm_engine import VllmGenerator

        generator = await VllmGenerator.start(options)
    stage = Stage(generator, folder, models, options)
    yield stage
    await stage.generator.aclose()


def ask(prompt: list[int], **changes: Any) -> GenerateRequest:
    settings: dict[str, Any] = {"max_tokens": 12, "temperature": 1.0, "stop_token_ids": (STOP,)} | changes
    return GenerateRequest(prompt_ids=np.asarray(prompt, dtype=np.int32), **settings)


def a_prompt(seed: int, length: int) -> list[int]:
    numbers = random.Random(seed)
    return [numbers.randrange(8, micro_models.VOCAB) for _ in range(length)]


def flip(path: str) -> None:
    """One bit of the last tensor."""
    data = bytearray(Path(path).read_bytes())
    data[-1000] ^= 1
    Path(path).write_bytes(data)


def check_parity(stage: Stage, prompt: list[int], result: GenerateResult, version: int, temperature: float) -> None:
    expected = micro_models.logprobs(stage.model(version), prompt + result.token_ids.tolist(), len(prompt), temperature)
    np.testing.assert_allclose(result.logprobs, expected, atol=1e-5)


async def test_is_a_generator(stage: Stage) -> None:
    assert isinstance(stage.generator, Generator)


async def test_limit_cuts(stage: Stage) -> None:
    result = await stage.generator.generate(ask(a_prompt(1, 20), max_tokens=5, stop_token_ids=()))
    assert result.cut
    assert len(result.token_ids) == len(result.logprobs) == 5
    assert result.spans == (VersionSpan(version=stage.generator.version, num_tokens=5),)


async def test_length_of_the_model_cuts(stage: Stage) -> None:
    result = await stage.generator.generate(
        ask(a_prompt(2, micro_models.MAX_LEN - 3), max_tokens=10, stop_token_ids=())
    )
    assert result.cut
    assert len(result.token_ids) == 3


async def test_stop_token_ends_and_is_included(stage: Stage) -> None:
    prompt = a_prompt(3, 30)
    free = await stage.generator.generate(ask(prompt, temperature=0.0, stop_token_ids=()))
    third = int(free.token_ids[2])
    stopped = await stage.generator.generate(ask(prompt, temperature=0.0, stop_token_ids=(STOP, third)))
    first = free.token_ids.tolist().index(third)
    assert stopped.token_ids.tolist() == free.token_ids.tolist()[: first + 1]
    assert not stopped.cut


async def test_stop_token_at_the_limit_is_no_cut(stage: Stage) -> None:
    prompt = a_prompt(4, 30)
    free = await stage.generator.generate(ask(prompt, temperature=0.0, max_tokens=1, stop_token_ids=()))
    only = int(free.token_ids[0])
    stopped = await stage.generator.generate(ask(prompt, temperature=0.0, max_tokens=1, stop_token_ids=(only,)))
    assert not stopped.cut


async def test_greedy_is_deterministic_and_the_models_own(stage: Stage) -> None:
    prompt = a_prompt(5, 40)
    first = await stage.generator.generate(ask(prompt, temperature=0.0, stop_token_ids=()))
    again = await stage.generator.generate(ask(prompt, temperature=0.0, stop_token_ids=()))
    assert first.token_ids.tolist() == again.token_ids.tolist()
    if stage.has_model:
        version = stage.generator.version
        assert first.token_ids.tolist() == micro_models.greedy(stage.model(version), prompt, 12)
        check_parity(stage, prompt, first, version, 0.0)


async def test_a_seed_repeats_its_answer(stage: Stage) -> None:
    prompt = a_prompt(6, 40)
    first = await stage.generator.generate(ask(prompt, seed=11, stop_token_ids=()))
    again = await stage.generator.generate(ask(prompt, seed=11, stop_token_ids=()))
    assert first.token_ids.tolist() == again.token_ids.tolist()
    if stage.has_model:
        other = await stage.generator.generate(ask(prompt, seed=12, stop_token_ids=()))
        assert first.token_ids.tolist() != other.token_ids.tolist()


@pytest.mark.parametrize("temperature", [1.0, 0.7])
async def test_logprobs_are_those_of_the_distribution_sampled_from(stage: Stage, temperature: float) -> None:
    for turn in range(3):
        prompt = a_prompt(10 + turn, 60 + 17 * turn)
        result = await stage.generator.generate(ask(prompt, temperature=temperature, max_tokens=24))
        if stage.has_model:
            check_parity(stage, prompt, result, stage.generator.version, temperature)
        else:
            assert result.logprobs.tolist() == [0.0] * len(result.token_ids)


async def test_a_conversation_extends_its_prompt(stage: Stage) -> None:
    prompt = a_prompt(20, 70)
    for turn in range(6):
        result = await stage.generator.generate(ask(prompt, max_tokens=6))
        if stage.has_model:
            check_parity(stage, prompt, result, stage.generator.version, 1.0)
        prompt = prompt + result.token_ids.tolist() + a_prompt(21 + turn, 7)


async def test_64_at_once_are_each_their_own(stage: Stage) -> None:
    prompts = [a_prompt(100 + i, 20 + 3 * i) for i in range(64)]
    results: dict[int, GenerateResult] = {}

    async def one(i: int) -> None:
        results[i] = await stage.generator.generate(ask(prompts[i], max_tokens=2 + i % 7))

    async with anyio.create_task_group() as group:
        for i in range(64):
            group.start_soon(one, i)
    for i, result in results.items():
        ends = result.token_ids[-1] == STOP
        assert len(result.token_ids) == 2 + i % 7 or ends
        assert result.cut != ends
        if stage.has_model:
            check_parity(stage, prompts[i], result, stage.generator.version, 1.0)


async def test_a_cancelled_request_leaves_the_others_alone(stage: Stage) -> None:
    kept: list[GenerateResult] = []
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as group:
            for i in range(4):
                group.start_soon(stage.generator.generate, ask(a_prompt(200 + i, 30), max_tokens=300))
            await anyio.sleep(0.05)
            scope.cancel()
    prompt = a_prompt(210, 30)
    with anyio.fail_after(120):
        kept.append(await stage.generator.generate(ask(prompt)))
    if stage.has_model:
        check_parity(stage, prompt, kept[0], stage.generator.version, 1.0)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"prompt": []}, "empty"),
        ({"prompt": [5] * micro_models.MAX_LEN}, "leaves no room"),
        ({"prompt": [5, micro_models.VOCAB]}, "vocabulary has 320"),
        ({"prompt": [5, -1]}, "from -1"),
        ({"prompt": [5], "max_tokens": 0}, "max_tokens is 0"),
        ({"prompt": [5], "temperature": -1.0}, "temperature is -1.0"),
        ({"prompt": [5], "temperature": float("nan")}, "temperature is nan"),
    ],
)
async def test_impossible_requests_fail_and_harm_nothing(stage: Stage, changes: dict[str, Any], told: str) -> None:
    with pytest.raises(GenerationFailed, match=told):
        await stage.generator.generate(ask(**changes))
    assert (await stage.generator.generate(ask([5, 6], max_tokens=1))).token_ids.shape == (1,)


async def test_weights_really_change(stage: Stage) -> None:
    prompt = a_prompt(30, 50)
    before = await stage.generator.generate(ask(prompt, temperature=0.0, stop_token_ids=()))
    manifest = await stage.update()
    assert stage.generator.version == manifest.version
    after = await stage.generator.generate(ask(prompt, temperature=0.0, stop_token_ids=()))
    assert after.spans == (VersionSpan(version=manifest.version, num_tokens=12),)
    if stage.has_model:
        assert after.token_ids.tolist() != before.token_ids.tolist()
        assert after.token_ids.tolist() == micro_models.greedy(stage.model(manifest.version), prompt, 12)
        check_parity(stage, prompt, after, manifest.version, 0.0)


async def test_the_same_version_again_changes_nothing(stage: Stage) -> None:
    manifest = await stage.update()
    report = await stage.generator.update(manifest)
    assert (report.version, report.pause_s) == (manifest.version, 0.0)
    assert stage.generator.version == manifest.version


async def a_third_of(work: Callable[[], Awaitable[None]]) -> float:
    """Seconds that a third of some work takes now, on this machine: what is done then has begun and is not over."""
    began = anyio.current_time()
    await work()
    return (anyio.current_time() - began) / 3


async def test_an_update_in_flight_splits_the_turn(stage: Stage) -> None:
    prompts = [a_prompt(300 + i, 40 + i) for i in range(8)]
    results: dict[int, GenerateResult] = {}
    old = stage.generator.version

    async def one(i: int) -> None:
        results[i] = await stage.generator.generate(ask(prompts[i], max_tokens=400, stop_token_ids=()))

    async def all_of_them() -> None:
        async with anyio.create_task_group() as requests:
            for i in range(8):
                requests.start_soon(one, i)

    third_s = await a_third_of(all_of_them)
    async with anyio.create_task_group() as group:
        group.start_soon(all_of_them)
        await anyio.sleep(third_s)
        manifest = await stage.update()
    for i, result in results.items():
        assert [span.version for span in result.spans] == [old, manifest.version]
        first = result.spans[0].num_tokens
        assert first + result.spans[1].num_tokens == len(result.token_ids) == 400
        if stage.has_model:  # every token is the one policy's that its span names, given the whole text before it
            ids = prompts[i] + result.token_ids.tolist()
            old_said = micro_models.logprobs(stage.model(old), ids, len(prompts[i]), 1.0)
            new_said = micro_models.logprobs(stage.model(manifest.version), ids, len(prompts[i]), 1.0)
            np.testing.assert_allclose(result.logprobs[:first], old_said[:first], atol=2e-5)
            np.testing.assert_allclose(result.logprobs[first:], new_said[first:], atol=2e-5)


async def test_wrong_manifests_are_refused_before_loading(stage: Stage) -> None:
    await stage.update()
    live = stage.generator.version
    good = stage.publish(live + 1)
    prompt = a_prompt(40, 30)
    before = await stage.generator.generate(ask(prompt, temperature=0.0))
    other_run = stage.publish(live + 1, run_id="another-run")
    wrong = {
        "should have fingerprint": msgspec.structs.replace(good, fingerprint="0" * 32),
        "should have [0-9]+ bytes": msgspec.structs.replace(good, num_bytes=good.num_bytes + 1),
        "another-run": other_run,
        "cannot read": msgspec.structs.replace(good, path=good.path + ".gone"),
        "same version": msgspec.structs.replace(good, version=live, fingerprint="1" * 32),
        "older": msgspec.structs.replace(good, version=live - 1),
    }
    for told, manifest in wrong.items():
        with pytest.raises(WeightsRejected, match=told):
            await stage.generator.update(manifest)
    after = await stage.generator.generate(ask(prompt, temperature=0.0))
    assert stage.generator.version == live
    assert after.token_ids.tolist() == before.token_ids.tolist()
    await stage.generator.update(good)
    assert stage.generator.version == live + 1


async def test_updates_under_load_keep_every_token_accounted_for(stage: Stage) -> None:
    """6 sessions, 5 updates; after each, what an idle engine says is what a plain forward of its weights says."""
    results: list[tuple[list[int], GenerateResult]] = []
    over = anyio.Event()

    async def session(seed: int) -> None:
        turn = 0
        while not over.is_set():
            prompt = a_prompt(1000 * seed + turn, 30 + seed)
            results.append((prompt, await stage.generator.generate(ask(prompt, max_tokens=60, stop_token_ids=()))))
            turn += 1

    first = stage.generator.version
    async with anyio.create_task_group() as group:
        for seed in range(6):
            group.start_soon(session, seed)
        for _ in range(5):
            await anyio.sleep(0.06)
            await stage.update()
        over.set()
    assert stage.generator.version == first + 5
    split = 0
    for prompt, result in results:
        assert len(result.token_ids) == len(result.logprobs) == 60
        assert sum(span.num_tokens for span in result.spans) == 60
        versions = [span.version for span in result.spans]
        assert versions == sorted(set(versions))
        split += len(versions) > 1
        if stage.has_model and len(versions) > 1 and split <= 12:
            ids = prompt + result.token_ids.tolist()
            start = 0
            for span in result.spans:
                said = micro_models.logprobs(stage.model(span.version), ids, len(prompt), 1.0)
                part = slice(start, start + span.num_tokens)
                np.testing.assert_allclose(result.logprobs[part], said[part], atol=2e-5)
                start += span.num_tokens
    assert split > 0
    prompt = a_prompt(45, 30)
    last = await stage.generator.generate(ask(prompt, temperature=0.0, stop_token_ids=()))
    if stage.has_model:
        check_parity(stage, prompt, last, first + 5, 0.0)


async def test_a_flipped_byte_is_found_before_the_engine_sees_it(stage: Stage) -> None:
    manifest = stage.publish(stage.generator.version + 1)
    prompt = a_prompt(46, 30)
    before = await stage.generator.generate(ask(prompt, temperature=0.0, stop_token_ids=()))
    flip(manifest.path)
    with pytest.raises(WeightsRejected, match="damaged"):
        await stage.generator.update(manifest)
    after = await stage.generator.generate(ask(prompt, temperature=0.0, stop_token_ids=()))
    assert after.spans == before.spans
    assert after.token_ids.tolist() == before.token_ids.tolist()


async def test_an_adapter_is_added_to_the_base(stage: Stage) -> None:
    if not stage.has_model:
        pytest.skip("loads nothing")
    base = stage.models[0]  # the folder it was started from, whatever is live now
    path, version = stage.folder / "adapter.safetensors", stage.generator.version + 1
    expected = micro_models.save_adapter(base, path, rank=3, scale=0.5, seed=version)
    adapter = AdapterRecord(rank=3, alpha=1.5, base=model_folder.fingerprint_of(stage.folder / "model"))
    manifest = fingerprint.manifest_of(path, run_id=RUN, version=version, adapter=adapter)
    wrong_base = msgspec.structs.replace(adapter, base="another model")
    with pytest.raises(WeightsRejected, match=r"adapter of the base another model; .*/model holds"):
        await stage.generator.update(fingerprint.manifest_of(path, run_id=RUN, version=version, adapter=wrong_base))
    with pytest.raises(WeightsRejected, match="manifest is damaged"):
        await stage.generator.update(
            msgspec.structs.replace(manifest, adapter=msgspec.structs.replace(adapter, alpha=3.0))
        )
    whole = path.read_bytes()
    flip(str(path))
    with pytest.raises(WeightsRejected, match=r"damaged .* in `base_model\.model\.model\.layers\..*lora_[AB]\.weight`"):
        await stage.generator.update(manifest)
    assert stage.generator.version == version - 1
    path.write_bytes(whole)
    report = await stage.generator.update(manifest)
    assert (report.version, report.fingerprint) == (version, manifest.fingerprint)
    prompt = a_prompt(47, 30)
    result = await stage.generator.generate(ask(prompt, stop_token_ids=()))
    assert result.spans == (VersionSpan(version=version, num_tokens=12),)
    for model, near in ((expected, True), (base, False)):
        said = micro_models.logprobs(model, prompt + result.token_ids.tolist(), len(prompt), 1.0)
        assert bool(np.abs(result.logprobs - said).max() < 1e-5) is near
    await stage.update()


async def test_a_lost_resume_is_recovered_by_its_deadline(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    generator: Any = stage.generator
    if generator.engine != "vllm":
        pytest.skip("is not resumed by a call")
    real = generator._calls()
    lost = 0

    class LosesTwo:
        """The engine's own calls, but the first two that resume never arrive."""

        def __getattr__(self, name: str) -> Any:
            return getattr(real, name)

        async def resume(self) -> None:
            nonlocal lost
            lost += 1
            if lost <= 2:
                await anyio.sleep_forever()
            await real.resume()

    monkeypatch.setattr(generator, "_calls", LosesTwo)
    monkeypatch.setattr(generator, "_deadlines", SwapDeadlines(call_s=1.0, total_s=60.0))
    results: list[GenerateResult] = []

    async def in_flight() -> None:
        results.append(await generator.generate(ask(a_prompt(47, 30), max_tokens=300, stop_token_ids=())))

    old = generator.version
    third_s = await a_third_of(in_flight)
    results.clear()
    with anyio.fail_after(120):
        async with anyio.create_task_group() as group:
            group.start_soon(in_flight)
            await anyio.sleep(third_s)
            await stage.update()
    assert lost == 3
    assert [span.version for span in results[0].spans] == [old, old + 1]


async def test_the_same_engine_over_http(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM's own API server: sampling, parity, updates in flight with their labels, and a second attachment."""
    engine: Any = stage.generator
    if engine.engine != "vllm":
        pytest.skip("has no server")
    from stream_rl.generate.options import model_shape
    from stream_rl.generate.vllm_engine import VllmGenerator
    from stream_rl.generate.vllm_http import VllmHttpGenerator
    from tests.contract.vllm_server import serving

    old = engine.version
    label = f"{RUN}:{old}"
    await engine._llm.update_weight_version(label)  # as if it had been served from the start
    async with serving(engine._llm, stage.options.model, monkeypatch) as url:
        stage.generator = await VllmHttpGenerator.start(url, stage.options)
        assert isinstance(stage.generator, Generator)
        assert stage.generator.version == old
        for temperature in (1.0, 0.7, 0.0):
            prompt = a_prompt(80, 40)
            result = await stage.generator.generate(ask(prompt, temperature=temperature, max_tokens=24))
            check_parity(stage, prompt, result, old, temperature)
        results: list[GenerateResult] = []

        async def in_flight(seed: int) -> None:
            request = ask(a_prompt(seed, 40), max_tokens=300, stop_token_ids=())
            results.append(await stage.generator.generate(request))

        async def four() -> None:
            async with anyio.create_task_group() as requests:
                for seed in range(81, 85):
                    requests.start_soon(in_flight, seed)

        third_s = await a_third_of(four)
        results.clear()
        async with anyio.create_task_group() as group:
            group.start_soon(four)
            await anyio.sleep(third_s)
            await stage.update()
        for result in results:
            assert [span.version for span in result.spans] == [old, old + 1]
            assert sum(span.num_tokens for span in result.spans) == len(result.token_ids) == 300
        await stage.generator.aclose()
        with pytest.raises(GenerationFailed, match="closed"):
            await stage.generator.generate(ask([5, 6]))
        with pytest.raises(GenerationFailed, match="those of another run"):
            await VllmHttpGenerator.start(url, msgspec.structs.replace(stage.options, run_id="another-run"))
        again = await VllmHttpGenerator.start(url, stage.options)
        assert again.version == old + 1
        await again.aclose()
    options = msgspec.structs.replace(stage.options, version=old + 1)
    stage.generator = VllmGenerator(engine._llm, options, model_shape(options.model))
    engine._engine = None
    await stage.update()


async def test_weights_that_compute_nonsense_are_never_sampled_from(stage: Stage) -> None:
    """They are what was published, byte by byte; no checksum can tell."""
    if not stage.has_model:
        pytest.skip("loads nothing")
    live = stage.generator.version
    path = stage.folder / "nonsense.safetensors"
    tensors = load_file(stage.publish(live + 1).path)
    tensors["model.layers.1.mlp.down_proj.weight"][3, 5] = float("nan")
    save_file(tensors, path)
    told: list[str] = []

    async def in_flight() -> None:
        with pytest.raises(GenerationFailed) as failure:
            await stage.generator.generate(ask(a_prompt(48, 30), max_tokens=450, stop_token_ids=()))
        told.append(str(failure.value))

    with anyio.fail_after(120):
        async with anyio.create_task_group() as group:
            group.start_soon(in_flight)
            await anyio.sleep(0.1)
            with pytest.raises(WeightsRejected, match="log-probabilities such as nan"):
                await stage.generator.update(fingerprint.manifest_of(path, run_id=RUN, version=live + 1))
    assert "nan" in told[0]
    assert stage.generator.version == live
    with pytest.raises(GenerationFailed, match="nan"):
        await stage.generator.generate(ask(a_prompt(48, 30)))
    await stage.revive()
    prompt = a_prompt(49, 30)
    result = await stage.generator.generate(ask(prompt, temperature=0.0, stop_token_ids=()))
    check_parity(stage, prompt, result, live + 2, 0.0)


async def test_a_file_that_does_not_fit_is_refused_and_never_half_used(stage: Stage) -> None:
    if not stage.has_model:
        pytest.skip("loads nothing")
    live = stage.generator.version
    path = stage.folder / "misfit.safetensors"
    good = load_file(stage.publish(live + 1).path)
    lost = "model.layers.1.mlp.down_proj.weight"
    save_file({name: tensor for name, tensor in good.items() if name != lost}, path)
    with pytest.raises(WeightsRejected, match="down_proj"):
        await stage.generator.update(fingerprint.manifest_of(path, run_id=RUN, version=live + 1))
    assert stage.generator.version == live
    prompt = a_prompt(50, 30)
    try:
        result = await stage.generator.generate(ask(prompt, temperature=0.0, stop_token_ids=()))
    except GenerationFailed as error:
        assert "halfway" in str(error)  # noqa: PT017
        with pytest.raises(WeightsRejected, match="halfway"):
            await stage.generator.update(stage.publish(live + 1))
    else:
        assert result.token_ids.tolist() == micro_models.greedy(stage.model(live), prompt, 12)


async def test_an_engine_that_dies_in_the_middle_of_an_update(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed with kill -9 while it loads: the update and every request fail at once, and say so."""
    if stage.generator.engine != "vllm":
        pytest.skip("has no process of its own")
    from stream_rl.generate.options import model_shape
    from stream_rl.generate.vllm_engine import VllmGenerator

    broken: Any = stage.generator  # poisoned by now, and paused
    llm = broken._llm
    await llm.resume_generation()
    options = msgspec.structs.replace(stage.options, version=broken.version)
    generator = VllmGenerator(llm, options, model_shape(options.model))
    real = generator._calls()

    class Dies:
        """The engine's own calls, but loading kills its processes first."""

        def __getattr__(self, name: str) -> Any:
            return getattr(real, name)

        async def start(self) -> None:
            for process in llm.engine_core.resources.engine_manager.processes:
                process.kill()
            await real.start()

    monkeypatch.setattr(generator, "_calls", Dies)

    async def doomed() -> None:
        with pytest.raises(GenerationFailed, match=r"engine process died|failed halfway"):
            await generator.generate(ask(a_prompt(60, 30), max_tokens=450, stop_token_ids=()))

    with anyio.fail_after(120):
        async with anyio.create_task_group() as group:
            group.start_soon(doomed)
            await anyio.sleep(0.1)
            with pytest.raises(WeightsRejected, match="did not take version"):
                await generator.update(stage.publish(generator.version + 1))
        with pytest.raises(GenerationFailed, match=r"engine process died|failed halfway"):
            await generator.generate(ask([5, 6]))


async def test_a_closed_generator_says_so(stage: Stage) -> None:
    """Last: it ends the module's generator."""

    async def interrupted() -> None:
        with pytest.raises(GenerationFailed):
            await stage.generator.generate(ask(a_prompt(70, 30), max_tokens=450, stop_token_ids=()))

    async with anyio.create_task_group() as group:
        group.start_soon(interrupted)
        await anyio.sleep(0.02)
        await stage.generator.aclose()
    with pytest.raises(GenerationFailed, match="closed"):
        await stage.generator.generate(ask([5, 6]))
    with pytest.raises(WeightsRejected, match="closed"):
        await stage.generator.update(stage.publish(stage.generator.version + 1))
