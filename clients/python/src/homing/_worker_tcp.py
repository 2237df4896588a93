"""Requests for a worker over TCP: many of them on each connection of a router (_tcp_wire).

A router has left a request when it cancels it, or when its connection ends. A connection is always read:
credit bounds what each request may send, so one that is read slowly holds no other.

Bounds   CONNECTIONS_MAX connections, further ones are closed at once; STREAMS_MAX requests of each and
         CALLS_MAX in all, further ones are answered with 503. While BLOCKED_BYTES wait for the network,
         pieces wait; past BUFFER_BYTES_MAX the router reads nothing at all, and is cut. So is one that is not
         heard for SILENCE_LOOKS looks. A connection without requests for IDLE_S_MAX is closed.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Dict, List, Optional, Set, cast

from ._frame_exchange import FrameExchange
from ._io_loop import IoLoop
from ._request_frames import (
    ALIVE,
    BEAT_S,
    BODY,
    CANCEL,
    CREDIT,
    DATA,
    END,
    FAILED,
    HEAD,
    OPEN,
    SILENCE_LOOKS,
    WINDOW_BYTES,
    Sink,
    head_of,
    opened_of,
)
from ._tcp_wire import (
    BYE,
    FRAME_BYTES_MAX,
    FRAME_HEAD_BYTES,
    HELLO,
    PIECE_BYTES_MAX,
    BrokenFrame,
    Frame,
    FrameReader,
    Hello,
    TcpWire,
    WrongVersion,
    hello_of,
)
from ._worker_answers import Answers, Reply, refusal

CONNECTIONS_MAX = 1024
STREAMS_MAX = 4096
#: With those that need no place; others have the bounds of Answers.
CALLS_MAX = 4096
BLOCKED_BYTES = 256 * 1024
BUFFER_BYTES_MAX = 16 * 2**20
IDLE_S_MAX = 60
#: For the other side to say what it is, and to take the last words.
CONNECT_S_MAX = 2
LISTEN_S_MAX = 30

log = logging.getLogger("homing.worker")


class TcpPlane:
    """Listens from `start` until `stop`; what is open then goes on until `cut`."""

    def __init__(self, io: IoLoop, answers: Answers, host: str, port: int, body_bytes_max: int) -> None:
        self.io = io
        self.answers = answers
        self.wire = TcpWire()
        self.body_bytes_max = body_bytes_max
        self.is_closing = False
        self.links: Set[_Link] = set()
        self.open_count = 0
        self._host, self._port = host, port
        self._server: Optional[asyncio.AbstractServer] = None

    def start(self) -> int:
        """The port. Raises OSError."""
        return self.io.run(self._start, LISTEN_S_MAX)

    def stop(self) -> None:
        """Routers are told to open no more requests here."""
        self.io.run(self._stop, LISTEN_S_MAX)

    def cut(self) -> None:
        self.io.run(self._cut, LISTEN_S_MAX)

    async def _start(self) -> int:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: _Link(self), self._host, self._port, backlog=128)
        self._server = server
        return int(server.sockets[0].getsockname()[1])

    async def _stop(self) -> None:
        self.is_closing = True
        if self._server is not None:
            self._server.close()
        for link in list(self.links):
            link.leave()

    async def _cut(self) -> None:
        links = list(self.links)
        for link in links:
            link.close()
        if links:
            await asyncio.wait([link.closed for link in links])


class _Link(asyncio.Protocol):
    """One connection, with its requests."""

    def __init__(self, plane: TcpPlane) -> None:
        self._plane = plane
        self._loop = plane.io.loop
        self._reader = FrameReader(plane.wire)
        self._transport: Optional[asyncio.Transport] = None
        self._peer = ""
        self._hello: Optional[Hello] = None
        self._open: Dict[int, FrameExchange] = {}
        self._last_stream = 0
        self._frames: List[bytes] = []
        self._frames_bytes = 0
        self._is_due = False
        self._is_paused = False
        #: Pieces wait for it.
        self._has_blocked = False
        self._is_over = False
        self._has_spoken = False
        self._silent_looks = 0
        self._idle_looks = 0
        self._timer: Optional[asyncio.TimerHandle] = None
        #: The socket has been closed.
        self.closed: "asyncio.Future[None]" = self._loop.create_future()

    # What the event loop tells.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        plane = self._plane
        if plane.is_closing or len(plane.links) >= CONNECTIONS_MAX:
            self._is_over = True
            self._transport.abort()
            return
        plane.links.add(self)
        host, port = transport.get_extra_info("peername", ("", 0))[:2]
        self._peer = f"{host}:{port}"
        self._transport.set_write_buffer_limits(high=BLOCKED_BYTES)
        self._write(plane.wire.hello(Hello(FRAME_BYTES_MAX, STREAMS_MAX, WINDOW_BYTES, IDLE_S_MAX * 1000)))
        why = f"it did not say within {CONNECT_S_MAX} s what it is"
        self._timer = self._loop.call_later(CONNECT_S_MAX, self._break, why)

    def data_received(self, data: bytes) -> None:
        if self._is_over:
            return
        self._silent_looks = 0
        self._reader.put(data)
        try:
            while not self._is_over:
                frame = self._reader.next()
                if frame is None:
                    return
                self._frame(frame)
        except WrongVersion as error:
            self._warn(str(error))
            self._end(True)
        except BrokenFrame as error:
            self._break(str(error))

    def pause_writing(self) -> None:
        self._is_paused = True

    def resume_writing(self) -> None:
        self._is_paused = False
        self._drained()

    def connection_lost(self, error: Optional[Exception]) -> None:
        self._end(False)
        if not self.closed.done():
            self.closed.set_result(None)

    # What its plane does.

    def leave(self) -> None:
        if self._hello is not None:
            self._put(BYE, 0, self._last_stream)

    def close(self) -> None:
        """What is open is cut."""
        for exchange in list(self._open.values()):
            exchange.fail("the worker cut the answer")
        self._end(True)

    # What its requests say.

    @property
    def is_blocked(self) -> bool:
        if not self._is_paused and self._frames_bytes < BLOCKED_BYTES:
            return False
        self._has_blocked = True
        return True

    @property
    def piece_bytes_max(self) -> int:
        hello = cast(Hello, self._hello)
        return min(PIECE_BYTES_MAX, hello.frame_bytes_max - FRAME_HEAD_BYTES)

    def put(self, kind: int, stream: int, content: Any) -> None:
        self._put(kind, stream, content)

    # Its frames.

    def _frame(self, frame: Frame) -> None:
        """Raises BrokenFrame."""
        kind, stream, content = frame
        if self._hello is None:
            self._begin(frame)
        elif kind == HELLO:
            raise BrokenFrame("it says twice what it is")
        elif kind == OPEN:
            self._asked(stream, content)
        elif kind in (BODY, CREDIT, CANCEL):
            if stream > self._last_stream:
                raise BrokenFrame(f"a frame came for the request {stream}, which was not opened")
            exchange = self._open.get(stream)
            # What comes for a request that has ended was under way.
            if exchange is not None:
                exchange.frame(kind, content)
        elif kind != ALIVE:
            raise BrokenFrame(f"a frame of kind {kind} came, which no router sends")

    def _begin(self, frame: Frame) -> None:
        if frame.kind != HELLO:
            raise BrokenFrame("it does not say first what it is")
        self._hello = hello_of(frame.content)
        self._reader.frame_bytes_max = FRAME_BYTES_MAX
        self._look_later()

    def _asked(self, stream: int, content: Any) -> None:
        if stream <= self._last_stream:
            raise BrokenFrame(f"the request {stream} was opened behind {self._last_stream}")
        self._last_stream = stream
        opened = opened_of(content)
        if opened is None:
            raise BrokenFrame("a request came that cannot be read")
        if self._plane.is_closing:
            self._put(FAILED, stream, ("the worker is stopping", False))
            return
        is_full = self._plane.open_count >= CALLS_MAX
        if is_full or len(self._open) >= STREAMS_MAX:
            # Nothing of it is kept, and any window has room for the answer.
            told = f"{CALLS_MAX} are open" if is_full else f"{STREAMS_MAX} are open on this connection"
            self._refuse(stream, refusal(503, f"cannot take another request: {told}"))
            return
        exchange = FrameExchange(
            self._loop,
            self._plane.answers,
            _StreamSink(self, stream),
            opened,
            self._plane.body_bytes_max,
            lambda: self._forget(stream),
        )
        self._open[stream] = exchange
        self._plane.open_count += 1
        exchange.begin()

    def _refuse(self, stream: int, reply: Reply) -> None:
        data = reply.text.encode()
        self._put(HEAD, stream, head_of(reply.status, reply.content_type, len(data)))
        self._put(DATA, stream, data)
        self._put(END, stream, 0)

    def _forget(self, stream: int) -> None:
        self._open.pop(stream, None)
        self._plane.open_count -= 1

    # Its life.

    def _look_later(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(BEAT_S, self._look)

    def _look(self) -> None:
        self._look_later()
        self._silent_looks += 1
        if self._silent_looks > SILENCE_LOOKS:
            self._end(False)
            return
        if not self._has_spoken:
            self._put(ALIVE, 0, None)
        self._has_spoken = False
        for exchange in list(self._open.values()):
            exchange.look()
        self._idle_looks = 0 if self._open else self._idle_looks + 1
        if self._idle_looks * BEAT_S > IDLE_S_MAX:
            self._end(True)

    def _put(self, kind: int, stream: int, content: Any) -> None:
        if not self._is_over:
            self._write(self._plane.wire.encoded(kind, stream, content))

    def _write(self, frame: bytes) -> None:
        """Frames of one turn of the event loop go out together."""
        self._frames.append(frame)
        self._frames_bytes += len(frame)
        self._has_spoken = True
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._is_due = False
        if self._is_over or not self._frames:
            return
        data = b"".join(self._frames)
        self._frames = []
        self._frames_bytes = 0
        transport = cast(asyncio.Transport, self._transport)
        transport.write(data)
        if transport.get_write_buffer_size() > BUFFER_BYTES_MAX:
            self._break(f"it does not read: {BUFFER_BYTES_MAX} bytes wait for it")
        elif not self._is_paused:
            self._drained()

    def _drained(self) -> None:
        if not self._has_blocked or self._is_over:
            return
        self._has_blocked = False
        for stream, exchange in list(self._open.items()):
            if self.is_blocked:
                return
            # An earlier one may have ended it. Those that did not get their turn come first next time.
            if self._open.pop(stream, None) is not None:
                self._open[stream] = exchange
                exchange.unblocked()

    def _break(self, why: str) -> None:
        self._warn(why)
        self._end(False)

    def _warn(self, why: str) -> None:
        log.warning("a connection of the request plane was cut: %s: %s", self._peer, why)

    def _end(self, is_soft: bool) -> None:
        """`is_soft`: what was said goes out before, if the other side reads it in time."""
        if self._is_over:
            return
        if is_soft:
            self._flush()
        if self._is_over:
            return
        self._is_over = True
        self._plane.links.discard(self)
        if self._timer is not None:
            self._timer.cancel()
        self._reader.clear()
        self._frames = []
        self._frames_bytes = 0
        transport = cast(asyncio.Transport, self._transport)
        if is_soft:
            transport.close()
            late = self._loop.call_later(CONNECT_S_MAX, transport.abort)
            self.closed.add_done_callback(lambda _: late.cancel())
        else:
            transport.abort()
        for exchange in list(self._open.values()):
            exchange.left()


class _StreamSink(Sink):
    def __init__(self, link: _Link, stream: int) -> None:
        self._link = link
        self._stream = stream
        self.piece_bytes_max = link.piece_bytes_max

    @property
    def is_blocked(self) -> bool:
        return self._link.is_blocked

    def put(self, kind: int, content: Any = None) -> None:
        self._link.put(kind, self._stream, content)
