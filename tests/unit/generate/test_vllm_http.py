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
from stream_rl.generate.vllm_http import GENERATE, VllmHttpGenerator
from stream_rl.generate.vllm_http_session import check_url
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
        again = await VllmHttpGenerator.start(url, options)  # a producer that was replaced goes on where it stood
        assert again.version == 3
        await again.aclose()


@pytest.mark.parametrize(
    ("twin", "told"),
    [
        (ServerTwin(lacks={"/server_info"}), r"cannot take weights .* VLLM_SERVER_DEV_MODE=1"),
        (ServerTwin(lacks={"/weight_info"}), r"cannot take weights .* VLLM_SERVER_DEV_MODE=1"),
        (ServerTwin(refuses={"/init_weight_transfer_engine"}), r"cannot read published weights"),
        (ServerTwin(lacks={GENERATE}), r"does not take token ids .*--tokens-only"),
        (ServerTwin(key="secret"), "answered 401"),
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
        twin.label, twin.is_paused = "default", True
        with pytest.raises(GeneratorBroken, match="an update was interrupted"):
            await VllmHttpGenerator.start(url, options)


async def test_the_key_comes_from_the_environment(options: GeneratorOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    twin = ServerTwin(key="secret")
    async with serving(twin) as url:
        with pytest.raises(ConfigError, match="VLLM_KEY is not set"):
            await VllmHttpGenerator.start(url, options, key_env="VLLM_KEY")
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
        with anyio.fail_after(5):
            await twin.arrived.wait()
    assert "is gone" in told[0]
    with pytest.raises(GeneratorBroken, match="is gone"):
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
