"""KvEventPublisher: tells routers what an engine's KV cache holds (the wire form is docs/publisher.md).

    publish_stored, publish_removed, publish_all_cleared, publish_cxl_state_transition -> check -> kept and held -> PUB socket
                                                 routers that missed something <- ROUTER socket

One for each worker key, so one for each dp rank of the engine. Needs pyzmq and msgpack, which
``pip install "homing[publisher]"`` brings; they are imported with the first publisher.
"""

from __future__ import annotations

import contextlib
import functools
import operator
import os
import threading
import time
from array import array
from collections import deque
from typing import Any, Callable, Deque, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple, Union

from ._held_blocks import POOL, TIERS, Entry, HeldBlocks, Labels, parents_first, runs
from ._labels import CxlMemoryMetadata, Label, MoeMetadata, PerBlock, checked_place, fields, labels_of
from ._packages import needed
from ._replies import WINDOW_MESSAGES, Replies, Snapshot
from .errors import refused, shown

#: A whole number -2^63 ... 2^64 - 1 (a negative one is the same 64 bits), or a digest of 32 bytes, which
#: stands for its last 8 bytes.
EngineHash = Union[int, bytes]

TOKEN_ID_MAX = 2**32 - 1
DUMP_EVENT_BLOCKS_MAX = 512
PART_TOKENS_MAX = 8192
MEDIA = {"device": "GPU", "host": "CPU", "disk": "STORAGE", "external": "EXTERNAL", POOL: "EXTERNAL"}


class PublisherStats(NamedTuple):
    """Counters since the start; `blocks`, `copies`, `held_bytes`, `kept_batches`, `kept_bytes` and
    `open_replies` are of now.
    """

    batches: int
    events: int
    stored_blocks: int
    removed_blocks: int
    moved_blocks: int
    blocks: int
    copies: int
    held_bytes: int
    refused_blocks: int
    unknown_removes: int
    kept_batches: int
    kept_bytes: int
    replays: int
    snapshots: int
    taken_snapshots: int
    refused_replies: int
    excess_replies: int
    unread_replies: int
    open_replies: int


