"""KvRouter: the calls of the programmatic router, at a running `homing router`, over HTTP.

The router owns all state: what it decides, books and frees. This is a client of it, so several may be used in
one program, for one router or for many.
"""

from __future__ import annotations

import json
import ssl
import warnings
from dataclasses import asdict, dataclass
from typing import Any, AsyncIterator, Dict, List, Mapping, NamedTuple, Optional, Sequence, Union

from ._bodies import OVERRIDE, generate_body, known_members, prompt_body
from ._http import Origin, json_of, refusal
from .errors import HomingError, refused, bad_option, shown
from .generate import GenerateStream

VIEW_BYTES_MAX = 256 * 1024 * 1024
ERROR_BYTES_MAX = 1_048_576
DUMP_BYTES_MAX = 256 * 1024 * 1024
Override = Union["KvRouterConfig", Mapping[str, Any]]


class BestWorker(NamedTuple):
    """A worker key, and blocks of the prompt that it is believed to hold, 0 ... all full ones."""

    worker_id: int
    dp_rank: int
    overlap_blocks: int


@dataclass(frozen=True)
class KvRouterConfig:
    """Settings of the router for calls; None: as set for the router itself.

    overlap_score_weight   weight of cached blocks against load, 0 ... 1000; the linear rule decides
    prefill_load_scale     another name of overlap_score_weight, which counts if both are given
    overlap_score_credit   what a cached block counts for, 0 ... 1000
    router_temperature     0: the best worker; above: random, the more the higher; 0 ... 1000
    assume_kv_reuse        False: no other request shares its blocks
    track_prefill_tokens   False: its prompt is not counted as prefill
    moe_query              experts whose blocks count more: layer_id, expert_ids, expert_group,
                           fallback_to_unlabeled
    """

    overlap_score_weight: Optional[float] = None
    prefill_load_scale: Optional[float] = None
    overlap_score_credit: Optional[float] = None
    router_temperature: Optional[float] = None
    assume_kv_reuse: Optional[bool] = None
    track_prefill_tokens: Optional[bool] = None
    moe_query: Optional[Mapping[str, Any]] = None


