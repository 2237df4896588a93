"""TokenWorker: a worker in your own program, which gets the token ids of prompts and answers with token ids.

    router --POST /v1/tokens--> a thread for each request --> generate(request, context)
       ^                                                          |
       +---------------- lines of token ids <---------------------+

The router makes the prompt of a chat, tokenizes it, makes text of the answer and looks for stop strings
(docs/worker.md). Needs no package but the standard library.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import inspect
import json
import selectors
import socket
import threading
import time
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, AsyncIterable, Callable, Dict, Iterable, Iterator, List, Optional, Sequence, Set, Union
from urllib.parse import quote, urlencode, urlsplit

from .errors import bad_option, refused, shown

TOKEN_ID_MAX = 2**32 - 1
TOKENS_PATH = "/v1/tokens"
TOKENS_TYPE = "application/x-ndjson"
#: How often a silent generator's client is looked at, in seconds.
LOOK_S = 0.2
#: A connection is closed when nothing comes on it, or it takes nothing, for this time.
SILENCE_S_MAX = 300
REGISTER_S_MAX = 30

#: What a program gives: one id, several, or a dict with ``token_ids``, ``finish_reason``, ``cached_tokens``.
Output = Union[int, Sequence[int], Dict[str, Any]]
Generate = Callable[[Dict[str, Any], "Context"], Union[Iterable[Output], AsyncIterable[Output]]]


class RefuseRequest(Exception):
    """For programs to raise before the first output: another worker may take the request.

    status  429 and 503: this worker has too much to do; 400 ... 499 otherwise: the request is at fault
    """

    def __init__(self, message: str, status: int = 503) -> None:
        super().__init__(message)
        self.status = status


class Context:
    """What a program may ask about the request that it works on."""

    def __init__(self, request_id: str, connection: socket.socket) -> None:
        self.id = request_id
        self._connection = connection
        self._is_stopped = False

    def is_stopped(self) -> bool:
        """Whether no client waits for the answer any more. Costs one look at a socket."""
        if not self._is_stopped:
            self._is_stopped = _has_left(self._connection)
        return self._is_stopped


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
    host, port       where it listens; port 0 is a free one
    advertised_host  the host by which routers reach it; default: ``host``, or the name of this machine
    routers          URLs of routers that are told of it, and told when it ends; ``admin_key`` for those that
                     want one. Without them, start routers with ``--worker`` and its ``url``
    requests_max     at one time; more are answered with 503, and connections beyond twice as many are closed
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
        host: str = "127.0.0.1",
        port: int = 0,
        advertised_host: Optional[str] = None,
        routers: Sequence[str] = (),
        admin_key: Optional[str] = None,
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
        self._generate = generate
        self._card: Dict[str, Any] = {
            "id": model_name,
            "object": "model",
            "created": int(time.time()),
            "owned_by": "custom",
            "model_input": "Tokens",
        }
        if model_path is not None:
            self._card["root"] = model_path
        if context_length is not None:
            self._card["max_model_len"] = context_length
        parameters = {
            "block_size": kv_cache_block_size,
            "kv_blocks": kv_blocks,
            "events": events_port,
            "replay": replay_port,
        }
        self._query = urlencode({name: value for name, value in parameters.items() if value is not None})
        self._host, self._port = host, port
        self._advertised = advertised_host or (socket.gethostname() if host in ("0.0.0.0", "::") else host)
        self._routers = list(routers)
        self._admin_key = admin_key
        self._requests_max = requests_max
        self._body_bytes_max = min(body_bytes_max, bodies_bytes_max)
        self._bodies_bytes_max = bodies_bytes_max
        self._bodies_bytes = 0
        self._lock = threading.Condition()
        self._open = 0
        self._threads = 0
        self._counts = {"finished": 0, "failed": 0, "cancelled": 0}
        self._tokens = 0
        self._connections: Set[socket.socket] = set()
        self._server: Optional[ThreadingHTTPServer] = None
        self._loop: Optional[asyncio.AbstractEventLoop] = None
        self._is_closing = False
        self._started_s = time.time()

    @property
    def url(self) -> str:
        """For ``--worker``, and for ``POST /workers``: with all that a router must know of it."""
        if self._server is None:
            raise refused("closed", "cannot name the worker: it has not been started")
        host = f"[{self._advertised}]" if ":" in self._advertised else self._advertised
        return f"http://{host}:{self._server.server_address[1]}?{self._query}"

    @property
    def open_requests(self) -> int:
        return self._open

    def start(self) -> "TokenWorker":
        """Takes requests from now on, and tells the routers. Raises HomingError."""
        try:
            server = _server(self._host, self._port, self)
        except OSError as error:
            raise refused("listen_failed", f"cannot listen on {self._host}:{self._port}: {error}") from error
        self._server = server
        threading.Thread(target=server.serve_forever, args=(0.1,), daemon=True).start()
        try:
            for router in self._routers:
                self._tell(router, "POST", "/workers", {"url": self.url})
        except BaseException:
            self.close()
            raise
        return self

    def close(self, grace_s: float = 0) -> None:
        """Routers forget the worker; open requests may finish for ``grace_s``, and are cut then. Idempotent."""
        server = self._server
        if server is None or self._is_closing:
            return
        worker_id = urlsplit(self.url).netloc
        for router in self._routers:
            # One that is gone has forgotten it.
            with contextlib.suppress(Exception):
                self._tell(router, "DELETE", f"/workers/{quote(worker_id, safe='')}", None)
        self._is_closing = True
        server.shutdown()
        server.server_close()
        with self._lock:
            self._lock.wait_for(lambda: self._open == 0, grace_s)
            connections = list(self._connections)
        for connection in connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        loop = self._loop
        if loop is not None:
            with self._lock:
                self._lock.wait_for(lambda: self._open == 0, SILENCE_S_MAX)
            loop.call_soon_threadsafe(loop.stop)

    def __enter__(self) -> "TokenWorker":
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

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
                    "unreachable", f"cannot tell {router} of the worker: it answered {error.code} {shown(said)}"
                ) from error
        except (OSError, ValueError) as error:
            raise refused("unreachable", f"cannot tell {router} of the worker: {error}") from error

    # What threads of requests use.

    def _begin(self, body_bytes: int) -> Optional[str]:
        """Takes the place of a request before its body is read. None: it has one; else why not."""
        with self._lock:
            if self._is_closing:
                return "this worker stops"
            if self._open >= self._requests_max:
                return f"{self._requests_max} are open"
            if self._bodies_bytes + body_bytes > self._bodies_bytes_max:
                return f"the bodies of others leave no room for {body_bytes} bytes"
            self._open += 1
            self._bodies_bytes += body_bytes
            return None

    def _end(self, body_bytes: int) -> None:
        with self._lock:
            self._open -= 1
            self._bodies_bytes -= body_bytes
            self._lock.notify_all()

    def _connect(self) -> bool:
        with self._lock:
            if self._threads >= 2 * self._requests_max:
                return False
            self._threads += 1
            return True

    def _disconnect(self) -> None:
        with self._lock:
            self._threads -= 1

    def _count(self, outcome: str, tokens: int) -> None:
        with self._lock:
            self._counts[outcome] += 1
            self._tokens += tokens

    def _metrics(self) -> str:
        with self._lock:
            lines = [
                "# TYPE process_start_time_seconds gauge",
                f"process_start_time_seconds {self._started_s}",
                "# TYPE homing_worker_open_requests gauge",
                f"homing_worker_open_requests {self._open}",
                "# TYPE homing_worker_output_tokens_total counter",
                f"homing_worker_output_tokens_total {self._tokens}",
                "# TYPE homing_worker_requests_total counter",
            ]
            for outcome, count in self._counts.items():
                lines.append(f'homing_worker_requests_total{{outcome="{outcome}"}} {count}')
        return "\n".join(lines) + "\n"

    def _event_loop(self) -> asyncio.AbstractEventLoop:
        """Of all async generators, on a thread of its own."""
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=self._run_loop, args=(self._loop,), daemon=True).start()
            return self._loop

    @staticmethod
    def _run_loop(loop: asyncio.AbstractEventLoop) -> None:
        loop.run_forever()
        loop.close()

    def _outputs(self, request: Dict[str, Any], context: Context) -> Iterator[Output]:
        given = self._generate(request, context)
        if inspect.isasyncgen(given) or hasattr(given, "__aiter__"):
            return self._of_async(given, context)  # type: ignore[arg-type]
        return iter(given)  # type: ignore[arg-type]

    def _of_async(self, given: AsyncIterable[Output], context: Context) -> Iterator[Output]:
        loop = self._event_loop()
        outputs = given.__aiter__()

        async def step() -> Output:
            return await outputs.__anext__()

        try:
            while True:
                future = asyncio.run_coroutine_threadsafe(step(), loop)
                while not concurrent.futures.wait([future], LOOK_S).done:
                    if context.is_stopped():
                        future.cancel()
                        raise _ClientGone()
                try:
                    output = future.result()
                except StopAsyncIteration:
                    return
                yield output
        finally:
            close = getattr(outputs, "aclose", None)
            if close is not None:
                asyncio.run_coroutine_threadsafe(close(), loop)


class _ClientGone(Exception):
    pass


#: ``select`` takes no descriptor above 1,023, and ``epoll`` makes one for each look.
_Selector = getattr(selectors, "PollSelector", selectors.SelectSelector)


def _has_left(connection: socket.socket) -> bool:
    try:
        with _Selector() as selector:
            selector.register(connection, selectors.EVENT_READ)
            return bool(selector.select(0)) and connection.recv(1, socket.MSG_PEEK) == b""
    except (OSError, ValueError):
        return True


def _line(output: Output, left: Optional[int]) -> Dict[str, Any]:
    """The line of an output, cut to the ids that are left. Raises TypeError."""
    if isinstance(output, dict):
        ids, reason, cached = (output.get(name) for name in ("token_ids", "finish_reason", "cached_tokens"))
        ids = [] if ids is None else ids
    else:
        ids, reason, cached = output, None, None
    ids = [ids] if isinstance(ids, int) else list(ids)
    for each in ids:
        if isinstance(each, bool) or not isinstance(each, int) or not 0 <= each <= TOKEN_ID_MAX:
            raise TypeError(f"token id {each!r} is no whole number from 0 to {TOKEN_ID_MAX}")
    if left is not None and (len(ids) > left or (len(ids) == left and reason is None)):
        ids, reason = ids[:left], "length"
    line: Dict[str, Any] = {"token_ids": ids}
    if reason is not None:
        line["finish_reason"] = str(reason)
    if cached is not None:
        line["cached_tokens"] = int(cached)
    return line


def _server(host: str, port: int, worker: TokenWorker) -> ThreadingHTTPServer:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = SILENCE_S_MAX

        def setup(self) -> None:
            super().setup()
            with worker._lock:
                worker._connections.add(self.connection)

        def finish(self) -> None:
            with worker._lock:
                worker._connections.discard(self.connection)
            with contextlib.suppress(OSError):
                super().finish()

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            pass

        def do_GET(self) -> None:
            path = self.path.split("?", 1)[0]
            if path == "/v1/models":
                self._say(200, json.dumps({"object": "list", "data": [worker._card]}))
            elif path == "/health":
                self._say(200, '{"status":"ok"}')
            elif path == "/metrics":
                self._say(200, worker._metrics(), "text/plain; version=0.0.4")
            else:
                self._not_here()

        def do_POST(self) -> None:
            length = self.headers.get("content-length", "")
            if not length.isdigit() or int(length) > worker._body_bytes_max:
                self.close_connection = True
                why = f"its body must have a content-length of at most {worker._body_bytes_max}"
                self._fail(413 if length.isdigit() else 411, f"cannot take the request: {why}")
                return
            if self.path.split("?", 1)[0] != TOKENS_PATH:
                self.close_connection = True
                self._not_here()
                return
            body_bytes = int(length)
            refusal = worker._begin(body_bytes)
            if refusal is not None:
                # Its body is not read.
                self.close_connection = True
                self._fail(503, f"cannot take the request: {refusal}")
                return
            try:
                body = self.rfile.read(body_bytes)
                if len(body) == body_bytes:
                    self._tokens(body)
            finally:
                worker._end(body_bytes)

        def _tokens(self, body: bytes) -> None:
            try:
                request = json.loads(body)
                token_ids: List[int] = request["token_ids"]
                if not isinstance(token_ids, list):
                    raise TypeError("token_ids is no list")
            except (ValueError, TypeError, KeyError) as error:
                self._fail(400, f"cannot read the request for token ids: {error}")
                return
            context = Context(str(request.get("request_id", "")), self.connection)
            left = (request.get("stop_conditions") or {}).get("max_tokens")
            outputs: Iterator[Output] = iter(())
            outcome, tokens, has_head = "cancelled", 0, False
            try:
                outputs = worker._outputs(request, context)
                for output in outputs:
                    line = _line(output, left)
                    tokens += len(line["token_ids"])
                    left = None if left is None else left - len(line["token_ids"])
                    has_head = has_head or self._head()
                    if "finish_reason" in line:
                        outcome = "finished"
                    self._piece(line)
                    if "finish_reason" in line:
                        break
                else:
                    has_head = has_head or self._head()
                    outcome = "finished"
                    self._piece({"token_ids": [], "finish_reason": "stop"})
                self._piece(None)
            except _ClientGone:
                outcome = "cancelled"
                self.close_connection = True
            except Exception as error:
                outcome = "failed"
                self._failed(error, has_head)
            finally:
                worker._count(outcome, tokens)
                close = getattr(outputs, "close", None)
                if close is not None:
                    close()

        def _failed(self, error: Exception, has_head: bool) -> None:
            with contextlib.suppress(OSError, _ClientGone):
                if has_head:
                    self._piece({"error": str(error)[:1024]})
                    self._piece(None)
                else:
                    status = error.status if isinstance(error, RefuseRequest) else 500
                    self._fail(status, str(error))

        def _head(self) -> bool:
            self.send_response(200)
            self.send_header("content-type", TOKENS_TYPE)
            self.send_header("transfer-encoding", "chunked")
            try:
                self.end_headers()
            except OSError as error:
                raise _ClientGone() from error
            return True

        def _piece(self, line: Optional[Dict[str, Any]]) -> None:
            """One chunk; None: the end."""
            data = b"" if line is None else json.dumps(line).encode() + b"\n"
            try:
                self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
            except OSError as error:
                # The program's own faults are of the same kinds, and mean something else.
                raise _ClientGone() from error

        def _not_here(self) -> None:
            where = f"this worker takes token ids, at POST {TOKENS_PATH}"
            self._fail(404, f"cannot answer {self.command} {shown(self.path)}: {where}")

        def _fail(self, status: int, message: str) -> None:
            kind = "invalid_request_error" if status < 500 else "server_error"
            error = {"message": message, "type": kind, "param": None, "code": None}
            self._say(status, json.dumps({"error": error}))

        def _say(self, status: int, text: str, kind: str = "application/json") -> None:
            data = text.encode()
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        block_on_close = False
        request_queue_size = 128
        address_family = socket.AF_INET6 if ":" in host else socket.AF_INET

        def process_request(self, request: Any, client_address: Any) -> None:
            """A thread for each connection, up to twice as many as requests."""
            if worker._connect():
                super().process_request(request, client_address)
            else:
                self.shutdown_request(request)

        def process_request_thread(self, request: Any, client_address: Any) -> None:
            try:
                super().process_request_thread(request, client_address)
            finally:
                worker._disconnect()

        def handle_error(self, request: Any, client_address: Any) -> None:
            """A connection that broke: its thread ends, and nothing else."""

    return Server((host, port), Handler)
