from __future__ import annotations

import anyio
import pytest

from stream_rl.errors import WeightsRejected
from stream_rl.generate import probe
from stream_rl.generate.live import LiveWeights
from stream_rl.generate.weight_swap import SwapDeadlines, Swapped, swap
from stream_rl.types import WeightsManifest
from tests.unit.generate.paused_engine import HANG, IGNORED, LOST, EngineTwin
from tests.unit.virtual_time import in_virtual_time

PROMPT = probe.prompt(320)
MANIFEST = WeightsManifest(run_id="run", version=4, path="/v4", fingerprint="f", num_bytes=1)


async def put(engine: EngineTwin, live: LiveWeights) -> Swapped:
    return await swap(engine, MANIFEST, live, PROMPT, SwapDeadlines(call_s=5.0, total_s=30.0))


@in_virtual_time
async def test_an_update_pauses_loads_labels_probes_and_resumes_in_this_order() -> None:
    engine, live = EngineTwin(), LiveWeights("run", 0)
    done = await put(engine, live)
    assert engine.calls == ["pause", "start", "load", "finish", "label", "probe", "resume"]
    assert (live.version, engine.held, engine.loaded, engine.is_paused) == (4, "4", "/v4", False)
    assert done.probe == (-1.0,) * 16
    assert 0 <= done.load_s + done.probe_s <= done.pause_s
    assert done.wait_s >= 0


@pytest.mark.parametrize("fault", [HANG, LOST, IGNORED, ConnectionError("reset by peer")])
@in_virtual_time
async def test_a_lost_resume_is_repeated_until_the_engine_says_that_it_runs(fault: str | Exception) -> None:
    engine, live = EngineTwin(resume=[fault, fault]), LiveWeights("run", 0)
    done = await put(engine, live)
    assert engine.calls[-3:] == ["resume"] * 3
    assert (engine.is_paused, live.version, live.poison) == (False, 4, None)
    assert done.probe


@in_virtual_time
async def test_an_engine_that_never_resumes_is_poisoned_and_fails_its_requests() -> None:
    engine, live = EngineTwin(resume=[HANG] * 9), LiveWeights("run", 0)
    with pytest.raises(WeightsRejected, match=r"could not be resumed .* resume did not answer within 5 s"):
        await put(engine, live)
    assert live.poison is not None
    assert engine.gave_up


@pytest.mark.parametrize("call", ["start", "load", "finish", "label", "probe"])
@pytest.mark.parametrize("fault", [HANG, RuntimeError("worker died")])
@in_virtual_time
async def test_weights_that_fail_halfway_are_never_sampled_from(call: str, fault: str | Exception) -> None:
    engine, live = EngineTwin(**{call: [fault]}), LiveWeights("run", 0)
    with pytest.raises(WeightsRejected, match=r"/v4: vLLM did not take version 4: .*(did not answer|worker died)"):
        await put(engine, live)
    assert "resume" not in engine.calls
    assert (engine.is_paused, engine.gave_up) == (True, True)
    assert live.version == 0
    assert "version 4 failed halfway" in (live.poison or "")


@pytest.mark.parametrize("fault", [HANG, RuntimeError("busy")])
@in_virtual_time
async def test_an_engine_that_did_not_pause_goes_on_with_its_old_weights(fault: str | Exception) -> None:
    engine, live = EngineTwin(pause=[fault]), LiveWeights("run", 0)
    with pytest.raises(WeightsRejected, match="did not take version 4"):
        await put(engine, live)
    assert (engine.is_paused, engine.held, live.version, live.poison) == (False, "0", 0, None)
    assert engine.calls[-1] == "resume"


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ([-1.0] * 15 + [float("nan")], "nan"),
        ([-1.0] * 15 + [float("-inf")], "-inf"),
        ([-1.0] * 15 + [0.5], "0.5"),
        ([-1.0] * 3, "gave 3 log-probabilities of the 16"),
    ],
)
@in_virtual_time
async def test_weights_that_say_nonsense_are_never_sampled_from(said: list[float], told: str) -> None:
    engine, live = EngineTwin(), LiveWeights("run", 0)
    engine.says = said
    with pytest.raises(WeightsRejected, match=told):
        await put(engine, live)
    assert "resume" not in engine.calls
    assert (engine.gave_up, live.version) == (True, 0)


@in_virtual_time
async def test_an_engine_that_keeps_its_old_label_is_not_believed() -> None:
    engine, live = EngineTwin(finish=[IGNORED]), LiveWeights("run", 0)
    with pytest.raises(WeightsRejected, match="calls its weights '0' after version 4"):
        await put(engine, live)
    assert "resume" not in engine.calls


@in_virtual_time
async def test_cancelled_while_paused_it_resumes_and_while_loading_it_gives_up() -> None:
    for call, resumed in (("pause", True), ("load", False)):
        faults: dict[str, list[str | Exception]] = {call: [HANG]}
        engine, live = EngineTwin(**faults), LiveWeights("run", 0)
        with anyio.move_on_after(1.0) as scope:
            await put(engine, live)
        assert scope.cancelled_caught
        assert ("resume" in engine.calls, engine.gave_up, live.poison is None) == (resumed, not resumed, resumed)


@in_virtual_time
async def test_an_engine_that_does_not_even_give_up_is_left_to_its_producer() -> None:
    engine, live = EngineTwin(load=[RuntimeError("torn")], abandon=[HANG]), LiveWeights("run", 0)
    with pytest.raises(WeightsRejected, match="torn"):
        await put(engine, live)
    assert live.poison is not None