class KvEventPublisher:
    """Publishes the KV events of one dp rank. Calls may come from any thread, and none waits for a router.

    kv_block_size         tokens in each block of the engine
    dp_rank               0 when the engine has one rank
    enable_local_indexer  keeps batches and blocks, and answers routers that start late or missed something.
                          Without it, such routers stay unsure (trust `partial`)
    zmq_endpoint          where batches are published; default tcp://*:5557 for rank 0, 5558 for rank 1, ...
    replay_endpoint       where they are asked for; default tcp://*:6557 for rank 0, ...; port * is a free one
    topic                 first frame of each message
    batch_events_max, batch_blocks_max       beyond them a batch goes out; a longer store is split
    queued_messages_max   for a subscriber that reads too slowly: it loses further batches, and replays them
    buffer_batches_max, buffer_bytes_max     of the last batches, for replays
    held_bytes_max        of blocks, for snapshots: further ones are missing there, which says so
    replies_max           peers that are answered at full speed at one time
    peer_bytes_max        answers over one connection; a peer that needs more connects anew

    Each call is checked as a whole before any part of it is published. Batches are numbered 0, 1, 2, ... from
    the start without a gap: a new publisher is a new life of the cache, which is empty then.
    """

    def __init__(
        self,
        kv_block_size: int,
        dp_rank: int = 0,
        enable_local_indexer: bool = True,
        *,
        zmq_endpoint: Optional[str] = None,
        replay_endpoint: Optional[str] = None,
        topic: str = "",
        batch_events_max: int = 128,
        batch_blocks_max: int = 8192,
        queued_messages_max: int = 100_000,
        buffer_batches_max: int = 1024,
        buffer_bytes_max: int = 64 * 2**20,
        held_bytes_max: int = 256 * 2**20,
        replies_max: int = 16,
        peer_bytes_max: int = 2**30,
    ) -> None:
        for name, value, low, high in (
            ("kv_block_size", kv_block_size, 1, 65_536),
            ("dp_rank", dp_rank, 0, 65_535),
            ("batch_events_max", batch_events_max, 1, 65_536),
            ("batch_blocks_max", batch_blocks_max, 1, 1_048_576),
            ("buffer_batches_max", buffer_batches_max, 1, 99_999),
            ("buffer_bytes_max", buffer_bytes_max, 1024, 2**36),
            ("held_bytes_max", held_bytes_max, 1024, 2**36),
            ("replies_max", replies_max, 1, 1024),
            ("peer_bytes_max", peer_bytes_max, 1024, 2**36),
            ("queued_messages_max", queued_messages_max, buffer_batches_max + 1, 100_000),
        ):
            if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
                raise refused(
                    "bad_option",
                    f"cannot create a publisher: {name} is {shown(value)}, use a whole number from {low} to {high}",
                )
        if replay_endpoint is not None and not enable_local_indexer:
            raise refused(
                "bad_option",
                "cannot create a publisher: replay_endpoint is given, and enable_local_indexer is False",
            )
        zmq = _needed("zmq", "pyzmq")
        self._pack: Callable[[Any], bytes] = _needed("msgpack", "msgpack").packb
        self._block_size = kv_block_size
        self._rank = dp_rank
        self._topic = topic.encode()
        self._events_max = batch_events_max
        self._blocks_max = batch_blocks_max
        self._buffer_batches_max = buffer_batches_max
        self._buffer_bytes_max = buffer_bytes_max
        self._lock = threading.RLock()
        self._is_closed = False
        self._closing = threading.Lock()
        self._sequence = 0
        self._published_bytes = 0
        self._event_id = -1
        self._kept: Deque[Tuple[int, bytes]] = deque()
        self._kept_bytes = 0
        self._held = HeldBlocks(held_bytes_max)
        self._queue: List[Dict[str, Any]] = []
        self._queued_blocks = 0
        self._open_batches = 0
        self._events = self._stored_blocks = self._removed_blocks = self._moved_blocks = 0
        self._keeps = enable_local_indexer
        self._replies: Optional[Replies] = None
        self._context = zmq.Context()
        try:
            self._socket, self.endpoint = self._bound(
                zmq, zmq.PUB, zmq_endpoint or f"tcp://*:{5557 + dp_rank}", queued_messages_max
            )
            #: None: there is none.
            self.replay_endpoint: Optional[str] = None
            if enable_local_indexer:
                router, self.replay_endpoint = self._bound(
                    zmq, zmq.ROUTER, replay_endpoint or f"tcp://*:{6557 + dp_rank}", WINDOW_MESSAGES
                )
                self._replies = Replies(
                    zmq,
                    self._context,
                    router,
                    publisher_id=int.from_bytes(os.urandom(8), "big"),
                    topic=self._topic,
                    replies_max=replies_max,
                    peer_bytes_max=peer_bytes_max,
                    kept_from=self._kept_from,
                    take=self._take_snapshot,
                    published=lambda: (self._sequence, self._published_bytes),
                )
        except BaseException:
            self._context.destroy(linger=0)
            raise

    def __enter__(self) -> "KvEventPublisher":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def next_sequence(self) -> int:
        """The number of the next batch."""
        return self._sequence

    @property
    def stats(self) -> PublisherStats:
        with self._lock:
            held, replies = self._held, self._replies
            return PublisherStats(
                batches=self._sequence,
                events=self._events,
                stored_blocks=self._stored_blocks,
                removed_blocks=self._removed_blocks,
                moved_blocks=self._moved_blocks,
                blocks=held.blocks,
                copies=held.copies,
                held_bytes=held.all_bytes,
                refused_blocks=held.refused_blocks,
                unknown_removes=held.unknown_removes,
                kept_batches=len(self._kept),
                kept_bytes=self._kept_bytes,
                replays=0 if replies is None else replies.replays,
                snapshots=0 if replies is None else replies.snapshots,
                taken_snapshots=0 if replies is None else replies.taken_snapshots,
                refused_replies=0 if replies is None else replies.refused_replies,
                excess_replies=0 if replies is None else replies.excess_replies,
                unread_replies=0 if replies is None else replies.unread_replies,
                open_replies=0 if replies is None else replies.open_replies,
            )

    def publish_stored(
        self,
        event_id: Optional[int],
        token_ids: Sequence[int],
        num_block_tokens: Optional[Sequence[int]],
        block_hashes: Sequence[EngineHash],
        lora_id: int = 0,
        parent_hash: Optional[EngineHash] = None,
        *,
        lora_name: Optional[str] = None,
        cache_salt: Optional[str] = None,
        tier: str = "device",
        moe_metadata: PerBlock[MoeMetadata] = None,
        cxl_metadata: PerBlock[CxlMemoryMetadata] = None,
    ) -> None:
        """Blocks are cached now, in order after the block `parent_hash`. Call it after they are allocated.

        event_id          grows with each call of this publisher; None: it is not numbered
        token_ids         of all blocks, in order: `kv_block_size` for each, whole numbers 0 ... 2^32 - 1
        num_block_tokens  tokens of each block: all `kv_block_size`, since a block is published when it
                          is full. None: they are
        block_hashes      of each block and all before it
        lora_id           0: the base model. Routers need `lora_name`: of a block with a number alone they do
                          not know which adapter it is for, and do not count it
        parent_hash       None only if the first block begins a sequence
        cache_salt        keeps the caches of tenants apart; give it with the first block of a sequence
        tier              device, host, disk or external
        moe_metadata      the expert of each block, and cxl_metadata where it is: one for each, None where
                          there is nothing to say, or one for all (docs/labels.md)
        """
        with self._lock:
            what = "stored blocks"
            self._assert_open(what)
            self._check_id(what, event_id)
            labels = self._labels(what, lora_id, lora_name, cache_salt, tier)
            parent = None if parent_hash is None else _key(parent_hash, "the parent")
            keys = self._checked_keys(parent, block_hashes)
            words = self._checked_tokens(token_ids, num_block_tokens, len(keys))
            said = labels_of(len(keys), moe_metadata, cxl_metadata)
            if event_id is not None:
                self._event_id = event_id
            size = self._block_size
            for start in range(0, len(keys), self._blocks_max):
                part = keys[start : start + self._blocks_max]
                tokens = words[start * size : (start + len(part)) * size]
                before = parent if start == 0 else keys[start - 1]
                of_part = labels if start == 0 else labels._replace(cache_salt=None)
                if self._keeps:
                    rows = [tokens[i * size : (i + 1) * size].tobytes() for i in range(len(part))]
                    said_part = None if said is None else said[start : start + len(part)]
                    self._held.store(before, part, rows, of_part, said_part)
                event = self._stored_event(before, part, tokens.tolist(), of_part)
                if said is not None:
                    event.update(fields(said[start : start + len(part)]))
                self._enqueue(event, len(part))
            self._stored_blocks += len(keys)
            self._flush_outside()

    def publish_removed(
        self, event_id: Optional[int], block_hashes: Sequence[EngineHash], *, tier: str = "device"
    ) -> None:
        """Blocks were evicted: one copy of each."""
        with self._lock:
            what = "removed blocks"
            self._assert_open(what)
            self._check_id(what, event_id)
            _check_tier(what, tier)
            count = len(block_hashes)
            keys = [_key(each, f"the removal of block {i} of {count}") for i, each in enumerate(block_hashes)]
            if event_id is not None:
                self._event_id = event_id
            for start in range(0, count, self._blocks_max):
                part = keys[start : start + self._blocks_max]
                if self._keeps:
                    self._held.remove(part, tier)
                self._enqueue(
                    {"type": "BlockRemoved", "block_hashes": part, "medium": MEDIA[tier]}, len(part)
                )
            self._removed_blocks += count
            self._flush_outside()

    def publish_cxl_state_transition(
        self,
        event_id: Optional[int],
        block_hashes: Sequence[EngineHash],
        new_state: str,
        pool_id: Optional[int] = None,
        accessible_workers: Optional[Sequence[int]] = None,
    ) -> None:
        """Blocks have gone from one state to another.

        new_state  local_gpu   in the worker's own memory alone
                   in_transit  on the way to `pool_id`, which must be given, where `accessible_workers` (ids:
                               `id` of their URLs at the router) will reach them beside this worker
                   cxl_pooled  they are there; only after in_transit
                   evicted     not there any more
        A router refuses other changes, and counts them.
        """
        with self._lock:
            what = "a transition"
            self._assert_open(what)
            self._check_id(what, event_id)
            given = CxlMemoryMetadata(new_state, pool_id, () if accessible_workers is None else accessible_workers)
            place = checked_place(given, what)
            if new_state == "in_transit" and pool_id is None:
                raise refused(
                    "bad_block",
                    f"cannot publish {what}: it goes to in_transit without a pool_id; name the pool",
                )
            count = len(block_hashes)
            keys = [_key(each, f"the transition of block {i} of {count}") for i, each in enumerate(block_hashes)]
            if event_id is not None:
                self._event_id = event_id
            for start in range(0, count, self._blocks_max):
                part = keys[start : start + self._blocks_max]
                if self._keeps:
                    self._held.move(part, place)
                event = {
                    "type": "CxlStateTransition",
                    "block_hashes": part,
                    "new_state": place.state,
                    "pool_id": place.pool_id,
                    "accessible_workers": list(place.accessible_workers),
                }
                self._enqueue(event, len(part))
            self._moved_blocks += count
            self._flush_outside()

    def publish_all_cleared(self, event_id: Optional[int] = None) -> None:
        """The cache is empty, on every tier."""
        with self._lock:
            what = "a clear"
            self._assert_open(what)
            self._check_id(what, event_id)
            if event_id is not None:
                self._event_id = event_id
            if self._keeps:
                self._held.clear()
            self._enqueue({"type": "AllBlocksCleared"}, 0)
            self._flush_outside()

    #: As the event is called elsewhere.
    publish_cleared = publish_all_cleared

    @contextlib.contextmanager
    def batch(self) -> Iterator[None]:
        """Calls inside go out as one batch, at its end or when it is full. Other threads wait meanwhile."""
        with self._lock:
            self._open_batches += 1
            try:
                yield
            finally:
                self._open_batches -= 1
                self._flush_outside()

    def close(self, grace_s: float = 1.0) -> None:
        """Answers open requests and sends what is queued for up to `grace_s` seconds, and closes the sockets.
        Idempotent.
        """
        with self._closing:
            with self._lock:
                if self._is_closed:
                    return
                self._flush()
                self._is_closed = True
            ends_at_s = time.monotonic() + grace_s
            if self._replies is not None:
                self._replies.close(grace_s)
            self._socket.close(linger=max(0, int((ends_at_s - time.monotonic()) * 1000)))
            self._context.term()

    def shutdown(self) -> None:
        """`close`."""
        self.close()

    def _bound(self, zmq: Any, kind: int, endpoint: str, messages_max: int) -> Tuple[Any, str]:
        socket = self._context.socket(kind)
        socket.sndhwm = messages_max
        if kind == zmq.ROUTER:
            # Tells what a peer does not take, instead of losing it.
            socket.router_mandatory = 1
        try:
            socket.bind(endpoint)
        except zmq.ZMQError as error:
            raise refused(
                "listen_failed", f"cannot create a publisher: it cannot bind {shown(endpoint)}: {error}"
            ) from error
        return socket, socket.last_endpoint.decode().rstrip("\x00")

    def _assert_open(self, what: str) -> None:
        if self._is_closed:
            raise refused("closed", f"cannot publish {what}: the publisher is closed")

    def _check_id(self, what: str, event_id: Optional[int]) -> None:
        if event_id is None:
            return
        if isinstance(event_id, bool) or not isinstance(event_id, int) or event_id < 0:
            raise refused(
                "bad_event_id",
                f"cannot publish {what}: event_id is {shown(event_id)}, use a whole number from 0",
            )
        if event_id <= self._event_id:
            raise refused(
                "bad_event_id",
                f"cannot publish {what}: event_id {event_id} is not above {self._event_id}, the last one; "
                "count up with each call, or give None",
            )

    def _labels(
        self, what: str, lora_id: int, lora_name: Optional[str], cache_salt: Optional[str], tier: str
    ) -> Labels:
        _check_tier(what, tier)
        if isinstance(lora_id, bool) or not isinstance(lora_id, int) or not 0 <= lora_id < 2**53:
            raise refused(
                "bad_block",
                f"cannot publish {what}: lora_id is {shown(lora_id)}, use a whole number from 0",
            )
        return Labels(tier, lora_id or None, lora_name or None, cache_salt or None)

    def _checked_keys(self, parent: Optional[int], block_hashes: Sequence[EngineHash]) -> List[int]:
        count = len(block_hashes)
        seen = set() if parent is None else {parent}
        keys: List[int] = []
        for i, each in enumerate(block_hashes):
            key = _key(each, f"block {i} of {count}")
            if key in seen:
                raise refused(
                    "bad_block",
                    f"cannot publish block {i} of {count}: its hash {key:016x} is that of the parent or of a "
                    "block before it; hashes must cover all tokens from the start",
                )
            seen.add(key)
            keys.append(key)
        return keys

    def _checked_tokens(
        self, token_ids: Sequence[int], num_block_tokens: Optional[Sequence[int]], count: int
    ) -> "array[int]":
        size = self._block_size
        sizes = [size] * count if num_block_tokens is None else list(num_block_tokens)
        if len(sizes) != count:
            raise refused(
                "bad_block",
                f"cannot publish {count} blocks: num_block_tokens has {len(sizes)} numbers; give one for each hash",
            )
        for i, tokens in enumerate(sizes):
            if tokens != size:
                advice = (
                    "publish a block when it is full"
                    if tokens < size
                    else "publish one hash per block, or create the publisher with the block size of the engine"
                )
                raise refused(
                    "block_size",
                    f"cannot publish block {i} of {count}: it has {tokens} tokens and kv_block_size is {size}; {advice}",
                )
        if len(token_ids) != count * size:
            raise refused(
                "block_size",
                f"cannot publish {count} blocks: there are {len(token_ids)} tokens and kv_block_size is {size}; "
                f"give {count * size}",
            )
        try:
            return array("I", token_ids)
        except (TypeError, OverflowError) as error:
            for i, token in enumerate(token_ids):
                if isinstance(token, bool) or not isinstance(token, int) or not 0 <= token <= TOKEN_ID_MAX:
                    raise refused(
                        "bad_block",
                        f"cannot publish block {i // size} of {count}: its token {i % size} is {shown(token)}; "
                        f"use whole numbers from 0 to {TOKEN_ID_MAX}",
                    ) from error
            raise

    def _stored_event(
        self, parent: Optional[int], keys: Sequence[int], tokens: Sequence[int], labels: Labels
    ) -> Dict[str, Any]:
        """As vLLM 0.24 and later write it. What is not there is nil, which says more than silence."""
        keep = [labels.lora_name] if labels.lora_name is not None else []
        extra: List[Optional[List[str]]] = [keep or None] * len(keys)
        if labels.cache_salt is not None and extra:
            extra[0] = keep + [labels.cache_salt]
        return {
            "type": "BlockStored",
            "block_hashes": keys,
            "parent_block_hash": parent,
            "token_ids": tokens,
            "block_size": self._block_size,
            "lora_id": labels.lora_id,
            "medium": MEDIA[labels.tier],
            "lora_name": labels.lora_name,
            "extra_keys": extra,
        }

    def _enqueue(self, event: Dict[str, Any], blocks: int) -> None:
        if self._queued_blocks + blocks > self._blocks_max:
            self._flush()
        self._queue.append(event)
        self._queued_blocks += blocks
        self._events += 1
        if len(self._queue) >= self._events_max:
            self._flush()

    def _flush_outside(self) -> None:
        if self._open_batches == 0:
            self._flush()

    def _flush(self) -> None:
        if not self._queue:
            return
        payload = self._pack([time.time(), self._queue, self._rank])
        self._queue = []
        self._queued_blocks = 0
        sequence = self._sequence
        if self._keeps:
            # Kept first: a router that receives a batch may ask for it at once.
            self._kept.append((sequence, payload))
            self._kept_bytes += len(payload)
            while len(self._kept) > self._buffer_batches_max or self._kept_bytes > self._buffer_bytes_max:
                self._kept_bytes -= len(self._kept.popleft()[1])
        self._sequence = sequence + 1
        self._published_bytes += len(payload)
        # A PUB socket never waits: a subscriber whose queue is full loses the batch.
        self._socket.send_multipart([self._topic, sequence.to_bytes(8, "big"), payload])

    def _kept_from(self, start: int) -> List[Tuple[int, bytes]]:
        with self._lock:
            self._flush()
            return [batch for batch in self._kept if batch[0] >= start]

    def _take_snapshot(self) -> Snapshot:
        with self._lock:
            self._flush()
            frozen, said = self._held.freeze()
            next_sequence, is_whole = self._sequence, self._held.is_whole
        return Snapshot(next_sequence, is_whole, lambda: self._parts_of(frozen, said))

    def _parts_of(self, frozen: Sequence[Entry], said: Dict[int, Label]) -> Sequence[Callable[[], bytes]]:
        entries = parents_first(frozen)
        blocks = max(1, PART_TOKENS_MAX // self._block_size)
        starts = range(0, len(entries), blocks) if entries else range(1)
        return [functools.partial(self._part_payload, entries[start : start + blocks], said) for start in starts]

    def _part_payload(self, entries: Sequence[Entry], said: Dict[int, Label]) -> bytes:
        events = []
        for parent, run in runs(entries, DUMP_EVENT_BLOCKS_MAX):
            tokens = array("I")
            for entry in run:
                tokens.frombytes(entry.tokens)
            keys = [entry.key for entry in run]
            event = self._stored_event(parent, keys, tokens.tolist(), run[0].labels)
            event.update(fields([said.get(key) for key in keys]))
            if run[0].labels.tier == POOL:
                event["locality"] = "REMOTE"
            events.append(event)
        return self._pack([time.time(), events, self._rank])


class ZmqKvEventPublisher(KvEventPublisher):
    """KvEventPublisher, as engines of vLLM's kind create it: by the endpoint."""

    def __init__(self, zmq_endpoint: str, kv_block_size: int, topic: str = "", **options: Any) -> None:
        super().__init__(kv_block_size, zmq_endpoint=zmq_endpoint, topic=topic, **options)


def _needed(module: str, package: str) -> Any:
    return needed(module, package, "publish KV events", "publisher", "pyzmq msgpack")


def _key(given: EngineHash, what: str) -> int:
    """The unsigned 64 bits."""
    if isinstance(given, (bytes, bytearray, memoryview)):
        if len(given) != 32:
            raise refused(
                "bad_block", f"cannot publish {what}: its hash has {len(given)} bytes; a digest has 32"
            )
        return int.from_bytes(given[-8:], "big")
    try:
        value = operator.index(given)
    except TypeError:
        raise refused(
            "bad_block",
            f"cannot publish {what}: its hash is a {type(given).__name__}; use an int, or the 32 bytes of a digest",
        ) from None
    if not -(2**63) <= value < 2**64:
        raise refused(
            "bad_block",
            f"cannot publish {what}: hash {value} does not fit into 64 bits; use one below 2^64",
        )
    return value % 2**64


def _check_tier(what: str, tier: str) -> None:
    if tier not in TIERS:
        raise refused(
            "bad_block", f"cannot publish {what}: tier is {shown(tier)}, use one of {', '.join(TIERS)}"
        )
