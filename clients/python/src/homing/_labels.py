"""Labels of blocks: their expert, and where they are in pooled memory (docs/labels.md), checked and in the words
of events; and what is held of them, to be published again with their stores.

States change as a router has them change, so a snapshot says the same as all events before it. Labels are never
changed, only replaced: a copy of the table is the labels of a moment.
"""

from __future__ import annotations

import json
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, TypeVar, Union

from .errors import refused, shown

U32_MAX = 2**32 - 1
U64_MAX = 2**64 - 1
WORKERS_MAX = 1024
POOL_STATES = ("local_gpu", "in_transit", "cxl_pooled", "evicted")
# By state: those that may come before it. A block of which nothing was told has none.
_FROM = {
    "local_gpu": (None, *POOL_STATES),
    "in_transit": (None, *POOL_STATES),
    "cxl_pooled": ("in_transit",),
    "evicted": POOL_STATES,
}
LABEL_BYTES = 400
WORKER_BYTES = 48
MEMBERS_BYTES_MAX = 1024
MEMBERS_DEPTH_MAX = 8
# Of an object of that many bytes as JSON, with its members: many times its text.
MEMBERS_BYTES = 4096
_EXPERT_NAMES = ("layer_id", "expert_id", "expert_group")
_PLACE_NAMES = ("state", "pool_id", "accessible_workers", "workers_of")


class MoeMetadata(NamedTuple):
    """The expert of an MoE model that a block belongs to. Whole numbers of 32 bits."""

    layer_id: int
    expert_id: int
    expert_group: Optional[int] = None
    #: Further members, by name: kept for those who know them. At most 1 KiB, and 8 levels, as JSON.
    members: Optional[Mapping[str, Any]] = None


class CxlMemoryMetadata(NamedTuple):
    """Where a block is. `accessible_workers`: ids of those that reach it, beside the one that publishes this.

    `members`: as those of MoeMetadata. A transition has none, and changes none.
    """

    state: str = "local_gpu"
    pool_id: Optional[int] = None
    accessible_workers: Sequence[int] = ()
    members: Optional[Mapping[str, Any]] = None


class Label(NamedTuple):
    expert: Optional[MoeMetadata]
    place: Optional[CxlMemoryMetadata]


M = TypeVar("M")
#: One for each block, None where there is nothing to say; or one for all of them.
PerBlock = Union[M, Sequence[Optional[M]], None]


def labels_of(
    count: int, moe: PerBlock[MoeMetadata], cxl: PerBlock[CxlMemoryMetadata]
) -> Optional[List[Label]]:
    """Checked, for each of `count` blocks; None: no block has any."""
    experts = _each(count, moe, MoeMetadata, "moe_metadata", _expert)
    places = _each(count, cxl, CxlMemoryMetadata, "cxl_metadata", checked_place)
    labels = [Label(*pair) for pair in zip(experts, places)]
    return labels if any(label != (None, None) for label in labels) else None


def checked_place(place: CxlMemoryMetadata, what: str) -> CxlMemoryMetadata:
    state, pool_id, workers, members = place
    if state not in POOL_STATES:
        raise _bad(what, f"its state is {shown(state)}; use one of {', '.join(POOL_STATES)}")
    try:
        workers = tuple(workers)
    except TypeError:
        raise _bad(what, f"its workers with access are {shown(workers)}; use a list of worker ids") from None
    if len(workers) > WORKERS_MAX:
        raise _bad(what, f"{len(workers)} workers have access; name at most {WORKERS_MAX}")
    for worker in workers:
        if not _is_whole(worker, U64_MAX):
            raise _bad(
                what,
                f"a worker with access has id {shown(worker)}; use whole numbers from 0 to {U64_MAX}",
            )
    pool = None if pool_id is None else _u32(pool_id, "pool_id", what)
    return CxlMemoryMetadata(state, pool, workers, _members(members, _PLACE_NAMES, what))


def fields(labels: Sequence[Optional[Label]]) -> Dict[str, Any]:
    """The members of a store that say them."""
    found: Dict[str, Any] = {}
    if any(label is not None and label.expert is not None for label in labels):
        found["moe_metadata"] = [
            None if label is None or label.expert is None else _with_members(label.expert) for label in labels
        ]
    if any(label is not None and label.place is not None for label in labels):
        found["cxl_metadata"] = [
            None
            if label is None or label.place is None
            else {**_with_members(label.place), "accessible_workers": list(label.place.accessible_workers)}
            for label in labels
        ]
    return found


