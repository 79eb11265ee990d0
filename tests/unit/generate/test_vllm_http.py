from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import msgspec
import numpy as np
import pytest
from safetensors.numpy import save_file

from stream_rl import fingerprint
from stream_rl.errors import ConfigError, GenerationFailed, GeneratorBroken, WeightsRejected
from stream_rl.generate.options import GeneratorOptions
from stream_rl.generate.vllm_http import UNKNOWN, VllmHttpGenerator
from stream_rl.generate.vllm_http_session import check_url
from stream_rl.generate.vllm_http_turns import GENERATE
from stream_rl.ports import GenerateRequest, Generator
from stream_rl.types import VersionSpan, WeightsManifest
from tests.unit.generate.server_twin import ServerTwin, serving


@pytest.fixture
def options(tmp_path: Path) -> GeneratorOptions:
    shape = {"vocab_size": 320, "num_hidden_layers": 1, "num_attention_heads": 1, "hidden_size": 8}
    (tmp_path / "config.json").write_bytes(msgspec.json.encode(shape))
    return GeneratorOptions(
        model=str(tmp_path), max_model_len=64, concurrency=4, run_id="run-1", update_deadline_s=5, call_deadline_s=1
    )


def manifest(folder: Path, version: int) -> WeightsManifest:
    path = folder / f"v{version}.safetensors"
    save_file({"w": np.full(3, version, dtype=np.float32)}, path)
    return fingerprint.manifest_of(path, run_id="run-1", version=version)


def ask(**changes: Any) -> GenerateRequest:
    settings: dict[str, Any] = {"max_tokens": 3, "temperature": 0.7, "stop_token_ids": (7,), "seed": 5} | changes
    return GenerateRequest(prompt_ids=np.asarray([5, 6], dtype=np.int32), **settings)


async def test_it_sends_ids_and_takes_ids_log_probabilities_and_versions(options: GeneratorOptions) -> None:
    twin = ServerTwin()
    async with serving(twin) as url:
        generator = await VllmHttpGenerator.start(f"{url}/v1/", options)
        assert isinstance(generator, Generator)
        result = await generator.generate(ask())
        await generator.aclose()
    assert twin.asked[-1]["token_ids"] == [5, 6]
    sampling = twin.asked[-1]["sampling_params"]
    assert (sampling["temperature"], sampling["max_tokens"], sampling["stop_token_ids"]) == (0.7, 3, [7])
    assert (sampling["seed"], sampling["ignore_eos"], sampling["logprobs"]) == (5, True, 0)
    assert result.token_ids.tolist() == [8, 9, 10]
    assert result.logprobs.tolist() == [-0.5] * 3
    assert result.spans == (VersionSpan(version=0, num_tokens=3),)
    assert result.cut


async def test_an_update_goes_through_the_servers_routes_and_labels_with_the_run(
    options: GeneratorOptions, tmp_path: Path
) -> None:
    twin = ServerTwin()
    async with serving(twin) as url:
        generator = await VllmHttpGenerator.start(url, options)
        twin.calls.clear()
        new = manifest(tmp_path, 3)
        report = await generator.update(new)
        assert twin.calls == [
            *("/pause", "/start_weight_update", "/update_weights", "/finish_weight_update"),
            *("/weight_info", "/collective_rpc", "/resume", "/is_paused"),
        ]
        assert twin.label == "run-1:3"
        assert twin.loaded == [{"path": new.path, "checksums": {r.name: r.checksum for r in new.tensors}}]
        assert (report.version, report.fingerprint, len(report.probe)) == (3, new.fingerprint, 16)
        assert (await generator.generate(ask())).spans == (VersionSpan(version=3, num_tokens=3),)
        await generator.aclose()
        again = await VllmHttpGenerator.start(url, options)
        assert again.version == 3
        await again.aclose()


async def test_what_a_server_holds_is_not_believed_where_an_earlier_process_of_the_run_may_have_left_it(
    options: GeneratorOptions, tmp_path: Path
) -> None:
    """After a fall back to a checkpoint, weights of the same run, and even of the same number, may be others."""
    twin = ServerTwin()
    async with serving(twin) as url:
        twin.label = "run-1:9"
        generator = await VllmHttpGenerator.start(url, options, believe=False)
        assert generator.version == UNKNOWN < 0
        with pytest.raises(GenerationFailed, match="no weights of this run yet"):
            await generator.generate(ask())
        for version in (7, 8):
            await generator.update(manifest(tmp_path, version))
            assert generator.version == version
            assert (await generator.generate(ask())).spans == (VersionSpan(version=version, num_tokens=3),)
        await generator.aclose()
    assert [Path(update["path"]).name for update in twin.loaded] == ["v7.safetensors", "v8.safetensors"]


