"""Held blocks: what one worker key's cache holds, as its events say, to be published again as stores.

    tier -> key -> (key, parent, tokens, labels, copies)

Entries are never changed, only replaced: a list of them is the cache of one moment, however it goes on.

Rules, as routers read events (cache-reading.ts of @homing/protocol). Where events leave something open, less
is held.
    R2  Only the device has copies, and a store that begins a sequence adds none.
    R3  A removal takes a block with all its copies, until the engine has shown that it removes each copy: by
        a further removal of a block that had copies left, without a store between. Then it takes one copy.
    R4  A removal from a tier that never stored takes the block from all tiers.
    R5  A clear ends what was learned.
    R6  A block in pooled memory, or on its way there, stays when the last tier gives it up: as one of the
        pool alone, until it is evicted (labels, docs/labels.md).

Bounds   `bytes_max`: BLOCK_BYTES and four per token for each block, a copy counts as a block. A block that
         finds no room is not held, and the record is no longer whole. LEFT_MAX hashes that had copies left.
"""

from __future__ import annotations

from typing import Dict, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple

from ._labels import CxlMemoryMetadata, HeldLabels, Label

TIERS = ("device", "host", "disk", "external")
#: Not a tier of the worker: blocks that it has in a pool alone.
POOL = "pool"
# Entry, key and place in the table, without the tokens: tracemalloc tells 210, more while the table grows.
BLOCK_BYTES = 240
LEFT_MAX = 16_384


class Labels(NamedTuple):
    """What all blocks of a store have in common."""

    tier: str
    lora_id: Optional[int]
    lora_name: Optional[str]
    cache_salt: Optional[str]


class Entry(NamedTuple):
    key: int
    parent: Optional[int]
    #: Words of 32 bits in the order of this machine.
    tokens: bytes
    labels: Labels
    copies: int


Blocks = Dict[int, Entry]


