"""A large file in pieces that its reader asks for: what is said, and the reader's bookkeeping.

The reader pulls over a plain TCP connection. It asks a few pieces ahead, so what is under way is bounded by its own
window and by TCP, and nobody in between has to hold the file. What is lost with a connection, or comes damaged, is
asked for again; nothing else is.

Every message is four bytes of length (big endian) and so many bytes of msgpack. A `Piece` is followed by its bytes.
"""

from __future__ import annotations

import struct
from collections import Counter, deque
from collections.abc import Callable

import msgspec
import xxhash

from stream_rl.errors import LinkError
from stream_rl.link.codec import Decoder

CHUNK_BYTES = 1 << 20  # of one piece: read, checked and stored within the processor's cache
WINDOW = 8  # pieces asked for and not here yet
MAX_ASKS = 4  # a piece that came damaged this often does so for a reason
MAX_SILENCES = 3  # broken connections, or waits, in a row that brought nothing
_MAX_HEAD_BYTES = 4096
_LENGTH = struct.Struct(">I")

Reader = Callable[[int], bytes]  # exactly so many bytes of a connection; raises `EOFError` at its end


class Ask(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Reader to owner: send me this part of a version's file."""

    run_id: str  # whose version
    version: int  # which
    offset: int  # first byte
    length: int  # bytes, at most CHUNK_BYTES


class Piece(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Owner to reader: the bytes follow."""

    version: int  # as asked
    offset: int  # as asked
    length: int  # as asked
    checksum: int  # XXH3-64 of the bytes


class Refused(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Owner to reader: there is no such part, and there will not be."""

    version: int  # as asked
    reason: str  # for the reader's error


_ask: Decoder[Ask] = Decoder(Ask)
_answer: Decoder[Piece | Refused] = Decoder(Piece | Refused)


def checksum(data: bytes | bytearray | memoryview) -> int:
    """XXH3-64: enough for a piece that TCP has checked once already."""
    return xxhash.xxh3_64_intdigest(data)


def encode(message: Ask | Piece | Refused) -> bytes:
    """Length and message."""
    head = msgspec.msgpack.encode(message)
    return _LENGTH.pack(len(head)) + head


def read_ask(read: Reader) -> Ask:
    """What a reader wants. Raises `LinkError` for anything but a well-formed question of a permitted size."""
    ask = _ask.decode([_head(read)])
    if ask.offset < 0 or not 0 < ask.length <= CHUNK_BYTES:
        raise LinkError(f"bytes {ask.offset} to {ask.offset + ask.length} of version {ask.version} cannot be asked for")
    return ask


def read_answer(read: Reader) -> Piece | Refused:
    """What the owner says; the bytes of a piece are still to be read. Raises `LinkError`."""
    answer = _answer.decode([_head(read)])
    if isinstance(answer, Piece) and not 0 < answer.length <= CHUNK_BYTES:
        raise LinkError(f"a piece of {answer.length} bytes; at most {CHUNK_BYTES} are taken")
    return answer


def _head(read: Reader) -> bytes:
    (length,) = _LENGTH.unpack(read(_LENGTH.size))
    if length > _MAX_HEAD_BYTES:
        raise LinkError(f"a message of {length} bytes; at most {_MAX_HEAD_BYTES} are taken")
    return read(length)


class Download:
    """Which pieces of a file to ask for next. Pure: no clock, no socket, no file.

    >>> download = Download(10, chunk_bytes=4, window=2)
    >>> download.ask()
    [(0, 4), (4, 4)]
    >>> download.wants(4, 4)
    True
    >>> download.arrived(4)
    >>> download.wants(4, 4)  # what comes now is a duplicate
    False
    >>> download.ask()
    [(8, 2)]
    """

    def __init__(self, num_bytes: int, *, chunk_bytes: int = CHUNK_BYTES, window: int = WINDOW) -> None:
        self._num_bytes = num_bytes
        self._chunk_bytes = chunk_bytes
        self._window = window
        self._missing = dict.fromkeys(range(0, num_bytes, chunk_bytes))
        self._queue = deque(self._missing)  # to be asked for, in this order
        self._asked: set[int] = set()
        self._num_damaged: Counter[int] = Counter()
        self._silences = 0

    @property
    def done(self) -> bool:
        """Every piece has arrived."""
        return not self._missing

    @property
    def num_missing(self) -> int:
        """Pieces that have not arrived."""
        return len(self._missing)

    def ask(self) -> list[tuple[int, int]]:
        """Offset and length of the pieces to ask for now: the window is full afterwards, or nothing is left."""
        out = []
        while self._queue and len(self._asked) < self._window:
            offset = self._queue.popleft()
            if offset in self._missing:
                self._asked.add(offset)
                out.append((offset, self._length(offset)))
        return out

    def wants(self, offset: int, length: int) -> bool:
        """Whether a piece that came was missing. Raises `LinkError` for one that nobody can have asked for."""
        if offset % self._chunk_bytes or not 0 <= offset < self._num_bytes or length != self._length(offset):
            raise LinkError(f"{length} bytes came at {offset}, which is no piece of a file of {self._num_bytes} bytes")
        return offset in self._missing

    def arrived(self, offset: int) -> None:
        """A piece that was wanted is safe."""
        self._silences = 0
        self._asked.discard(offset)
        del self._missing[offset]

    def damaged(self, offset: int) -> None:
        """A piece came with other bytes than its checksum says. Raises `LinkError` at the `MAX_ASKS`th time."""
        self._num_damaged[offset] += 1
        if self._num_damaged[offset] >= MAX_ASKS:
            raise LinkError(f"the piece at byte {offset} came damaged {MAX_ASKS} times")
        if offset in self._asked:
            self._asked.discard(offset)
            self._queue.appendleft(offset)

    def silent(self) -> None:
        """The connection broke, or nothing came for a while: what is under way is lost.

        Raises `LinkError` at the `MAX_SILENCES`th time since a piece arrived.
        """
        self._silences += 1
        if self._silences >= MAX_SILENCES:
            raise LinkError(f"nothing came {MAX_SILENCES} times in a row; {len(self._missing)} pieces are missing")
        self._queue.extendleft(sorted(self._asked, reverse=True))
        self._asked.clear()

    def _length(self, offset: int) -> int:
        return min(self._chunk_bytes, self._num_bytes - offset)
