"""TCP wire: the frames of many requests on one connection, those of packages/transport/src/tcp/tcp-wire.ts.

    length (4 bytes, big-endian), then that number of bytes: one MessagePack array [kind, stream, content]

    stream 0, about the connection
      HELLO     {protocol, version, frameBytesMax, streamsMax, windowBytes, idleMs}: the first frame of each
                side: what it reads, so the other must stay within
      ALIVE     nil        BYE       integer: the last stream that the worker has seen; it takes no more
    streams 1, 2, ..., each a request, in the order in which the router opens them (_request_frames)
      BODY, DATA     bin            CREDIT, END    integer
      OPEN, HEAD     map            FAILED         [reason, whether the request was seen]
      CANCEL         nil

Bounds   a frame by what its reader said in its hello; before that, HELLO_BYTES_MAX. Of a frame that is not
         whole only what has come is kept.
"""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional

from ._packages import needed
from ._request_frames import (
    ALIVE,
    BODY,
    CANCEL,
    CREDIT,
    DATA,
    END,
    FAILED,
    HEAD,
    OPEN,
    WINDOW_BYTES_MAX,
    WINDOW_BYTES_MIN,
    is_count,
)

HELLO, BYE = 16, 17
PROTOCOL = "homing-requests"
VERSION = 1
HELLO_BYTES_MAX = 4096
#: Longest frame that is read: headers of 64 KiB, which may be twice as long as UTF-8, and a path.
FRAME_BYTES_MAX = 256 * 1024
#: A larger piece would keep other requests waiting.
PIECE_BYTES_MAX = 64 * 1024
#: Length, array, kind, stream and the head of the content.
FRAME_HEAD_BYTES = 16
LENGTH_BYTES = 4
#: Headers of 64 KiB, the least of which have some bytes each.
_VALUES_MAX = 16_384
_UINT32_MAX = 2**32 - 1


class BrokenFrame(Exception):
    """Nothing more can be read, and why."""


class WrongVersion(BrokenFrame):
    """The other side does not speak this."""


class Frame(NamedTuple):
    kind: int
    stream: int
    content: Any


class Hello(NamedTuple):
    """What a side says of itself."""

    frame_bytes_max: int
    streams_max: int
    window_bytes: int
    idle_ms: int


class TcpWire:
    """Raises HomingError `packages_missing` where msgpack is missing."""

    def __init__(self) -> None:
        msgpack = needed("msgpack", "msgpack", "take requests over tcp", "tcp", "msgpack")
        self._pack = msgpack.packb
        self._unpack = msgpack.unpackb

    def encoded(self, kind: int, stream: int, content: Any = None) -> bytes:
        """A frame with its length."""
        data: bytes = self._pack([kind, stream, content], use_bin_type=True)
        return len(data).to_bytes(LENGTH_BYTES, "big") + data

    def hello(self, hello: Hello) -> bytes:
        return self.encoded(
            HELLO,
            0,
            {
                "protocol": PROTOCOL,
                "version": VERSION,
                "frameBytesMax": hello.frame_bytes_max,
                "streamsMax": hello.streams_max,
                "windowBytes": hello.window_bytes,
                "idleMs": hello.idle_ms,
            },
        )

    def decoded(self, data: bytes) -> Frame:
        """One frame, without its length. Raises BrokenFrame."""
        try:
            frame = self._unpack(
                data,
                raw=False,
                strict_map_key=True,
                max_array_len=_VALUES_MAX,
                max_map_len=_VALUES_MAX,
                max_ext_len=0,
            )
        # What a stranger sends may be refused by any error of the package.
        except Exception as error:
            raise BrokenFrame("a frame came that cannot be read") from error
        if not isinstance(frame, list) or len(frame) != 3:
            raise BrokenFrame("a frame came that cannot be read")
        kind, stream, content = frame
        is_right = is_count(kind, 0, 255) and is_count(stream, 0, _UINT32_MAX) and _is_content(kind, content)
        if not is_right or (stream == 0) != (kind in (HELLO, BYE, ALIVE)):
            raise BrokenFrame("a frame came that cannot be read")
        return Frame(kind, stream, content)


class FrameReader:
    """Cuts what comes of a connection into frames."""

    def __init__(self, wire: TcpWire) -> None:
        self._wire = wire
        self._bytes = bytearray()
        self._at = 0
        #: Larger ones are not read.
        self.frame_bytes_max = HELLO_BYTES_MAX

    def put(self, data: bytes) -> None:
        """`data` is read until `next` says that there is no whole frame."""
        if self._at > 0:
            del self._bytes[: self._at]
            self._at = 0
        self._bytes += data

    def clear(self) -> None:
        self._bytes = bytearray()
        self._at = 0

    def next(self) -> Optional[Frame]:
        """None: there is no whole frame yet. Raises BrokenFrame."""
        begin = self._at + LENGTH_BYTES
        if len(self._bytes) < begin:
            return None
        length = int.from_bytes(self._bytes[self._at : begin], "big")
        if length > self.frame_bytes_max:
            raise BrokenFrame(f"a frame of {length} bytes came, and {self.frame_bytes_max} are read")
        if len(self._bytes) < begin + length:
            return None
        self._at = begin + length
        return self._wire.decoded(bytes(self._bytes[begin : self._at]))


def hello_of(content: Dict[str, Any]) -> Hello:
    """Raises WrongVersion."""
    if content.get("protocol") != PROTOCOL:
        raise WrongVersion("it does not speak the request plane")
    version = content.get("version")
    if not is_count(version, VERSION, VERSION):
        told = version if is_count(version, 0, _UINT32_MAX) else "unknown"
        raise WrongVersion(f"its request plane is of version {told}, not {VERSION}")
    names = ("frameBytesMax", "streamsMax", "windowBytes", "idleMs")
    words: List[Any] = [content.get(name) for name in names]
    hello = Hello(*words)
    is_right = (
        is_count(hello.frame_bytes_max, HELLO_BYTES_MAX, _UINT32_MAX)
        and is_count(hello.streams_max, 1, _UINT32_MAX)
        and is_count(hello.window_bytes, WINDOW_BYTES_MIN, WINDOW_BYTES_MAX)
        and is_count(hello.idle_ms, 1, 2**31)
    )
    if not is_right:
        raise WrongVersion("what it says of itself cannot be right")
    return hello


def _is_content(kind: int, content: object) -> bool:
    if kind in (BODY, DATA):
        # No sender has an empty one, and a flood of them would carry nothing.
        return isinstance(content, bytes) and len(content) > 0
    if kind in (CREDIT, END, BYE):
        return is_count(content, 0, _UINT32_MAX)
    if kind in (CANCEL, ALIVE):
        return content is None
    if kind == FAILED:
        return isinstance(content, list) and len(content) == 2 and isinstance(content[0], str)
    return kind in (OPEN, HEAD, HELLO) and isinstance(content, dict)
