"""Requests for a worker at a broker of NATS, under a subject of its own.

    byte 0        VERSION
    bytes 1...8   the call, a number that its router draws
    bytes 9...12  number of the payload among those of its sender in this call, from 0, little-endian
    then          frames: kind (1 byte), length (4 bytes, little-endian) and that many bytes

The router says OPEN, and the body if it fits, to the subject; all else to the inbox that the reply subject
of ACCEPT names. OPEN, ACCEPT and HEAD are JSON, CREDIT is 4 bytes, little-endian, END 1 byte, FAILED text;
BODY and DATA are bytes as they are (packages/transport/src/nats/request-wire.ts).

A router has left if it cancels, is not heard for SILENCE_LOOKS looks, or cannot be heard because the
connection to the broker ended. If others serve the same subject, each request goes to one of them; each is
told of in the log.

Bounds   requests for token ids by those of Answers; all together by _CALLS_MAX.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from typing import Any, Awaitable, Callable, Dict, List, NamedTuple, Optional, Sequence, Set, Tuple

from ._broker import BrokerLink
from ._frame_exchange import FrameExchange
from ._request_frames import (
    ACCEPT,
    ALIVE,
    BEAT_S,
    BODY,
    CREDIT,
    DATA,
    END,
    FAILED,
    OPEN,
    SILENCE_LOOKS,
    WINDOW_BYTES,
    Opened,
    Sink,
    opened_of,
)
from ._worker_answers import Answers

VERSION = 1
_CALL_BYTES = 8
_HEAD_BYTES = 1 + _CALL_BYTES + 4
_FRAME_HEAD_BYTES = 5
_NO_CALL = bytes(_CALL_BYTES)
#: Of other workers under its subject, a worker logs this many.
_OTHERS_MAX = 8
_INBOX_BYTES_MAX = 200
#: Requests that are open at one time, with those that need no place; further ones fail.
_CALLS_MAX = 4096

log = logging.getLogger("homing.worker")


class _Payload(NamedTuple):
    call: bytes
    sequence: int
    frames: List[Tuple[int, bytes]]


class NatsPlane:
    """A user of a Broker. Of its event loop."""

    def __init__(self, answers: Answers, subject: str, body_bytes_max: int) -> None:
        self._answers = answers
        self._subject = subject
        self._body_bytes_max = body_bytes_max
        self._open: Dict[bytes, _BrokerExchange] = {}
        self._link: Optional[BrokerLink] = None
        self._inbox = ""
        self._ends: List[Callable[[], Awaitable[None]]] = []
        self._others: Set[str] = set()
        self._timer: Optional[asyncio.TimerHandle] = None
        self._is_closing = False

    async def up(self, link: BrokerLink) -> None:
        self._inbox = link.new_inbox()
        await link.subscribe(self._inbox, self._heard)
        self._link = link
        self._look_later()
        if self._is_closing:
            return
        served = f"{self._subject}.served"
        ends = [await link.subscribe(self._subject, self._asked, "homing")]
        ends.append(await link.subscribe(served, self._other_heard))
        self._ends = ends
        link.publish(served, self._inbox.encode())

    def down(self) -> None:
        self._link = None
        self._ends = []
        if self._timer is not None:
            self._timer.cancel()
        for one in list(self._open.values()):
            one.exchange.left()

    def drained(self) -> None:
        for call, one in list(self._open.items()):
            if self._link is None or self._link.is_blocked:
                return
            # An earlier one may have ended it. Those that did not get their turn come first next time.
            if self._open.pop(call, None) is not None:
                self._open[call] = one
                one.exchange.unblocked()

    async def stop(self) -> None:
        """Takes no further requests."""
        self._is_closing = True
        ends, self._ends = self._ends, []
        for end in ends:
            await end()

    def cut(self) -> None:
        for one in list(self._open.values()):
            one.exchange.fail("the worker cut the answer")
            one.sink.flush()

    def _other_heard(self, payload: bytes, _: str) -> None:
        """A worker says that it serves our subject: this one, or another, which should hear of us, too."""
        inbox = payload[: _INBOX_BYTES_MAX + 1].decode("utf-8", "replace")
        if self._link is None or inbox in ("", self._inbox) or inbox in self._others:
            return
        if len(inbox) > _INBOX_BYTES_MAX or len(self._others) >= _OTHERS_MAX:
            return
        self._others.add(inbox)
        log.warning(
            "another process serves the subject %s, too: each request goes to one of them; give each its own",
            self._subject,
        )
        self._link.publish(f"{self._subject}.served", self._inbox.encode())

    def _asked(self, data: bytes, reply: str) -> None:
        link = self._link
        # No router waits for an answer.
        if link is None or not reply:
            return
        payload = _payload_of(data)
        if payload is None:
            version = data[0] if data else VERSION
            why = "it is no request"
            if version != VERSION:
                why = f"its request plane is of version {version}, not {VERSION}"
            self._refuse(link, _NO_CALL, reply, why)
            return
        call, sequence, frames = payload
        opened = opened_of(_json_of(frames[0][1])) if frames and frames[0][0] == OPEN else None
        is_whole = all(kind == BODY for kind, _ in frames[1:])
        if opened is None or not is_whole or sequence != 0 or call in self._open:
            self._refuse(link, call, reply, "its request cannot be read")
        elif len(self._open) >= _CALLS_MAX:
            self._refuse(link, call, reply, f"{_CALLS_MAX} requests are open")
        else:
            one = _BrokerExchange(link, call, opened, reply, self._inbox, self._answers, self._body_bytes_max)
            self._open[call] = one
            one.ended = lambda: self._forget(call)
            one.begin([piece for _, piece in frames[1:]])

    def _forget(self, call: bytes) -> None:
        self._open.pop(call, None)

    def _refuse(self, link: BrokerLink, call: bytes, reply: str, why: str) -> None:
        _PayloadSink(link, call, reply, "").put(FAILED, (why, True))

    def _heard(self, data: bytes, _: str) -> None:
        payload = _payload_of(data)
        if payload is None:
            return
        one = self._open.get(payload.call)
        if one is not None:
            one.heard(payload)

    def _look_later(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(BEAT_S, self._look)

    def _look(self) -> None:
        self._look_later()
        for one in list(self._open.values()):
            one.look()


class _BrokerExchange:
    """An exchange, and what is to do for it at a broker."""

    def __init__(
        self,
        link: BrokerLink,
        call: bytes,
        opened: Opened,
        reply: str,
        inbox: str,
        answers: Answers,
        body_bytes_max: int,
    ) -> None:
        self.sink = _PayloadSink(link, call, reply, inbox)
        self.ended: Callable[[], None] = lambda: None
        loop = asyncio.get_running_loop()
        self.exchange = FrameExchange(loop, answers, self.sink, opened, body_bytes_max, lambda: self.ended())
        self._next_sequence = 1
        self._silent_looks = 0

    def begin(self, first: Sequence[bytes]) -> None:
        """`first`: what of the body came along."""
        self.sink.put(ACCEPT, {"windowBytes": WINDOW_BYTES})
        self.exchange.begin(first)

    def heard(self, payload: _Payload) -> None:
        if self.exchange.is_over:
            return
        lost = payload.sequence - self._next_sequence
        if lost != 0:
            self.exchange.fail(f"{lost} payloads of the request were lost")
            return
        self._next_sequence += 1
        self._silent_looks = 0
        for kind, data in payload.frames:
            if kind == CREDIT:
                self.exchange.frame(kind, int.from_bytes(data, "little") if len(data) == 4 else 0)
            else:
                self.exchange.frame(kind, data)

    def look(self) -> None:
        self.exchange.look()
        if self.exchange.is_over:
            return
        self._silent_looks += 1
        if self._silent_looks > SILENCE_LOOKS:
            self.exchange.left()
        else:
            self.sink.put(ALIVE)


class _PayloadSink(Sink):
    """Frames of one request, in numbered payloads. Those of one turn share a payload, as far as they fit."""

    def __init__(self, link: BrokerLink, call: bytes, subject: str, reply: str) -> None:
        self._link = link
        self._call = call
        self._subject = subject
        self._reply = reply
        self._sequence = 0
        self._frames: List[bytes] = []
        self._bytes = _HEAD_BYTES
        self._is_due = False
        self.piece_bytes_max = max(1, link.payload_bytes_max - _HEAD_BYTES - _FRAME_HEAD_BYTES)

    @property
    def is_blocked(self) -> bool:
        return self._link.is_blocked

    def put(self, kind: int, content: Any = None) -> None:
        data = _bytes_of(kind, content)
        frame = bytes((kind,)) + len(data).to_bytes(4, "little") + data
        if self._bytes + len(frame) > self._link.payload_bytes_max:
            self.flush()
        self._frames.append(frame)
        self._bytes += len(frame)
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self.flush)

    def flush(self) -> None:
        self._is_due = False
        if not self._frames:
            return
        head = bytes((VERSION,)) + self._call + self._sequence.to_bytes(4, "little")
        self._sequence += 1
        payload = b"".join([head, *self._frames])
        self._frames = []
        self._bytes = _HEAD_BYTES
        self._link.publish(self._subject, payload, self._reply)


def subject_of(worker_id: str) -> str:
    """Where a worker takes requests: 'homing.requests.10_0_0_1_8000' for host and port 10.0.0.1:8000."""
    return f"homing.requests.{re.sub('[^A-Za-z0-9-]', '_', worker_id)}"


def _payload_of(data: bytes) -> Optional[_Payload]:
    """None: it is cut, of another version, or none of ours."""
    if len(data) < _HEAD_BYTES or data[0] != VERSION:
        return None
    frames: List[Tuple[int, bytes]] = []
    at = _HEAD_BYTES
    while at < len(data):
        if at + _FRAME_HEAD_BYTES > len(data):
            return None
        kind = data[at]
        length = int.from_bytes(data[at + 1 : at + _FRAME_HEAD_BYTES], "little")
        at += _FRAME_HEAD_BYTES
        # No sender has an empty piece.
        if kind > FAILED or at + length > len(data) or (length == 0 and kind in (BODY, DATA)):
            return None
        frames.append((kind, data[at : at + length]))
        at += length
    sequence = int.from_bytes(data[1 + _CALL_BYTES : _HEAD_BYTES], "little")
    return _Payload(data[1 : 1 + _CALL_BYTES], sequence, frames)


def _json_of(data: bytes) -> object:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def _bytes_of(kind: int, content: Any) -> bytes:
    if content is None:
        return b""
    if kind in (BODY, DATA):
        return bytes(content)
    if kind == CREDIT:
        return int(content).to_bytes(4, "little")
    if kind == END:
        return bytes((content,))
    if kind == FAILED:
        return str(content[0]).encode("utf-8", "replace")
    return json.dumps(content).encode()
