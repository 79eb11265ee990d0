from __future__ import annotations

import contextlib
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_rl.errors import LinkError
from stream_rl.link.codec import Decoder, encode, pack, unpack
from stream_rl.messages import FromProducer, ToControl, ToOrchestrator, TrainLease, TrajectoryDone
from stream_rl.types import Message, Sample, Task, Trajectory

TASK = Task(environment="household", split="train", index=7)


def sample(num_tokens: int = 3) -> Sample:
    return Sample(
        token_ids=np.arange(num_tokens, dtype=np.int32),
        loss_mask=np.arange(num_tokens) % 2 == 1,
        behavior_logprobs=np.linspace(-1, 0, num_tokens, dtype=np.float32),
        head=(Message(role="user", content="go"),),
        head_tokens=1,
    )


def done(*samples: Sample) -> TrajectoryDone:
    return TrajectoryDone(
        trajectory=Trajectory(
            id="g/0", group_id="g", member=0, task=TASK, samples=samples, turns=(), reward=0.0, success=False, score=0.0
        )
    )


def raw_sample(**changes: Any) -> bytes:
    """A `Sample` of three tokens as its header is written, with fields replaced."""
    fields: dict[str, Any] = {
        "token_ids": ["i4", 1, [3]],
        "loss_mask": ["b1", 2, [3]],
        "behavior_logprobs": ["f4", 3, [3]],
        "head": [],
        "head_tokens": 0,
    }
    return msgspec.msgpack.encode(fields | changes)


ARRAYS = [bytes(12), bytes([0, 1, 1]), bytes(12)]


def test_arrays_travel_as_raw_frames_and_arrive_equal() -> None:
    frames = encode(done(sample(3), sample(0)))
    assert len(frames) == 7  # header and two times three arrays
    assert frames[1] == np.array([0, 1, 2], "<i4").tobytes()
    message = Decoder[ToOrchestrator](ToOrchestrator).decode(frames)
    assert isinstance(message, TrajectoryDone)
    first, second = message.trajectory.samples
    np.testing.assert_array_equal(first.token_ids, [0, 1, 2])
    np.testing.assert_array_equal(first.loss_mask, [False, True, False])
    np.testing.assert_array_equal(first.behavior_logprobs, np.array([-1, -0.5, 0], np.float32))
    arrays = (first.token_ids, first.loss_mask, first.behavior_logprobs)
    assert [array.dtype.name for array in arrays] == ["int32", "bool", "float32"]
    assert second.token_ids.shape == (0,)
    assert first.head == (Message(role="user", content="go"),)


def test_decoded_arrays_are_read_only_even_over_writable_memory() -> None:
    frames = [memoryview(bytearray(frame)) for frame in [raw_sample(), *ARRAYS]]
    decoded: Sample = Decoder[Sample](Sample).decode(frames)
    with pytest.raises(ValueError, match="read-only"):
        decoded.token_ids[0] = 1


def test_encoding_copies() -> None:
    one = sample()
    frames = encode(one)
    one.token_ids[0] = 99
    assert Decoder[Sample](Sample).decode(frames).token_ids[0] == 0


def test_arrays_of_other_layouts_are_converted_and_other_types_refused() -> None:
    strided = np.arange(6, dtype=">i4")[::2]
    frames = encode(msgspec.structs.replace(sample(), token_ids=strided))
    assert frames[1] == np.array([0, 2, 4], "<i4").tobytes()
    with pytest.raises(TypeError, match="int64"):
        encode(msgspec.structs.replace(sample(), token_ids=np.arange(3)))


