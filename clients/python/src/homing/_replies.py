"""Replies: answers replays and snapshots at a ROUTER socket, on a thread of its own.

    [] [start, 1 ... 8 bytes]       -> the batches kept from there on, then the end marker
    [] ["snapshot"] [01]            -> the parts of a snapshot, or a refusal
    anything else                   -> nothing, as engines do

A long answer is sent in bursts, PACE_S apart, and no faster than its peer reads: WINDOW_MESSAGES of it wait
in the socket, then the answer waits. So none of it is lost, and a peer that does not read holds little.

Bounds   one answer for each peer, a further request ends the one before; `replies_max` answers of peers that
         read, TURNS_MAX times as many in all: past that, the one whose peer took nothing for longest ends
         (STALLED_S), or the request is refused. An answer of which nothing was read for STALL_S ends.
         SNAPSHOTS_MAX moments are held at one time: further peers get the youngest and the batches behind it.
"""

from __future__ import annotations

import itertools
import struct
import threading
import time
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

Frames = List[bytes]

END = b"\xff" * 8
SNAPSHOT_REQUEST = [b"", b"snapshot", b"\x01"]
WINDOW_MESSAGES = 4
BURST_MESSAGES = 64
BURST_BYTES = 2**20
PACE_S = 0.001
RETRY_S_MAX = 0.064
STALLED_S = 0.1
STALL_S = 5.0
TURNS_MAX = 64
SNAPSHOTS_MAX = 4
BEHIND_BYTES_MAX = 64 * 2**20
REQUESTS_AT_ONCE = 64


class Snapshot:
    """Everything held at one moment, in parts that are written when they are sent.

    `make_parts`, called on the thread of the replies, gives the number of parts and the payload of each.
    """

    def __init__(
        self, next_sequence: int, is_whole: bool, make_parts: Callable[[], Sequence[Callable[[], bytes]]]
    ) -> None:
        self.next_sequence = next_sequence
        self.is_whole = is_whole
        self.readers = 0
        self.has_ended = False
        self._make_parts: Optional[Callable[[], Sequence[Callable[[], bytes]]]] = make_parts
        self._parts: Optional[Sequence[Callable[[], bytes]]] = None

    @property
    def parts(self) -> Sequence[Callable[[], bytes]]:
        if self._parts is None:
            assert self._make_parts is not None
            self._parts = self._make_parts()
            self._make_parts = None
        return self._parts

    def end(self) -> None:
        self.has_ended = True
        self._parts = ()
        self._make_parts = None


class _Reply:
    def __init__(self, frames: Iterator[Frames], now_s: float) -> None:
        self.frames = frames
        self.refused: Optional[Frames] = None
        self.retry_s = PACE_S
        self.due_s = now_s
        self.progress_s = now_s