class HeldLabels:
    def __init__(self) -> None:
        self._labels: Dict[int, Label] = {}
        self.bytes = 0

    def __contains__(self, key: int) -> bool:
        return key in self._labels

    def is_pooled(self, key: int) -> bool:
        """Whether a block is in a pool, or on its way: its worker need not hold it itself."""
        label = self._labels.get(key)
        return (
            label is not None
            and label.place is not None
            and label.place.state
            in (
                "in_transit",
                "cxl_pooled",
            )
        )

    def stored(self, key: int, label: Label, bytes_max: int) -> None:
        """A store says this of a block; what it does not say stays."""
        known = self._labels.get(key, Label(None, None))
        self._put(key, Label(label.expert or known.expert, label.place or known.place), bytes_max)

    def moved(self, key: int, told: CxlMemoryMetadata, bytes_max: int) -> None:
        """The state of a block that is known has changed. An illegal change is passed over."""
        known = self._labels.get(key, Label(None, None))
        before = known.place
        if (None if before is None else before.state) not in _FROM[told.state]:
            return
        if told.state == "in_transit":
            if told.pool_id is None:
                return
            place = told
        elif told.state == "local_gpu" or before is None:
            place = CxlMemoryMetadata(told.state)
        else:
            place = before._replace(state=told.state)
        place = place._replace(members=None if before is None else before.members)
        self._put(key, Label(known.expert, place), bytes_max)

    def removed(self, key: int) -> None:
        label = self._labels.pop(key, None)
        if label is not None:
            self.bytes -= _bytes_of(label)

    def copy(self) -> Dict[int, Label]:
        return dict(self._labels)

    def _put(self, key: int, label: Label, bytes_max: int) -> None:
        known = self._labels.get(key)
        more = _bytes_of(label) - (0 if known is None else _bytes_of(known))
        if self.bytes + more > bytes_max:
            # Without room nothing is said of the block: it counts as one without labels.
            self.removed(key)
            return
        self._labels[key] = label
        self.bytes += more


def _bytes_of(label: Label) -> int:
    said = (label.expert, label.place)
    members = MEMBERS_BYTES * sum(1 for one in said if one is not None and one.members is not None)
    workers = 0 if label.place is None else WORKER_BYTES * len(label.place.accessible_workers)
    return LABEL_BYTES + members + workers


def _with_members(metadata: Any) -> Dict[str, Any]:
    said = metadata._asdict()
    return {**(said.pop("members") or {}), **said}


def _members(members: Any, taken: Sequence[str], what: str) -> Optional[Mapping[str, Any]]:
    """A copy, checked as routers check them; None: there are none."""
    if members is None:
        return None
    if not isinstance(members, Mapping) or not all(isinstance(name, str) for name in members):
        raise _bad(what, f"its members are {shown(members)}; use a dict with texts as keys")
    for name in taken:
        if name in members:
            raise _bad(what, f"{name} is among its members; use the field for it, or another name")
    if _levels(members) > MEMBERS_DEPTH_MAX + 1:
        raise _bad(what, f"its members have more than {MEMBERS_DEPTH_MAX} levels; use less")
    try:
        text = json.dumps(members, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        size = len(text.encode())
    except (TypeError, ValueError) as error:
        raise _bad(what, f"its members are not what JSON has: {error}") from None
    if size > MEMBERS_BYTES_MAX:
        raise _bad(what, f"its members have {size} bytes as JSON; use at most {MEMBERS_BYTES_MAX}")
    try:
        copied: Dict[str, Any] = json.loads(text, parse_int=_whole)
    except ValueError as error:
        raise _bad(what, f"its members have {error}") from None
    return copied or None


def _whole(text: str) -> int:
    value = int(text)
    if not -(2**63) <= value <= U64_MAX:
        raise ValueError("a whole number beyond 64 bits; use smaller ones")
    return value


def _levels(value: Any) -> int:
    """One more than the most that are allowed, where there are more still."""
    deepest, level = 0, [value]
    while level and deepest <= MEMBERS_DEPTH_MAX + 1:
        inner = [one for one in level if isinstance(one, (Mapping, list, tuple))]
        deepest += 1 if inner else 0
        level = [each for one in inner for each in (one.values() if isinstance(one, Mapping) else one)]
    return deepest


def _each(
    count: int, given: Any, kind: Callable[..., Any], name: str, check: Callable[[Any, str], Any]
) -> List[Any]:
    if given is None:
        return [None] * count
    listed = [given] * count if isinstance(given, (dict, kind)) else list(given)  # type: ignore[arg-type]
    if len(listed) != count:
        raise refused(
            "bad_block",
            f"cannot publish {count} blocks: {name} has {len(listed)} entries; give one for each block, or one for all",
        )
    checked: List[Any] = []
    for i, each in enumerate(listed):
        what = f"block {i} of {count}"
        if each is None:
            checked.append(None)
            continue
        try:
            metadata = kind(**each) if isinstance(each, dict) else kind(*each)
        except TypeError as error:
            raise _bad(what, f"its {name} is {shown(each)}; use a {kind.__name__}") from error
        checked.append(check(metadata, what))
    return checked


def _expert(expert: MoeMetadata, what: str) -> MoeMetadata:
    layer_id, expert_id, group, members = expert
    return MoeMetadata(
        _u32(layer_id, "layer_id", what),
        _u32(expert_id, "expert_id", what),
        None if group is None else _u32(group, "expert_group", what),
        _members(members, _EXPERT_NAMES, what),
    )


def _u32(value: Any, name: str, what: str) -> int:
    if not _is_whole(value, U32_MAX):
        raise _bad(what, f"its {name} is {shown(value)}; use a whole number from 0 to {U32_MAX}")
    return int(value)


def _is_whole(value: Any, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most


def _bad(what: str, why: str) -> Exception:
    return refused("bad_block", f"cannot publish {what}: {why}")
