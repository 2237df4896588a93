"""TokenWorker: a worker in your own program, which gets the token ids of prompts and answers with token ids.

    router --POST /v1/tokens--> http, tcp or nats --> a thread for each request --> generate(request, context)
       ^                                                                               |
       +------------------------- lines of token ids <---------------------------------+

The router makes the prompt of a chat, tokenizes it, makes text of the answer and looks for stop strings
(docs/worker.md). Over HTTP it needs no package but the standard library; over TCP msgpack
(``homing[tcp]``), at a broker nats-py (``homing[nats]``).

Order of the start: requests are taken, then routers are told. Of the end: routers forget the worker, open
requests may finish, the rest is cut.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import json
import socket
import time
import urllib.error
import urllib.request
from typing import Any, Dict, List, Optional, Sequence, Union
from urllib.parse import quote, urlencode, urlsplit

from ._broker import Broker, BrokerUser, servers_of
from ._etcd import EtcdPresence, etcd_servers_of
from ._io_loop import IoLoop
from ._presence import Presence, is_namespace
from ._worker_answers import Answers, Context, Generate, Output, RefuseRequest
from ._worker_http import SILENCE_S_MAX, HttpPlane
from ._worker_nats import NatsPlane, subject_of
from ._worker_tcp import TcpPlane
from .errors import bad_option, refused, shown

__all__ = ["Context", "Generate", "Output", "RefuseRequest", "TokenWorker"]

REGISTER_S_MAX = 30
#: For what is said at a broker to go out.
_BROKER_S_MAX = 5
_PLANES = ("http", "tcp", "nats")


class TokenWorker:
    """Serves a model by ``generate``, from ``start`` (or ``with``) until ``close``.

    generate         (request, context) -> outputs: a generator or an async generator. ``request`` has
                     ``token_ids``, ``stop_conditions``, ``sampling_options``, ``eos_token_ids``,
                     ``request_id``, ``model`` and ``resumed_tokens``: the last ones of ``token_ids``,
                     which another worker has generated. A return without a ``finish_reason`` is ``stop``,
                     or ``length`` where there are as many tokens as were asked for
    model_name       as requests name it
    model_path       directory of its tokenizer, as the router's machine sees it. None: the router is told
                     with ``--tokenizer MODEL=DIRECTORY``
    context_length   tokens of prompt and answer together. None: the worker alone ends long answers
    kv_cache_block_size, kv_blocks, events_port, replay_port    of its KV cache (KvEventPublisher)
    request_plane    ``http``; ``tcp``: all requests of a router share one connection; ``nats``: at the broker
                     of ``nats``. Routers have the same ``--request-plane``
    host, port       where it listens; port 0 is a free one. With ``nats`` they only name the worker, and port
                     is a number that no other worker of its host has
    advertised_host  the host by which routers reach it; default: ``host``, or the name of this machine
    routers          URLs of routers that are told of it, and told when it ends; ``admin_key`` for those that
                     want one
    nats             addresses of a broker, ``nats://host:4222`` each, at which it registers itself: routers
                     with ``--nats`` and the same ``--worker-namespace`` (``namespace``) take it
    etcd             ... or at this etcd, ``http://host:2379`` each: routers with
                     ``--discovery-backend etcd`` take it
    requests_max     at one time; more are answered with 503. Over HTTP connections beyond twice as many are
                     closed

    Without ``routers``, ``nats`` and ``etcd``, start routers with ``--worker`` and its ``url``.
    """

    def __init__(
        self,
        generate: Generate,
        model_name: str,
        model_path: Optional[str] = None,
        context_length: Optional[int] = None,
        kv_cache_block_size: int = 16,
        *,
        kv_blocks: Optional[int] = None,
        events_port: Optional[int] = None,
        replay_port: Optional[int] = None,
        request_plane: str = "http",
        host: str = "127.0.0.1",
        port: int = 0,
        advertised_host: Optional[str] = None,
        routers: Sequence[str] = (),
        admin_key: Optional[str] = None,
        nats: Sequence[str] = (),
        etcd: Sequence[str] = (),
        namespace: str = "default",
        requests_max: int = 256,
        body_bytes_max: int = 64 * 2**20,
        bodies_bytes_max: int = 256 * 2**20,
    ) -> None:
        act = "start a worker"
        if not callable(generate):
            raise bad_option(act, f"generate={generate!r}", "use a generator function")
        if not isinstance(model_name, str) or not model_name:
            raise bad_option(act, f"model_name={model_name!r}", "use the name that requests have")
        for name, value, low, high in (
            ("context_length", context_length, 1, 2**31 - 1),
            ("kv_cache_block_size", kv_cache_block_size, 1, 65_536),
            ("kv_blocks", kv_blocks, 1, 2**31 - 1),
            ("events_port", events_port, 1, 65_535),
            ("replay_port", replay_port, 1, 65_535),
            ("port", port, 0, 65_535),
            ("requests_max", requests_max, 1, 10_000),
            ("body_bytes_max", body_bytes_max, 1, 2**30),
            ("bodies_bytes_max", bodies_bytes_max, 1, 2**40),
        ):
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
                raise bad_option(act, f"{name}={value!r}", f"use a whole number from {low} to {high}")
        if request_plane not in _PLANES:
            raise bad_option(act, f"request_plane={request_plane!r}", f"use {', '.join(_PLANES)}")
        if isinstance(nats, str):
            raise bad_option(act, "nats is a text", "use a list of addresses")
        etcd_servers = None if isinstance(etcd, str) else etcd_servers_of(etcd)
        if etcd_servers is None:
            raise bad_option(act, "etcd", "use a list of URLs such as http://10.0.0.9:2379, all of one kind")
        if request_plane == "nats" and not nats:
            raise bad_option(act, "request_plane='nats'", "use it with nats=, the addresses of the broker")
        if request_plane == "nats" and port == 0:
            why = "use a number that no other worker of its host has: with nats it only names the worker"
            raise bad_option(act, "port=0", why)
        if not is_namespace(namespace):
            raise bad_option(act, f"namespace={namespace!r}", "use 1 to 64 letters, digits, '-' and '_'")
        card: Dict[str, Any] = {
            "id": model_name,
            "object": "model",
            "created": int(time.time()),
            "owned_by": "custom",
            "model_input": "Tokens",
        }
        if model_path is not None:
            card["root"] = model_path
        if context_length is not None:
            card["max_model_len"] = context_length
        self._answers = Answers(generate, card, requests_max, bodies_bytes_max)
        self._parameters = {
            "block_size": kv_cache_block_size,
            "kv_blocks": kv_blocks,
            "events": events_port,
            "replay": replay_port,
        }
        self._request_plane = request_plane
        self._host, self._port = host, port
        self._advertised = advertised_host or (socket.gethostname() if host in ("0.0.0.0", "::") else host)
        self._routers = list(routers)
        self._admin_key = admin_key
        self._nats = servers_of(nats)
        self._etcd = etcd_servers
        self._namespace = namespace
        self._requests_max = requests_max
        self._body_bytes_max = min(body_bytes_max, bodies_bytes_max)
        self._url: Optional[str] = None
        self._io: Optional[IoLoop] = None
        self._plane: Union[HttpPlane, TcpPlane, NatsPlane, None] = None
        self._broker: Optional[Broker] = None
        self._presence: Optional[Presence] = None
        self._etcd_presence: Optional[EtcdPresence] = None
        self._has_begun = False
        self._is_closing = False

    @property
    def url(self) -> str:
        """For ``--worker``, and for ``POST /workers``: with all that a router must know of it."""
        if self._url is None:
            raise refused("closed", "cannot name the worker: it has not been started")
        return self._url

    @property
    def open_requests(self) -> int:
        return self._answers.open

    def start(self) -> "TokenWorker":
        """Takes requests from now on, and tells the routers. Raises HomingError.

        A broker or an etcd that is away is waited for in the background, and so is one that comes back.
        """
        if self._has_begun:
            raise refused("closed", "cannot start the worker: it was started before")
        self._has_begun = True
        try:
            self._url = self._url_of(self._start_plane())
            if self._nats:
                self._start_broker(self._url)
            if self._etcd:
                self._etcd_presence = EtcdPresence(self._etcd, self._namespace, self._url)
                self._etcd_presence.start()
            for router in self._routers:
                self._tell(router, "POST", "/workers", {"url": self._url})
        except BaseException:
            self.close()
            raise
        return self

    def close(self, grace_s: float = 0) -> None:
        """Routers forget the worker; open requests may finish for ``grace_s``, and are cut then.

        Idempotent.
        """
        if self._is_closing or not self._has_begun:
            return
        self._is_closing = True
        if self._url is not None:
            worker_id = urlsplit(self._url).netloc
            for router in self._routers:
                # One that is gone has forgotten it.
                with contextlib.suppress(Exception):
                    self._tell(router, "DELETE", f"/workers/{quote(worker_id, safe='')}", None)
        self._say_good_bye()
        self._answers.refuse_all()
        plane = self._plane
        if isinstance(plane, NatsPlane):
            self._on_loop(plane.stop)
        elif plane is not None:
            plane.stop()
        self._answers.wait_idle(grace_s)
        if isinstance(plane, NatsPlane):
            self._on_loop(self._cut_at_broker)
        elif plane is not None:
            plane.cut()
        self._answers.end_loop(SILENCE_S_MAX)
        if self._io is not None:
            self._io.close()

    def __enter__(self) -> "TokenWorker":
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start_plane(self) -> int:
        """The port of the worker's URL."""
        host, port = self._host, self._port
        if self._request_plane == "nats":
            subject = subject_of(f"{self._shown_host()}:{port}")
            self._plane = NatsPlane(self._answers, subject, self._body_bytes_max)
            return port
        if self._request_plane == "tcp":
            plane: Union[TcpPlane, HttpPlane] = TcpPlane(
                self._loop(), self._answers, host, port, self._body_bytes_max
            )
        else:
            plane = HttpPlane(self._answers, host, port, self._body_bytes_max, 2 * self._requests_max)
        try:
            bound = plane.start()
        except (OSError, concurrent.futures.TimeoutError) as error:
            raise refused("listen_failed", f"cannot listen on {host}:{port}: {error}") from error
        self._plane = plane
        return bound

    def _start_broker(self, url: str) -> None:
        # Requests are taken before routers are told; with etcd they are told there.
        users: List[BrokerUser] = [self._plane] if isinstance(self._plane, NatsPlane) else []
        if not self._etcd:
            self._presence = Presence(self._namespace, url)
            users.append(self._presence)
        if not users:
            return
        broker = Broker(self._nats, users)
        self._broker = broker
        asyncio.run_coroutine_threadsafe(broker.run(), self._loop().loop)

    def _say_good_bye(self) -> None:
        if self._etcd_presence is not None:
            self._etcd_presence.close()
        presence, broker = self._presence, self._broker
        if presence is None or broker is None:
            return

        async def say() -> None:
            presence.close()
            await broker.flush()

        self._on_loop(say)

    async def _cut_at_broker(self) -> None:
        if isinstance(self._plane, NatsPlane):
            self._plane.cut()
        if self._broker is not None:
            await self._broker.flush()

    def _on_loop(self, work: Any) -> None:
        """What is not done in time is not waited for: a broker that is away is no reason to hang."""
        with contextlib.suppress(concurrent.futures.TimeoutError):
            self._loop().run(work, _BROKER_S_MAX)

    def _loop(self) -> IoLoop:
        if self._io is None:
            self._io = IoLoop()
        return self._io

    def _shown_host(self) -> str:
        host = self._advertised
        return f"[{host}]" if ":" in host and not host.startswith("[") else host

    def _url_of(self, port: int) -> str:
        address = f"{self._shown_host()}:{port}"
        parameters = {name: value for name, value in self._parameters.items() if value is not None}
        requests = {"tcp": f"tcp://{address}", "nats": subject_of(address)}.get(self._request_plane)
        query = urlencode({**parameters, **({} if requests is None else {"requests": requests})}, safe=":/[]")
        return f"http://{address}?{query}"

    def _tell(self, router: str, method: str, path: str, body: Optional[Dict[str, Any]]) -> None:
        headers = {"content-type": "application/json"}
        if self._admin_key is not None:
            headers["authorization"] = f"Bearer {self._admin_key}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(router.rstrip("/") + path, data, headers, method=method)
        try:
            urllib.request.urlopen(request, timeout=REGISTER_S_MAX).close()
        except urllib.error.HTTPError as error:
            said = error.read(65_536).decode("utf-8", "replace")
            error.close()
            # 409: it has it already.
            if not (method == "POST" and error.code == 409):
                raise refused(
                    "unreachable",
                    f"cannot tell {router} of the worker: it answered {error.code} {shown(said)}",
                ) from error
        except (OSError, ValueError) as error:
            raise refused("unreachable", f"cannot tell {router} of the worker: {error}") from error