class HeldBlocks:
    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._tiers: Dict[str, Blocks] = {}
        self._stored_tiers: Set[str] = set()
        self._removes_copies = False
        # In the order in which they were left: the oldest make room.
        self._left: Dict[int, None] = {}
        self._labels = HeldLabels()
        self.is_whole = True
        self.blocks = 0
        self.copies = 0
        self.bytes = 0
        self.refused_blocks = 0
        self.unknown_removes = 0

    def store(
        self,
        parent: Optional[int],
        keys: Sequence[int],
        tokens: Sequence[bytes],
        labels: Labels,
        said: Optional[Sequence[Label]] = None,
    ) -> None:
        self._stored_tiers.add(labels.tier)
        blocks = self._tiers.setdefault(labels.tier, {})
        is_copy = labels.tier == "device" and parent is not None
        pool = self._tiers.get(POOL, {})
        for i, (key, words) in enumerate(zip(keys, tokens)):
            for there in (pool, blocks):
                known = there.get(key)
                if known is None:
                    continue
                is_same = known.parent == parent and known.tokens == words
                if not is_same:
                    # What was said of another block under this hash is not said of this one.
                    self._labels.removed(key)
                if there is pool or not is_same:
                    self._drop(there, known)
            held = blocks.get(key)
            if held is None or is_copy:
                size = BLOCK_BYTES + len(words)
                if self.bytes + size > self._bytes_max:
                    self.refused_blocks += 1
                    self.is_whole = False
                elif held is None:
                    blocks[key] = Entry(key, parent, words, labels, 1)
                    self._count(1, 1, size)
                else:
                    blocks[key] = held._replace(copies=held.copies + 1)
                    self._count(0, 1, size)
            if said is not None and said[i] != (None, None) and key in blocks:
                self._labels.stored(key, said[i], self._bytes_max)
            parent = key

    def move(self, keys: Sequence[int], place: CxlMemoryMetadata) -> None:
        pool = self._tiers.get(POOL, {})
        for key in keys:
            is_held = self._is_held(key)
            if not is_held and key not in self._labels:
                continue
            self._labels.moved(key, place, self._bytes_max)
            if is_held or self._labels.is_pooled(key):
                continue
            if key in pool:
                self._drop(pool, pool[key])
            self._labels.removed(key)

    @property
    def all_bytes(self) -> int:
        return self.bytes + self._labels.bytes

    def remove(self, keys: Sequence[int], tier: str) -> None:
        if tier not in self._stored_tiers:
            for each in TIERS:
                self._take_all(each, keys)
        elif tier != "device":
            self._take_all(tier, keys)
        else:
            self._take_copies(keys)

    def clear(self) -> None:
        self._tiers = {}
        self._stored_tiers = set()
        self._removes_copies = False
        self._left = {}
        self._labels = HeldLabels()
        self.is_whole = True
        self.blocks = self.copies = self.bytes = 0

    def freeze(self) -> Tuple[List[Entry], Dict[int, Label]]:
        """Everything held now, tier by tier, in the order of the stores, and its labels. Linear, and fast."""
        tiers = (*TIERS, POOL)
        entries = [entry for tier in tiers if tier in self._tiers for entry in self._tiers[tier].values()]
        return entries, self._labels.copy()

    def _is_held(self, key: int) -> bool:
        return any(key in self._tiers.get(tier, ()) for tier in TIERS)

    def _leave_tiers(self, held: Entry) -> None:
        """No tier holds the block any more."""
        size = BLOCK_BYTES + len(held.tokens)
        if not self._labels.is_pooled(held.key):
            self._labels.removed(held.key)
        elif self.bytes + size > self._bytes_max:
            self.refused_blocks += 1
            self._labels.removed(held.key)
        else:
            pool = self._tiers.setdefault(POOL, {})
            pool[held.key] = held._replace(labels=held.labels._replace(tier=POOL), copies=1)
            self._count(1, 1, size)

    def _take_all(self, tier: str, keys: Sequence[int]) -> None:
        blocks = self._tiers.get(tier, {})
        for key in keys:
            self._take(blocks, key)
            if tier == "device":
                self._left.pop(key, None)

    def _take_copies(self, keys: Sequence[int]) -> None:
        blocks = self._tiers.get("device", {})
        for key in keys:
            held = blocks.get(key)
            if self._removes_copies and held is not None and held.copies > 1:
                blocks[key] = held._replace(copies=held.copies - 1)
                self._count(0, -1, -(BLOCK_BYTES + len(held.tokens)))
                continue
            copies = self._take(blocks, key)
            if self._removes_copies:
                continue
            if copies > 1:
                self._leave(key)
            elif copies == 0 and key in self._left:
                self._removes_copies = True
                self._left = {}

    def _take(self, blocks: Blocks, key: int) -> int:
        """Copies that were there; 0: it was not held."""
        held = blocks.get(key)
        if held is None:
            self.unknown_removes += 1
            return 0
        self._drop(blocks, held)
        if not self._is_held(key):
            self._leave_tiers(held)
        return held.copies

    def _leave(self, key: int) -> None:
        self._left.pop(key, None)
        self._left[key] = None
        if len(self._left) > LEFT_MAX:
            del self._left[next(iter(self._left))]

    def _drop(self, blocks: Blocks, held: Entry) -> None:
        del blocks[held.key]
        self._count(-1, -held.copies, -held.copies * (BLOCK_BYTES + len(held.tokens)))

    def _count(self, blocks: int, copies: int, size: int) -> None:
        self.blocks += blocks
        self.copies += copies
        self.bytes += size


def parents_first(frozen: Sequence[Entry]) -> List[Entry]:
    """The entries with each parent before its children, and a block of n copies n times, tier by tier."""
    ordered: List[Entry] = []
    for tier in (*TIERS, POOL):
        blocks = {entry.key: entry for entry in frozen if entry.labels.tier == tier}
        repeated: List[Entry] = []
        done: Set[int] = set()
        path: List[Entry] = []
        for entry in blocks.values():
            at: Optional[Entry] = entry
            # A block that was seen ends the path: it stands in front, or the parents go in a circle.
            while at is not None and at.key not in done:
                done.add(at.key)
                path.append(at)
                at = None if at.parent is None else blocks.get(at.parent)
            while path:
                found = path.pop()
                ordered.append(found)
                if found.copies > 1:
                    repeated.append(found)
        copy = 2
        while repeated:
            ordered.extend(repeated)
            repeated = [entry for entry in repeated if entry.copies > copy]
            copy += 1
    return ordered


def runs(entries: Sequence[Entry], blocks_max: int) -> Iterator[Tuple[Optional[int], List[Entry]]]:
    """Neighbours that follow each other in a prompt, with the parent of the first, at most `blocks_max`."""
    run: List[Entry] = []
    for entry in entries:
        if run and (len(run) >= blocks_max or entry.parent != run[-1].key or entry.labels != run[-1].labels):
            yield run[0].parent, run
            run = []
        run.append(entry)
    if run:
        yield run[0].parent, run