async def test_version_0_too_is_loaded_into_a_server_that_is_not_believed(
    options: GeneratorOptions, tmp_path: Path
) -> None:
    twin = ServerTwin()
    async with serving(twin) as url:
        generator = await VllmHttpGenerator.start(url, options, believe=False)
        await generator.update(manifest(tmp_path, 0))
        assert (generator.version, twin.label, len(twin.loaded)) == (0, "run-1:0", 1)
        await generator.aclose()


async def test_a_server_of_another_model_is_refused_before_anything_is_loaded(options: GeneratorOptions) -> None:
    twin = ServerTwin()
    twin.shape |= {"hidden_size": 576, "vocab_size": 49152}
    async with serving(twin) as url:
        with pytest.raises(ConfigError, match=r"another model .vocab_size 49152 instead of 320, hidden_size 576"):
            await VllmHttpGenerator.start(url, options)
    assert not twin.is_paused
    assert "/init_weight_transfer_engine" not in twin.calls


@pytest.mark.parametrize(
    ("twin", "told"),
    [
        (ServerTwin(lacks={"/server_info"}), r"cannot take weights .* VLLM_SERVER_DEV_MODE=1"),
        (ServerTwin(lacks={"/weight_info"}), r"cannot take weights .* VLLM_SERVER_DEV_MODE=1"),
        (ServerTwin(refuses={"/init_weight_transfer_engine"}), r"cannot read published weights"),
        (ServerTwin(lacks={GENERATE}), r"cannot take token ids .*--tokens-only"),
        (ServerTwin(lacks={"/collective_rpc"}), r"does not say which model it serves"),
        (ServerTwin(key="secret"), r"answered 401: .* it asks for a key, none was given"),
    ],
)
async def test_a_server_that_lacks_something_is_refused_with_what_to_do(
    options: GeneratorOptions, twin: ServerTwin, told: str
) -> None:
    async with serving(twin) as url:
        with pytest.raises(ConfigError, match=told):
            await VllmHttpGenerator.start(url, options)
    assert not twin.is_paused


@pytest.mark.parametrize(
    ("part", "values", "told"),
    [
        ("weight_transfer_config", None, "--weight-transfer-config"),
        ("weight_transfer_config", {"backend": "nccl"}, "its backend is nccl"),
        ("parallel_config", {"worker_extension_cls": ""}, "--worker-extension-cls stream_rl.generate.vllm_probe"),
        ("model_config", {"logprobs_mode": "raw_logprobs"}, "--logprobs-mode processed_logprobs"),
        ("model_config", {"dtype": "torch.bfloat16"}, "--dtype float32"),
        ("model_config", {"max_model_len": 63}, "--max-model-len 64"),
    ],
)
async def test_a_server_that_was_started_differently_is_refused_with_the_argument(
    options: GeneratorOptions, part: str, values: dict[str, Any] | None, told: str
) -> None:
    twin = ServerTwin()
    twin.config[part] = None if values is None else twin.config[part] | values
    async with serving(twin) as url:
        with pytest.raises(ConfigError, match=told):
            await VllmHttpGenerator.start(url, options)
    assert "/pause" not in twin.calls


async def test_a_server_of_another_run_or_a_paused_one_is_refused(options: GeneratorOptions) -> None:
    twin = ServerTwin()
    async with serving(twin) as url:
        twin.label = "run-0:9"
        with pytest.raises(GeneratorBroken, match="'run-0:9', those of another run"):
            await VllmHttpGenerator.start(url, options)
        twin.label = "default"
        twin.pause()
        with pytest.raises(GeneratorBroken, match="an update was interrupted"):
            await VllmHttpGenerator.start(url, options)


