"""One request at a worker, whose frames a plane carries (_request_frames).

    collecting its body --whole--> generating, on a thread of its own --> saying the rest --> over
         | cancel, silence, a broken body, the end of what carries it
         +-------------------------------------------------------> over

The event loop of the plane owns it; the thread of the request only puts what is to be said behind what waits.

Bounds   WINDOW_BYTES of a body are under way. AHEAD_BYTES_MAX of an answer, and one piece more, wait for
         credit or for the network: then the program's generator waits.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections import deque
from typing import Any, Callable, Deque, Optional, Sequence, Tuple, Union

from ._request_frames import (
    BEAT_S,
    BODY,
    CANCEL,
    CREDIT,
    DATA,
    END,
    FAILED,
    HEAD,
    HEADER_BYTES_MAX,
    PIECE_BYTES,
    WINDOW_BYTES,
    Opened,
    Sink,
    head_of,
)
from ._worker_answers import Answers, ClientGone, Exchange, Place, Reply, refusal

AHEAD_BYTES_MAX = 16 * 1024
#: A body that sends nothing for so long is answered with 408.
BODY_SILENCE_S_MAX = 60
#: Short enough for any frame.
REASON_CHARACTERS_MAX = 300

#: A piece, or another frame.
_Item = Union[bytes, Tuple[int, Any]]


class FrameExchange(Exchange):
    """`ended` is called once, on the event loop: nothing more of it is heard or said."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        answers: Answers,
        sink: Sink,
        opened: Opened,
        body_bytes_max: int,
        ended: Callable[[], None],
    ) -> None:
        self.gone: "concurrent.futures.Future[None]" = concurrent.futures.Future()
        self._loop = loop
        self._answers = answers
        self._sink = sink
        self._opened = opened
        self._body_bytes_max = body_bytes_max
        self._ended = ended
        # Of the body.
        self._body = bytearray()
        self._is_collecting = False
        self._taken = 0
        self._silent_looks = 0
        # Of the answer.
        self._credit = opened.window_bytes
        self._items: Deque[_Item] = deque()
        # What the thread of the request looks at, too.
        self._changed = threading.Condition()
        self._ahead = 0
        self._is_due = False
        self._is_over = False
        self._has_left = False
        self._is_running = False
        self._place: Optional[Place] = None

    # What its plane does, on the event loop.

    @property
    def is_over(self) -> bool:
        return self._is_over

    def begin(self, first: Sequence[bytes] = ()) -> None:
        """`first`: what of the body came with the request."""
        opened = self._opened
        refused: Optional[Reply] = None
        if opened.head_bytes > HEADER_BYTES_MAX:
            why = f"its head has more than {HEADER_BYTES_MAX} bytes"
            refused = refusal(431, f"cannot read the request: {why}")
        refused = refused or self._answers.plain(opened.method, opened.path)
        if refused is None and opened.body_bytes > self._body_bytes_max:
            refused = refusal(
                413, f"cannot read the body of the request: it has more than {self._body_bytes_max} bytes"
            )
        place = refused or self._answers.begin(opened.body_bytes)
        if isinstance(place, Reply):
            self._say_whole(place)
            return
        self._place = place
        self._is_collecting = True
        for piece in first:
            self._put(piece, False)
        self._start_if_whole()

    def frame(self, kind: int, content: Any) -> None:
        if self._is_over:
            return
        if kind == CANCEL:
            self.left()
        elif kind == BODY:
            self._put(content, True)
            self._start_if_whole()
        elif kind == CREDIT:
            self._credit += content
            self._go_on()

    def look(self) -> None:
        """Each BEAT_S."""
        if not self._is_collecting:
            return
        self._silent_looks += 1
        if self._silent_looks * BEAT_S > BODY_SILENCE_S_MAX:
            self._break(408, f"nothing of its body came for {BODY_SILENCE_S_MAX} s")

    def unblocked(self) -> None:
        """More fits into the network again."""
        self._go_on()

    def left(self) -> None:
        """The client has left."""
        self._end(True)

    def fail(self, reason: str) -> None:
        """There will be no whole answer."""
        if not self._is_over:
            self._sink.put(FAILED, (reason[:REASON_CHARACTERS_MAX], True))
            self._end(True)

    # What the thread of the request does.

    def has_left(self) -> bool:
        return self._has_left

    def reply(self, reply: Reply) -> None:
        data = reply.text.encode()
        self._say((HEAD, head_of(reply.status, reply.content_type, len(data))))
        self.piece(data)
        self.end()

    def head(self, content_type: str) -> None:
        self._say((HEAD, head_of(200, content_type, None)))

    def piece(self, data: bytes) -> None:
        self._say(data)

    def end(self) -> None:
        self._say((END, 0))

    def _say(self, item: _Item) -> None:
        with self._changed:
            while self._ahead >= AHEAD_BYTES_MAX and not self._is_over:
                self._changed.wait()
            if self._is_over:
                raise ClientGone()
            self._items.append(item)
            self._ahead += _size(item)
            was_due, self._is_due = self._is_due, True
        if was_due:
            return
        try:
            self._loop.call_soon_threadsafe(self._go_on)
        except RuntimeError as error:
            # The worker has been closed.
            raise ClientGone() from error

    def _run(self, body: bytearray) -> None:
        try:
            self._answers.tokens(body, self)
        except ClientGone:
            pass
        finally:
            with self._changed:
                self._is_running = False
            self._give_back()

    # The body.

    def _put(self, piece: bytes, is_credited: bool) -> None:
        """`is_credited`: it came within the window, and not with the request."""
        if not self._is_collecting:
            return
        self._silent_looks = 0
        self._body += piece
        if is_credited:
            self._taken += len(piece) + PIECE_BYTES
        if len(self._body) > self._opened.body_bytes or self._taken > WINDOW_BYTES:
            self._break(400, "its body is longer than its client said, or may send")
        elif len(self._body) < self._opened.body_bytes and self._taken >= WINDOW_BYTES // 2:
            self._sink.put(CREDIT, self._taken)
            self._taken = 0

    def _start_if_whole(self) -> None:
        if not self._is_collecting or len(self._body) < self._opened.body_bytes:
            return
        self._is_collecting = False
        body, self._body = self._body, bytearray()
        self._is_running = True
        try:
            threading.Thread(target=self._run, args=(body,), daemon=True).start()
        except RuntimeError as error:
            self._is_running = False
            self._say_whole(refusal(503, f"cannot take the request: {error}"))

    def _break(self, status: int, why: str) -> None:
        self._is_collecting = False
        self._body = bytearray()
        self._say_whole(refusal(status, f"cannot read the request: {why}"))

    # The answer.

    def _say_whole(self, reply: Reply) -> None:
        data = reply.text.encode()
        self._items.append((HEAD, head_of(reply.status, reply.content_type, len(data))))
        self._items.append(data)
        self._items.append((END, 0))
        self._go_on()

    def _go_on(self) -> None:
        with self._changed:
            self._is_due = False
        sent = 0
        while self._items and not self._is_over:
            item = self._items[0]
            if isinstance(item, tuple):
                self._items.popleft()
                if item[0] == END and self._place is not None:
                    self._place.leave()
                self._sink.put(*item)
                if item[0] == END:
                    self._end(False)
            elif self._credit <= PIECE_BYTES or self._sink.is_blocked:
                break
            else:
                piece = self._take(min(self._credit - PIECE_BYTES, self._sink.piece_bytes_max))
                self._credit -= len(piece) + PIECE_BYTES
                sent += len(piece)
                self._sink.put(DATA, piece)
        if sent > 0:
            with self._changed:
                self._ahead -= sent
                self._changed.notify_all()

    def _take(self, size_max: int) -> bytes:
        """Pieces that wait, as one of at most this size."""
        parts = []
        size = 0
        while self._items and size < size_max:
            item = self._items[0]
            if isinstance(item, tuple):
                break
            self._items.popleft()
            if len(item) > size_max - size:
                self._items.appendleft(item[size_max - size :])
                item = item[: size_max - size]
            parts.append(item)
            size += len(item)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _end(self, has_left: bool) -> None:
        with self._changed:
            if self._is_over:
                return
            self._is_over = True
            self._has_left = has_left
            self._changed.notify_all()
        self._is_collecting = False
        self._body = bytearray()
        self._items.clear()
        if has_left:
            self.gone.set_result(None)
        self._ended()
        self._give_back()

    def _give_back(self) -> None:
        """Its place, once it is over and the program has stopped."""
        with self._changed:
            if self._is_running or not self._is_over or self._place is None:
                return
        self._place.end()


def _size(item: _Item) -> int:
    return 0 if isinstance(item, tuple) else len(item)
