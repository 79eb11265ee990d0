"""Pulling a file in pieces: whatever is lost, doubled, reordered or damaged, every byte arrives once."""

from __future__ import annotations

import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_rl.errors import LinkError
from stream_rl.link import chunks
from stream_rl.link.chunks import Ask, Download, Piece, Refused, encode


@settings(deadline=None, max_examples=60)
@given(
    num_bytes=st.integers(1, 60),
    chunk_bytes=st.integers(1, 16),
    window=st.integers(1, 5),
    fates=st.lists(st.sampled_from(["arrive", "damage", "double", "lose"]), max_size=40),
    data=st.data(),
)
def test_every_byte_arrives_once(
    num_bytes: int, chunk_bytes: int, window: int, fates: list[str], data: st.DataObject
) -> None:
    download = Download(num_bytes, chunk_bytes=chunk_bytes, window=window)
    under_way: list[tuple[int, int]] = []
    stored: dict[int, int] = {}
    damages: dict[int, int] = {}
    silences = 0
    while not download.done:
        asked = download.ask()
        under_way += asked
        assert len(asked) <= window
        if not under_way:
            download.silent()  # everything was lost
            silences += 1
            continue
        piece = under_way.pop(data.draw(st.integers(0, len(under_way) - 1)))
        fate = fates.pop() if fates else "arrive"
        if fate == "damage" and damages.get(piece[0], 0) < chunks.MAX_ASKS - 1 and download.wants(*piece):
            damages[piece[0]] = damages.get(piece[0], 0) + 1
            download.damaged(piece[0])
        elif fate == "lose" and silences < chunks.MAX_SILENCES - 1:
            continue
        else:
            if fate == "double":
                under_way.append(piece)
            if download.wants(*piece):
                assert piece[0] not in stored
                stored[piece[0]] = piece[1]
                download.arrived(piece[0])
    covered = [byte for offset, length in stored.items() for byte in range(offset, offset + length)]
    assert sorted(covered) == list(range(num_bytes))


def test_no_more_is_under_way_than_the_window() -> None:
    download = Download(100, chunk_bytes=10, window=3)
    assert download.ask() == [(0, 10), (10, 10), (20, 10)]
    assert download.ask() == []
    download.arrived(10)
    assert download.ask() == [(30, 10)]
    download.silent()  # 0, 20 and 30 count as lost, and come first again
    assert download.ask() == [(0, 10), (20, 10), (30, 10)]


def test_a_late_answer_to_a_lost_question_is_taken_and_not_asked_for_again() -> None:
    download = Download(20, chunk_bytes=10, window=2)
    download.ask()
    download.silent()
    assert download.wants(0, 10)
    download.arrived(0)
    assert download.ask() == [(10, 10)]


def test_silence_and_damage_end_after_their_limits() -> None:
    silent = Download(20, chunk_bytes=10, window=2)
    for _ in range(chunks.MAX_SILENCES - 1):
        silent.silent()
    with pytest.raises(LinkError, match="nothing came 3 times in a row; 2 pieces are missing"):
        silent.silent()
    damaged = Download(20, chunk_bytes=10, window=2)
    for _ in range(chunks.MAX_ASKS - 1):
        damaged.ask()
        damaged.damaged(10)
    with pytest.raises(LinkError, match="at byte 10 came damaged 4 times"):
        damaged.damaged(10)


def test_progress_forgives_silence() -> None:
    download = Download(100, chunk_bytes=10, window=2)
    for offset in range(0, 100, 10):
        for _ in range(chunks.MAX_SILENCES - 1):
            download.ask()
            download.silent()
        download.arrived(offset)
    assert download.done


@pytest.mark.parametrize("piece", [(-10, 10), (5, 10), (30, 10), (0, 9), (20, 10)])
def test_pieces_nobody_asked_for_are_refused(piece: tuple[int, int]) -> None:
    with pytest.raises(LinkError, match="no piece of a file of 25 bytes"):
        Download(25, chunk_bytes=10, window=2).wants(*piece)


def reader(data: bytes) -> chunks.Reader:
    stream = io.BytesIO(data)

    def read(count: int) -> bytes:
        found = stream.read(count)
        if len(found) < count:
            raise EOFError
        return found

    return read


def test_messages_come_as_they_were_sent() -> None:
    ask = Ask(run_id="r", version=3, offset=8, length=4)
    piece = Piece(version=3, offset=8, length=4, checksum=chunks.checksum(b"abcd"))
    refused = Refused(version=3, reason="gone")
    read = reader(encode(ask) + encode(ask))
    assert [chunks.read_ask(read), chunks.read_ask(read)] == [ask, ask]
    read = reader(encode(piece) + b"abcd" + encode(refused))
    assert chunks.read_answer(read) == piece
    assert read(4) == b"abcd"
    assert chunks.read_answer(read) == refused
    assert chunks.checksum(b"abcd") != chunks.checksum(b"abce")


@pytest.mark.parametrize(
    "sent",
    [
        b"\x00\x00\x00\x04junk",
        b"\xff\xff\xff\xff",  # a length nobody should wait for
        encode(Ask(run_id="r", version=1, offset=-1, length=1)),
        encode(Ask(run_id="r", version=1, offset=0, length=0)),
        encode(Ask(run_id="r", version=1, offset=0, length=chunks.CHUNK_BYTES + 1)),
        encode(Refused(version=1, reason="not a question")),
    ],
)
def test_malformed_questions_are_refused(sent: bytes) -> None:
    with pytest.raises(LinkError):
        chunks.read_ask(reader(sent))


@pytest.mark.parametrize(
    "sent",
    [
        b"\x00\x00\x00\x04junk",
        b"\xff\xff\xff\xff",
        encode(Piece(version=1, offset=0, length=0, checksum=0)),
        encode(Piece(version=1, offset=0, length=chunks.CHUNK_BYTES + 1, checksum=0)),
        encode(Ask(run_id="r", version=1, offset=0, length=1)),
    ],
)
def test_malformed_answers_are_refused(sent: bytes) -> None:
    with pytest.raises(LinkError):
        chunks.read_answer(reader(sent))


def test_a_connection_that_ends_within_a_message_is_an_end() -> None:
    with pytest.raises(EOFError):
        chunks.read_ask(reader(encode(Ask(run_id="r", version=1, offset=0, length=1))[:-1]))
