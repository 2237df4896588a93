"""What programs give to `KvRouter`, checked, as the bodies that the router reads."""

from __future__ import annotations

import json
from array import array
from typing import Any, Dict, FrozenSet, Mapping, Optional, Sequence

from .errors import bad_option, shown

TOKEN_ID_MAX = 2**32 - 1

STOP = frozenset(("max_tokens", "min_tokens", "ignore_eos", "stop", "stop_token_ids"))
SAMPLING = frozenset(
    (
        "temperature",
        "top_p",
        "top_k",
        "min_p",
        "seed",
        "frequency_penalty",
        "presence_penalty",
        "repetition_penalty",
    )
)
OVERRIDE = frozenset(
    (
        "overlap_score_weight",
        "prefill_load_scale",
        "overlap_score_credit",
        "router_temperature",
        "assume_kv_reuse",
        "track_prefill_tokens",
        "moe_query",
    )
)


def prompt_body(
    act: str,
    token_ids: Sequence[int],
    *,
    model: Optional[str],
    override: Optional[Mapping[str, Any]],
    worker_id: Optional[int] = None,
    dp_rank: Optional[int] = None,
    request_id: Optional[str] = None,
) -> bytes:
    """The body of a question about a prompt. Raises HomingError `bad_option`."""
    members = {"model": model, "request_id": request_id, "nvext": _nvext(act, worker_id, dp_rank, override)}
    return _body(act, "token_ids", token_ids, members)


def generate_body(
    token_ids: Sequence[int],
    *,
    model: Optional[str],
    stop_conditions: Optional[Mapping[str, Any]],
    sampling_options: Optional[Mapping[str, Any]],
    override: Optional[Mapping[str, Any]],
    worker_id: Optional[int],
    dp_rank: Optional[int],
) -> bytes:
    """The body of a completion that is streamed with its token ids. Raises HomingError `bad_option`."""
    act = "generate"
    members: Dict[str, Any] = {"model": model}
    members.update(known_members(act, "sampling_options", sampling_options, SAMPLING))
    members.update(known_members(act, "stop_conditions", stop_conditions, STOP))
    members["stream"] = True
    members["stream_options"] = {"include_usage": True}
    members["return_token_ids"] = True
    members["nvext"] = _nvext(act, worker_id, dp_rank, override)
    return _body(act, "prompt", token_ids, members)


def known_members(
    act: str, of: str, given: Optional[Mapping[str, Any]], names: FrozenSet[str]
) -> Dict[str, Any]:
    """A copy without the members that are None. One that does not exist is an error."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise bad_option(act, of, f"{shown(given)} is no mapping: give one with {', '.join(sorted(names))}")
    for name in given:
        if name not in names:
            raise bad_option(
                act, f"{of}.{name}", f"there is no such member; known: {', '.join(sorted(names))}"
            )
    return {name: value for name, value in given.items() if value is not None}


def _nvext(
    act: str, worker_id: Optional[int], dp_rank: Optional[int], override: Optional[Mapping[str, Any]]
) -> Optional[Dict[str, Any]]:
    members: Dict[str, Any] = {}
    if worker_id is not None:
        members["backend_instance_id"] = worker_id
    if dp_rank is not None:
        members["dp_rank"] = dp_rank
    if override is not None:
        members["router_config_override"] = known_members(act, "router_config_override", override, OVERRIDE)
    return members or None


def _body(act: str, name: str, token_ids: Sequence[int], members: Mapping[str, Any]) -> bytes:
    ids = _checked_ids(act, token_ids)
    given = {key: value for key, value in members.items() if value is not None}
    try:
        text = json.dumps({name: ids, **given}, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise bad_option(act, "a member", f"it cannot be written as JSON: {error}") from error
    return text.encode()


def _checked_ids(act: str, token_ids: Sequence[int]) -> Sequence[int]:
    if isinstance(token_ids, (str, bytes)):
        raise bad_option(act, "token_ids", f"{shown(repr(token_ids))} is a text: give token ids")
    ids = list(token_ids)
    if len(ids) == 0:
        raise bad_option(act, "token_ids", "there are none; give at least one id")
    try:
        # Refuses what is no whole number 0 … 2^32 − 1, in C; what takes itself for one comes out as one.
        return array("I", ids).tolist() if bool not in set(map(type, ids)) else _refused(act, ids)
    except (TypeError, OverflowError):
        return _refused(act, ids)


def _refused(act: str, ids: Sequence[Any]) -> Sequence[int]:
    for position, value in enumerate(ids):
        try:
            is_id = not isinstance(value, bool) and 0 <= array("q", [value])[0] <= TOKEN_ID_MAX
        except (TypeError, OverflowError):
            is_id = False
        if not is_id:
            raise bad_option(
                act,
                f"token_ids[{position}]",
                f"{shown(repr(value))} is no token id: give a whole number 0 … {TOKEN_ID_MAX}",
            )
    return [int(value) for value in ids]