async def test_the_key_comes_from_the_environment(options: GeneratorOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    twin = ServerTwin(key="secret")
    async with serving(twin) as url:
        with pytest.raises(ConfigError, match="VLLM_KEY is not set"):
            await VllmHttpGenerator.start(url, options, key_env="VLLM_KEY")
        monkeypatch.setenv("VLLM_KEY", "stale")
        with pytest.raises(ConfigError, match="the key in VLLM_KEY is not its own"):
            await VllmHttpGenerator.start(url, options, key_env="VLLM_KEY")
        assert "/pause" not in twin.calls
        monkeypatch.setenv("VLLM_KEY", "secret")
        generator = await VllmHttpGenerator.start(url, options, key_env="VLLM_KEY")
        await generator.aclose()


async def test_a_server_that_goes_away_breaks_the_generator(options: GeneratorOptions) -> None:
    twin = ServerTwin()
    told: list[str] = []

    async def in_flight(generator: VllmHttpGenerator) -> None:
        with pytest.raises(GeneratorBroken) as failure:
            await generator.generate(ask())
        told.append(str(failure.value))

    async with anyio.create_task_group() as tasks, serving(twin) as url:
        generator = await VllmHttpGenerator.start(url, options)
        twin.hold, twin.arrived = anyio.Event(), anyio.Event()
        tasks.start_soon(in_flight, generator)
        with anyio.fail_after(40):
            await twin.arrived.wait()
    assert "is gone" in told[0]
    with pytest.raises(GeneratorBroken, match="is gone"):
        await generator.generate(ask())
    await generator.aclose()


async def test_a_connection_that_broke_costs_a_repetition_and_not_the_server(options: GeneratorOptions) -> None:
    """vLLM closes a connection that was idle for 5 s, perhaps at the moment it is used again."""
    twin = ServerTwin()
    async with serving(twin) as url:
        generator = await VllmHttpGenerator.start(url, options)
        twin.asked.clear()
        twin.drops = 1
        assert (await generator.generate(ask())).token_ids.tolist() == [8, 9, 10]
        assert len(twin.asked) == 2
        assert twin.asked[0] == twin.asked[1]
        twin.drops = 2
        with pytest.raises(GeneratorBroken, match="is gone"):
            await generator.generate(ask())
        await generator.aclose()


async def test_a_server_whose_engine_died_breaks_the_generator_while_it_still_answers(
    options: GeneratorOptions,
) -> None:
    """Else every rollout there would count as a failed one, and its group would be thrown away."""
    twin = ServerTwin()
    async with serving(twin) as url:
        generator = await VllmHttpGenerator.start(url, options)
        twin.refuses = {GENERATE}
        with pytest.raises(GenerationFailed, match="no such thing here") as one:
            await generator.generate(ask())
        assert not isinstance(one.value, GeneratorBroken)  # one request it could not serve, and it lives
        twin.refuses, twin.engine_lives = set(), False
        with pytest.raises(GeneratorBroken, match=r"engine is gone .*EngineCore died"):
            await generator.generate(ask())
        await generator.aclose()


async def test_a_server_that_was_started_again_is_noticed_by_its_label(
    options: GeneratorOptions, tmp_path: Path
) -> None:
    twin = ServerTwin()
    async with serving(twin) as url:
        generator = await VllmHttpGenerator.start(url, options)
        await generator.update(manifest(tmp_path, 2))
        twin.label = "default"
        with pytest.raises(GeneratorBroken, match="version 0, but version 2 was live"):
            await generator.generate(ask())
        await generator.aclose()


async def test_a_failed_load_poisons_and_gives_the_requests_up(options: GeneratorOptions, tmp_path: Path) -> None:
    twin = ServerTwin()
    async with serving(twin) as url:
        generator = await VllmHttpGenerator.start(url, options)
        twin.refuses = {"/update_weights"}
        with pytest.raises(WeightsRejected, match="no such thing here"):
            await generator.update(manifest(tmp_path, 1))
        assert twin.is_paused
        with pytest.raises(GeneratorBroken, match="halfway"):
            await generator.generate(ask())
        await generator.aclose()


async def test_an_aborted_request_is_no_turn(options: GeneratorOptions) -> None:
    twin = ServerTwin()
    async with serving(twin) as url:
        generator = await VllmHttpGenerator.start(url, options)
        twin.finish_reason = "abort"
        with pytest.raises(GenerationFailed, match="'abort'"):
            await generator.generate(ask())
        await generator.aclose()


@pytest.mark.parametrize("url", ["ftp://a", "localhost:8000", "http://", "http://me:word@host:1"])
def test_addresses_that_cannot_be_asked_or_hold_a_secret_are_refused(url: str) -> None:
    with pytest.raises(ConfigError):
        check_url(url)