class Replies:
    """`kept_from(start)`: (sequence, payload) of the kept batches; `take`: a snapshot of now; `published`:
    next sequence, and bytes published so far. All three are called on this thread.
    """

    def __init__(
        self,
        zmq: Any,
        context: Any,
        socket: Any,
        *,
        publisher_id: int,
        topic: bytes,
        replies_max: int,
        peer_bytes_max: int,
        kept_from: Callable[[int], List[Tuple[int, bytes]]],
        take: Callable[[], Snapshot],
        published: Callable[[], Tuple[int, int]],
    ) -> None:
        self._zmq = zmq
        self._socket = socket
        self._publisher_id = publisher_id
        self._topic = topic
        self._replies_max = replies_max
        self._peer_bytes_max = peer_bytes_max
        self._kept_from = kept_from
        self._take = take
        self._published = published
        self._replies: Dict[bytes, _Reply] = {}
        # The peer that is silent for longest comes first.
        self._sent: Dict[bytes, int] = {}
        self._snapshots: List[Snapshot] = []
        self.replays = 0
        self.snapshots = 0
        self.refused_replies = 0
        self.excess_replies = 0
        self.unread_replies = 0
        self.taken_snapshots = 0
        self._ends_at_s: Optional[float] = None
        name = f"inproc://homing-{publisher_id:016x}"
        self._waker = context.socket(zmq.PAIR)
        self._waker.linger = 0
        self._waker.bind(name)
        self._woken = context.socket(zmq.PAIR)
        self._woken.linger = 0
        self._woken.connect(name)
        self._thread = threading.Thread(target=self._run, name="homing-publisher", daemon=True)
        self._thread.start()

    @property
    def open_replies(self) -> int:
        return len(self._replies)

    def close(self, grace_s: float) -> None:
        """Lets answers go on for `grace_s`, and ends the thread. Not from the thread itself."""
        try:
            self._waker.send(struct.pack(">d", grace_s), self._zmq.NOBLOCK)
        except self._zmq.Again:
            # An error has ended the thread.
            pass
        self._thread.join()
        self._waker.close()

    def _run(self) -> None:
        try:
            self._serve()
        finally:
            for identity in list(self._replies):
                self._end(identity)
            self._woken.close()
            self._socket.close(linger=0)

    def _serve(self) -> None:
        zmq = self._zmq
        poller = zmq.Poller()
        poller.register(self._socket, zmq.POLLIN)
        poller.register(self._woken, zmq.POLLIN)
        while True:
            now_s = time.monotonic()
            if self._ends_at_s is not None and (not self._replies or now_s >= self._ends_at_s):
                break
            ready = dict(poller.poll(self._wait_ms(now_s)))
            if self._woken in ready:
                self._ends_at_s = time.monotonic() + struct.unpack(">d", self._woken.recv())[0]
            if self._socket in ready:
                self._receive()
            self._burst_all()

    def _wait_ms(self, now_s: float) -> Optional[int]:
        dues = [reply.due_s for reply in self._replies.values()]
        if self._ends_at_s is not None:
            dues.append(self._ends_at_s)
        return None if not dues else max(0, int((min(dues) - now_s) * 1000 + 0.999))

    def _receive(self) -> None:
        for _ in range(REQUESTS_AT_ONCE):
            try:
                identity, *request = self._socket.recv_multipart(self._zmq.NOBLOCK)
            except self._zmq.Again:
                return
            if len(request) == 2 and request[0] == b"" and 1 <= len(request[1]) <= 8:
                self.replays += 1
                self._begin(identity, self._replay(self._kept_from(int.from_bytes(request[1], "big"))))
            elif request == SNAPSHOT_REQUEST:
                self.snapshots += 1
                if not self._begin(identity, self._parts()):
                    self._offer(identity, self._part(0, False, 0, 0, b""))

    def _begin(self, identity: bytes, frames: Iterator[Frames]) -> bool:
        now_s = time.monotonic()
        if identity in self._replies:
            self._end(identity)
        elif not self._has_place(now_s):
            self.refused_replies += 1
            return False
        sent = self._sent.pop(identity, 0)
        self._sent[identity] = sent
        if len(self._sent) > 16_384:
            del self._sent[next(iter(self._sent))]
        if sent >= self._peer_bytes_max:
            self.excess_replies += 1
            return False
        self._replies[identity] = _Reply(frames, now_s)
        return True

    def _has_place(self, now_s: float) -> bool:
        if len(self._replies) < self._replies_max * TURNS_MAX:
            return True
        longest = min(self._replies, key=lambda identity: self._replies[identity].progress_s)
        if now_s - self._replies[longest].progress_s < STALLED_S:
            return False
        self.unread_replies += 1
        self._end(longest)
        return True

    def _burst_all(self) -> None:
        now_s = time.monotonic()
        reading = sum(1 for reply in self._replies.values() if reply.refused is None)
        pace_s = PACE_S * max(1, -(-reading // self._replies_max))
        for identity, reply in list(self._replies.items()):
            if reply.due_s <= now_s:
                self._burst(identity, reply, pace_s)

    def _burst(self, identity: bytes, reply: _Reply, pace_s: float) -> None:
        count = size = 0
        while count < BURST_MESSAGES and size < BURST_BYTES:
            frames = reply.refused if reply.refused is not None else next(reply.frames, None)
            if frames is None:
                self._end(identity)
                return
            outcome = self._offer(identity, frames)
            now_s = time.monotonic()
            if outcome == "taken":
                reply.refused = None
                reply.retry_s = PACE_S
                reply.progress_s = now_s
                count += 1
                sent = sum(map(len, frames))
                size += sent
                self._sent[identity] = self._sent.get(identity, 0) + sent
                continue
            reply.refused = frames
            if outcome == "gone" or now_s - reply.progress_s >= STALL_S:
                self.unread_replies += 1
                self._end(identity)
            else:
                reply.due_s = now_s + reply.retry_s
                reply.retry_s = min(RETRY_S_MAX, reply.retry_s * 2)
            return
        reply.due_s = time.monotonic() + pace_s

    def _offer(self, identity: bytes, frames: Frames) -> str:
        try:
            self._socket.send_multipart([identity, *frames], self._zmq.NOBLOCK)
            return "taken"
        except self._zmq.Again:
            return "full"
        except self._zmq.ZMQError as error:
            if error.errno == self._zmq.EHOSTUNREACH:
                return "gone"
            raise

    def _end(self, identity: bytes) -> None:
        frames = self._replies.pop(identity).frames
        # Lets it release its snapshot.
        frames.close()  # type: ignore[attr-defined]

    def _replay(self, batches: List[Tuple[int, bytes]]) -> Iterator[Frames]:
        _, began_bytes = self._published()
        for sequence, payload in batches:
            # Without the end marker, the peer knows that it has not seen all.
            if self._published()[1] - began_bytes > BEHIND_BYTES_MAX:
                self.unread_replies += 1
                return
            yield [b"", self._topic, sequence.to_bytes(8, "big"), payload]
        yield [b"", b"", END, b""]

    def _parts(self) -> Iterator[Frames]:
        snapshot = self._shared()
        snapshot.readers += 1
        try:
            count = len(snapshot.parts)
            for position in itertools.count():
                if position >= count or snapshot.has_ended:
                    return
                payload = snapshot.parts[position]()
                yield self._part(snapshot.next_sequence, snapshot.is_whole, position, count, payload)
        finally:
            snapshot.readers -= 1
            if snapshot.readers == 0:
                self._end_snapshot(snapshot)

    def _part(self, next_sequence: int, is_whole: bool, part: int, parts: int, payload: bytes) -> Frames:
        header = struct.pack(">BBQQII", 1, int(is_whole), self._publisher_id, next_sequence, part, parts)
        return [b"", b"snapshot", header, payload]

    def _shared(self) -> Snapshot:
        """The youngest if nothing was published since, or if enough are open and what follows it is kept."""
        if self._snapshots:
            youngest = self._snapshots[-1]
            next_sequence, _ = self._published()
            if youngest.next_sequence == next_sequence:
                return youngest
            if len(self._snapshots) >= SNAPSHOTS_MAX:
                kept = self._kept_from(youngest.next_sequence)
                if kept and kept[0][0] == youngest.next_sequence:
                    return youngest
                self._end_snapshot(self._snapshots[0])
        self.taken_snapshots += 1
        taken = self._take()
        self._snapshots.append(taken)
        return taken

    def _end_snapshot(self, snapshot: Snapshot) -> None:
        snapshot.end()
        if snapshot in self._snapshots:
            self._snapshots.remove(snapshot)