class KvRouter:
    """A running router, at `endpoint`.

    endpoint         its URL
    block_size       tokens in a block. If given, the first call checks it against the router's workers
    kv_router_config for all calls of this object; `router_config_override` of a call goes before it
    model            of calls that name none; default: the only model of the router's workers
    admin_endpoint   URL of its operator routes, where it has --admin-port
    admin_key        key of its --admin-key-file; needed from other machines
    client_key       key of a client, where it has --client-keys-file
    tls              context for https; default: the certificates that the system trusts
    timeout_s        longest wait for the head of an answer, and for each further piece of it
    connections_max  calls at one time; further ones wait

    All calls raise HomingError. Calls may come from any number of tasks of one event loop.
    """

    def __init__(
        self,
        endpoint: str = "http://127.0.0.1:8000",
        block_size: Optional[int] = None,
        kv_router_config: Optional[Override] = None,
        *,
        model: Optional[str] = None,
        admin_endpoint: Optional[str] = None,
        admin_key: Optional[str] = None,
        client_key: Optional[str] = None,
        tls: Optional[ssl.SSLContext] = None,
        timeout_s: float = 120.0,
        connections_max: int = 64,
    ) -> None:
        if not timeout_s > 0:
            raise bad_option("use a router", "timeout_s", f"{shown(timeout_s)}: give seconds above 0")
        if not isinstance(connections_max, int) or connections_max < 1:
            raise bad_option(
                "use a router", "connections_max", f"{shown(connections_max)}: give a whole number from 1"
            )
        if block_size is not None and (not isinstance(block_size, int) or block_size < 1):
            raise bad_option("use a router", "block_size", f"{shown(block_size)}: give a whole number from 1")
        self._config = _members_of("use a router", "kv_router_config", kv_router_config)
        self._model = model
        self._block_size = block_size
        self._origin = Origin(endpoint, tls, connections_max, timeout_s)
        self._admin = (
            self._origin
            if admin_endpoint is None
            else Origin(admin_endpoint, tls, connections_max, timeout_s)
        )
        self._admin_headers = _key_headers("admin_key", admin_key)
        self._client_headers = _key_headers("client_key", client_key)
        self._is_closed = False

    async def __aenter__(self) -> "KvRouter":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def generate(
        self,
        token_ids: Sequence[int],
        model: Optional[str] = None,
        stop_conditions: Optional[Mapping[str, Any]] = None,
        sampling_options: Optional[Mapping[str, Any]] = None,
        *,
        router_config_override: Optional[Override] = None,
        worker_id: Optional[int] = None,
        dp_rank: Optional[int] = None,
    ) -> GenerateStream:
        """Chooses a worker, sends it the prompt, and gives its tokens as they come.

        token_ids         of the prompt, whole numbers 0 ... 2^32 - 1
        stop_conditions   max_tokens, min_tokens, ignore_eos, stop, stop_token_ids
        sampling_options  temperature, top_p, top_k, min_p, seed, frequency_penalty, presence_penalty,
                          repetition_penalty
        worker_id         forces this worker, with its load counted all the same; None: the router chooses

        Resolves when a worker answers. Load is booked, and freed at the end, whatever that is; another worker
        is tried if the first one fails before its first token. Iterate over the result once: its outputs are
        dicts ``{"token_ids": [...], "text": "...", "finish_reason": None}``. Leaving the loop early:
        ``await stream.aclose()``, or use it with ``async with``; a task that is cancelled does so by itself.
        """
        await self._assert_open("generate")
        override = self._merged("generate", router_config_override)
        body = generate_body(
            token_ids,
            model=model if model is not None else self._model,
            stop_conditions=stop_conditions,
            sampling_options=sampling_options,
            override=override,
            worker_id=worker_id,
            dp_rank=dp_rank,
        )
        answer = await self._origin.call(
            "POST", "/v1/completions", body, self._client_headers, may_repeat=False
        )
        if answer.status != 200:
            error = refusal(answer.status, await answer.whole(ERROR_BYTES_MAX))
            raise HomingError(error.status, error.name, f"cannot generate: {error.message}", error.param)
        return GenerateStream(answer)

    async def best_worker(
        self,
        token_ids: Sequence[int],
        router_config_override: Optional[Override] = None,
        request_id: Optional[str] = None,
        *,
        model: Optional[str] = None,
        worker_id: Optional[int] = None,
        dp_rank: Optional[int] = None,
    ) -> BestWorker:
        """The worker that the router would choose: ``(worker_id, dp_rank, overlap_blocks)``.

        Without a `request_id` nothing changes. With one (1 ... 256 characters) the request is booked there
        and counts as load: call `mark_prefill_complete` at its first token and `free` at its end. One without a
        sign of life for the router's --active-request-expiry-secs (default 300 s) is freed by itself.
        """
        act = "choose a worker"
        if request_id is not None and not isinstance(request_id, str):
            raise bad_option(act, "request_id", f"{shown(repr(request_id))} is no text")
        body = await self._prompt_body(
            act, token_ids, model, router_config_override, worker_id, dp_rank, request_id
        )
        row = await self._ask("best_worker", body, may_repeat=request_id is None)
        return BestWorker(row["worker_id"], row["dp_rank"], row["overlap_blocks"])

    async def best_worker_id(
        self,
        token_ids: Sequence[int],
        router_config_override: Optional[Override] = None,
        request_id: Optional[str] = None,
        *,
        model: Optional[str] = None,
        worker_id: Optional[int] = None,
        dp_rank: Optional[int] = None,
    ) -> "tuple[int, int]":
        """As `best_worker`, without the rank: ``(worker_id, overlap_blocks)``.

        Deprecated: a worker with several ranks needs the rank.
        """
        warnings.warn("best_worker_id has no rank: use best_worker", DeprecationWarning, stacklevel=2)
        best = await self.best_worker(
            token_ids,
            router_config_override,
            request_id,
            model=model,
            worker_id=worker_id,
            dp_rank=dp_rank,
        )
        return best.worker_id, best.overlap_blocks

    async def get_potential_loads(
        self,
        token_ids: Sequence[int],
        router_config_override: Optional[Override] = None,
        *,
        model: Optional[str] = None,
    ) -> List[Dict[str, int]]:
        """A row for each worker key that serves the model and is up, also for busy and ejected ones.

        Each has `worker_id`, `dp_rank`, `potential_prefill_tokens` (tokens that wait for prefill there, with
        those of the prompt that it does not hold), `potential_decode_blocks` (blocks in use there, with those
        of the prompt that would be new) and `active_requests` (without this one). Changes nothing.
        """
        body = await self._prompt_body("look at loads", token_ids, model, router_config_override)
        names = (
            "worker_id",
            "dp_rank",
            "potential_prefill_tokens",
            "potential_decode_blocks",
            "active_requests",
        )
        rows = await self._ask("potential_loads", body, may_repeat=True)
        return [{name: row[name] for name in names} for row in rows]

    async def find_matches_for_request(
        self,
        token_ids: Sequence[int],
        router_config_override: Optional[Override] = None,
        *,
        model: Optional[str] = None,
    ) -> List[Dict[str, int]]:
        """Which worker keys hold a beginning of the prompt: `worker_id`, `dp_rank`, `overlap_blocks` (at
        least 1), the longest first. `moe_score` is how many blocks it holds with an expert of the `moe_query`,
        `cxl_accessible_score` the part of `overlap_blocks` that it reaches in pooled memory alone. Changes
        nothing.
        """
        body = await self._prompt_body("look for matches", token_ids, model, router_config_override)
        rows = await self._ask("find_matches", body, may_repeat=True)
        names = ("worker_id", "dp_rank", "overlap_blocks", "moe_score", "cxl_accessible_score")
        return [{name: row[name] for name in names} for row in rows]

    async def mark_prefill_complete(self, request_id: str) -> None:
        """The first token of a booked request has come: its prompt is no load any more.

        Repeated, it says that the request is alive. One that is not booked: status 404.
        """
        await self._end("mark_prefill_complete", "mark the prefill as complete", request_id, may_repeat=True)

    async def free(self, request_id: str) -> None:
        """A booked request has ended; its id may be used again. One that is not booked: status 404."""
        await self._end("free", "free a request", request_id, may_repeat=False)

    async def dump_events(self) -> str:
        """The index as a JSON list of router events.

        They are `stored`, parents before children, which give the same overlaps when they are played into an
        empty index, with the labels of their blocks; and `cxl_state_transition` for blocks in pools that
        their worker does not hold itself. Of the blocks that workers hold only those on the device. At most
        256 MiB: `dump_event_pieces` has no bound.
        """
        pieces: List[str] = []
        size = 0
        async for piece in self.dump_event_pieces():
            size += len(piece)
            if size > DUMP_BYTES_MAX:
                raise refused(
                    "dump_too_large",
                    f"cannot dump the events as one text: they have more than {DUMP_BYTES_MAX} characters; "
                    "take them from dump_event_pieces()",
                )
            pieces.append(piece)
        return "".join(pieces)

    async def dump_event_pieces(self) -> AsyncIterator[str]:
        """The text of `dump_events`, in pieces of at most 64 KiB."""
        await self._assert_open("dump the events")
        answer = await self._admin.call(
            "GET", "/v1/router/dump_events", None, self._admin_headers, may_repeat=True
        )
        try:
            if answer.status != 200:
                raise refusal(answer.status, await answer.whole(ERROR_BYTES_MAX))
            while True:
                piece = await answer.piece()
                if piece == b"":
                    return
                # The text is ASCII.
                yield piece.decode("ascii")
        finally:
            answer.close()

    async def workers(self) -> List[Dict[str, Any]]:
        """All worker keys as they are now: `worker_id`, `dp_rank`, `worker` (its key), `url`, `state`,
        `trust` and `models` (names).
        """
        await self._assert_open("list the workers")
        return _worker_rows(await self._view("/workers"))

    async def metrics(self) -> str:
        """The metrics of the router, in Prometheus' text form."""
        await self._assert_open("read the metrics")
        answer = await self._admin.call("GET", "/metrics", None, self._admin_headers, may_repeat=True)
        text = await answer.whole(VIEW_BYTES_MAX)
        if answer.status != 200:
            raise refusal(answer.status, text)
        return text.decode()

    async def close(self) -> None:
        """Ends what is being generated, and closes all connections. The router goes on; what is booked there
        stays booked. Idempotent.
        """
        self._is_closed = True
        self._origin.close()
        self._admin.close()

    async def _end(self, route: str, act: str, request_id: str, *, may_repeat: bool) -> None:
        await self._assert_open(act)
        if not isinstance(request_id, str):
            raise bad_option(act, "request_id", f"{shown(repr(request_id))} is no text")
        await self._ask(route, json.dumps({"request_id": request_id}).encode(), may_repeat=may_repeat)

    async def _prompt_body(
        self,
        act: str,
        token_ids: Sequence[int],
        model: Optional[str],
        override: Optional[Override],
        worker_id: Optional[int] = None,
        dp_rank: Optional[int] = None,
        request_id: Optional[str] = None,
    ) -> bytes:
        await self._assert_open(act)
        return prompt_body(
            act,
            token_ids,
            model=model if model is not None else self._model,
            override=self._merged(act, override),
            worker_id=worker_id,
            dp_rank=dp_rank,
            request_id=request_id,
        )

    def _merged(self, act: str, override: Optional[Override]) -> Optional[Dict[str, Any]]:
        given = _members_of(act, "router_config_override", override)
        merged = {**self._config, **given}
        return merged or None

    async def _ask(self, route: str, body: bytes, *, may_repeat: bool) -> Any:
        answer = await self._admin.call(
            "POST", f"/v1/router/{route}", body, self._admin_headers, may_repeat=may_repeat
        )
        return await json_of(answer, VIEW_BYTES_MAX)

    async def _view(self, path: str) -> Any:
        answer = await self._admin.call("GET", path, None, self._admin_headers, may_repeat=True)
        return await json_of(answer, VIEW_BYTES_MAX)

    async def _assert_open(self, act: str) -> None:
        if self._is_closed:
            raise refused("closed", f"cannot {act}: this router was closed")
        if self._block_size is None:
            return
        view = await self._view("/workers")
        values = (worker["block_size"]["value"] for worker in view["workers"])
        sizes = {value for value in values if value is not None}
        others = sorted(sizes - {self._block_size})
        if others:
            raise bad_option(
                act,
                "block_size",
                f"{self._block_size}: the router's workers have {', '.join(map(str, others))}",
            )
        self._block_size = None if sizes else self._block_size


#: The name of the class in Dynamo's documents.
KvPushRouter = KvRouter


def _members_of(act: str, of: str, given: Optional[Override]) -> Dict[str, Any]:
    members = asdict(given) if isinstance(given, KvRouterConfig) else given
    return known_members(act, of, members, OVERRIDE)


def _key_headers(name: str, key: Optional[str]) -> Dict[str, str]:
    if key is None:
        return {}
    if not key.isascii() or not key.isprintable() or key.strip() == "":
        raise bad_option("use a router", name, "it has characters that no header can have")
    return {"authorization": f"Bearer {key.strip()}"}


def _worker_rows(view: Any) -> List[Dict[str, Any]]:
    return [
        {
            "worker_id": worker["instance_id"],
            "dp_rank": key["dp_rank"],
            "worker": key["worker"],
            "url": worker["url"],
            "state": worker["state"],
            "trust": key["trust"],
            "models": [model["id"] for model in worker["models"]],
        }
        for worker in view["workers"]
        for key in worker["worker_keys"]
    ]