@pytest.mark.parametrize(
    "changes",
    [
        {"token_ids": ["f4", 1, [3]]},  # float32 where int32 is expected
        {"behavior_logprobs": ["i4", 1, [3]]},
        {"token_ids": ["O", 1, [3]]},  # no such dtype
        {"token_ids": [["i4"], 1, [3]]},
        {"token_ids": ["i4", 0, [3]]},  # the header itself
        {"token_ids": ["i4", -1, [3]]},
        {"token_ids": ["i4", 4, [3]]},  # past the last frame
        {"token_ids": ["i4", 1.5, [3]]},
        {"token_ids": ["i4", 1, [-1]]},  # "whatever fits" is not a shape
        {"token_ids": ["i4", 1, None]},
        {"token_ids": ["i4", 1, 3]},
        {"token_ids": ["i4", 1, [4]]},
        {"token_ids": ["i4", 1, [2**62, 2]]},
        {"token_ids": ["i4", 1, [2**64 - 1]]},
        {"token_ids": ["i4", 1, [True, 3]]},
        {"token_ids": ["i4", 1, [1] * 100]},
        {"token_ids": ["i4", 1]},
        {"token_ids": [0, 1, 2]},
        {"token_ids": None},
        {"token_ids": {"a": 1}},
        {"head_tokens": "many"},
        {"loss_mask": ["b1", 1, [12]], "head": 5},
    ],
)
def test_hostile_array_headers_are_link_errors(changes: dict[str, Any]) -> None:
    with pytest.raises(LinkError, match="undecodable"):
        Decoder[Sample](Sample).decode([raw_sample(**changes), *ARRAYS])


def test_the_hostile_cases_differ_from_a_good_one() -> None:
    np.testing.assert_array_equal(Decoder[Sample](Sample).decode([raw_sample(), *ARRAYS]).token_ids, [0, 0, 0])


def test_a_bool_array_of_other_bytes_is_refused() -> None:
    with pytest.raises(LinkError, match="bool"):
        Decoder[Sample](Sample).decode([raw_sample(), ARRAYS[0], bytes([0, 2, 1]), ARRAYS[2]])


def test_an_array_frame_of_the_wrong_length_is_refused() -> None:
    with pytest.raises(LinkError):
        Decoder[Sample](Sample).decode([raw_sample(), bytes(11), *ARRAYS[1:]])


def test_endless_nesting_is_a_link_error() -> None:
    deep = b"\x91" * 100_000 + b"\xc0"
    name, status, key = map(msgspec.msgpack.encode, ("StatusReply", "status", "a"))
    header = b"\x82" + msgspec.msgpack.encode("type") + name + status + b"\x81" + key + deep
    with pytest.raises(LinkError):
        Decoder[ToControl](ToControl).decode([header])


def test_a_message_of_the_other_direction_is_refused() -> None:
    lease = TrainLease(
        group_id="g", task=TASK, size=1, seed=0, temperature=1.0, max_tokens=1, max_turns=1, deadline_s=1.0
    )
    with pytest.raises(LinkError, match="TrainLease"):
        Decoder[ToOrchestrator](ToOrchestrator).decode(encode(lease))


def test_no_frames_is_a_link_error() -> None:
    with pytest.raises(LinkError):
        Decoder[Sample](Sample).decode([])


@settings(deadline=None, max_examples=200)
@given(st.lists(st.binary(max_size=60), max_size=4))
def test_random_bytes_never_raise_anything_else(frames: list[bytes]) -> None:
    with pytest.raises(LinkError):
        Decoder[FromProducer](FromProducer).decode(frames)


@settings(deadline=None, max_examples=200)
@given(st.data())
def test_one_damaged_byte_gives_a_message_or_a_link_error(data: st.DataObject) -> None:
    blob = bytearray(pack(done(sample())))
    blob[data.draw(st.integers(0, len(blob) - 1))] ^= data.draw(st.integers(1, 255))
    with contextlib.suppress(LinkError):
        assert isinstance(Decoder[FromProducer](FromProducer).decode(unpack(bytes(blob))), msgspec.Struct)


def test_pack_writes_count_lengths_and_frames() -> None:
    frames = encode(sample())
    blob = pack(sample())
    assert blob[:4] == (4).to_bytes(4, "little")
    assert [int.from_bytes(blob[4 + 8 * i : 12 + 8 * i], "little") for i in range(4)] == [len(f) for f in frames]
    assert [bytes(f) for f in unpack(blob)] == frames


def test_every_truncation_of_a_blob_is_a_link_error() -> None:
    blob = pack(sample())
    for length in range(len(blob)):
        with pytest.raises(LinkError):
            unpack(blob[:length])
    with pytest.raises(LinkError):
        unpack(blob + b"\0")


def test_a_blob_that_claims_more_frames_than_it_could_hold_is_a_link_error() -> None:
    with pytest.raises(LinkError, match="claims 4294967295 frames"):
        unpack(b"\xff" * 64)
