"""What a worker of token ids answers, whichever way requests come.

    plane (_worker_http, _worker_tcp, _worker_nats) --Exchange--> Answers --> generate(request, context)
       ^                                                                          |
       +------------------------ lines of token ids <-----------------------------+

    GET  /v1/models    the model, which says that it takes token ids
    GET  /health       200
    GET  /metrics      counts, in Prometheus' text form
    POST /v1/tokens    generates

Bounds   `requests_max` requests for token ids, their bodies together by `bodies_bytes_max`. A request takes
         its place before its body is read, and a thread once it is there.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import inspect
import json
import logging
import threading
import time
from typing import (
    Any,
    AsyncIterable,
    Callable,
    Dict,
    Iterable,
    Iterator,
    List,
    NamedTuple,
    Optional,
    Sequence,
    Union,
)

from .errors import shown

TOKEN_ID_MAX = 2**32 - 1
TOKENS_PATH = "/v1/tokens"
TOKENS_TYPE = "application/x-ndjson"
#: Of the line by which an answer fails, and of a refusal.
ERROR_CHARACTERS_MAX = 1024
#: How often a silent generator's client is looked at, in seconds, where nothing tells that it has left.
LOOK_S = 0.2
#: How long the end of an answer waits for an async generator that was closed.
CLOSE_S_MAX = 10

log = logging.getLogger("homing.worker")

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


class ClientGone(Exception):
    """The router does not wait for the answer any more."""


class Context:
    """What a program may ask about the request that it works on."""

    def __init__(
        self,
        request_id: str,
        has_left: Callable[[], bool],
        gone: "Optional[concurrent.futures.Future[None]]" = None,
    ) -> None:
        self.id = request_id
        self._has_left = has_left
        self._gone = gone
        self._is_stopped = False

    def is_stopped(self) -> bool:
        """Whether no client waits for the answer any more. Costs at most one look at a socket."""
        if not self._is_stopped:
            self._is_stopped = self._has_left()
        return self._is_stopped

    def _wait(self, future: "concurrent.futures.Future[Output]") -> bool:
        """Until it is done. False: the client has left first."""
        while not future.done():
            if self.is_stopped():
                return False
            if self._gone is None:
                concurrent.futures.wait([future], LOOK_S)
            else:
                both: List[Any] = [future, self._gone]
                concurrent.futures.wait(both, return_when=concurrent.futures.FIRST_COMPLETED)
        return True


class Reply(NamedTuple):
    """A whole answer."""

    status: int
    text: str
    content_type: str = "application/json"


class Exchange:
    """One request for token ids, as its plane carries it. The thread of the request calls its methods."""

    #: Done when the client leaves. None: it has to be looked at.
    gone: "Optional[concurrent.futures.Future[None]]" = None

    def has_left(self) -> bool:
        raise NotImplementedError

    def reply(self, reply: Reply) -> None:
        """A whole answer, with nothing before it."""
        raise NotImplementedError

    def head(self, content_type: str) -> None:
        """Status 200; pieces follow."""
        raise NotImplementedError

    def piece(self, data: bytes) -> None:
        """Waits while the client takes nothing. Raises ClientGone."""
        raise NotImplementedError

    def end(self) -> None:
        """The answer is whole."""
        raise NotImplementedError


class Place:
    """What one request takes of the bounds. For all threads."""

    def __init__(self, answers: "Answers", body_bytes: int) -> None:
        self._answers = answers
        self._body_bytes = body_bytes
        self._is_left = False
        self._is_over = False

    def leave(self) -> None:
        """
        Another request may begin. Called when the program is done with this one and nothing of its answer
        waits but the end, before that is sent: a router that has the end finds the place free.
        """
        with self._answers._changed:
            if self._is_left:
                return
            self._is_left = True
            self._answers._places -= 1
            self._answers._bodies_bytes -= self._body_bytes

    def end(self) -> None:
        """The answer is over, too."""
        self.leave()
        with self._answers._changed:
            if self._is_over:
                return
            self._is_over = True
            self._answers._open -= 1
            self._answers._changed.notify_all()


class Answers:
    """Requests are answered by `generate`; counts them, and keeps within the bounds. For all threads."""

    def __init__(
        self, generate: Generate, card: Dict[str, Any], requests_max: int, bodies_bytes_max: int
    ) -> None:
        self._generate = generate
        self._card = card
        self._requests_max = requests_max
        self._bodies_bytes_max = bodies_bytes_max
        self._bodies_bytes = 0
        self._changed = threading.Condition()
        self._places = 0
        self._open = 0
        self._counts = {"finished": 0, "failed": 0, "cancelled": 0}
        self._tokens = 0
        self._loop: Optional[asyncio.AbstractEventLoop] = None
        self._is_closing = False
        self._started_s = time.time()

    @property
    def open(self) -> int:
        """Requests for token ids whose answers are not over."""
        return self._open

    def refuse_all(self) -> None:
        """No further request gets a place."""
        self._is_closing = True

    def wait_idle(self, seconds: float) -> bool:
        """False: some are open still."""
        with self._changed:
            return self._changed.wait_for(lambda: self._open == 0, seconds)

    def end_loop(self, seconds: float) -> None:
        """Ends the thread of async generators, once none runs any more, or after so long."""
        loop = self._loop
        if loop is not None:
            self.wait_idle(seconds)
            loop.call_soon_threadsafe(loop.stop)

    def plain(self, method: str, path: str) -> Optional[Reply]:
        """The answer to what needs no body. None: it asks for tokens."""
        path = path.split("?", 1)[0]
        if method == "POST" and path == TOKENS_PATH:
            return None
        if method == "GET" and path == "/v1/models":
            return Reply(200, json.dumps({"object": "list", "data": [self._card]}))
        if method == "GET" and path == "/health":
            return Reply(200, '{"status":"ok"}')
        if method == "GET" and path == "/metrics":
            return Reply(200, self._metrics(), "text/plain; version=0.0.4")
        where = f"this worker takes token ids, at POST {TOKENS_PATH}"
        return refusal(404, f"cannot answer {shown(method)} {shown(path)}: {where}")

    def begin(self, body_bytes: int) -> Union[Place, Reply]:
        """The place of a request, before its body is read; or why it gets none."""
        with self._changed:
            why = None
            if self._is_closing:
                why = "this worker stops"
            elif self._places >= self._requests_max:
                why = f"{self._requests_max} are open"
            elif self._bodies_bytes + body_bytes > self._bodies_bytes_max:
                why = f"the bodies of others leave no room for {body_bytes} bytes"
            if why is not None:
                return refusal(503, f"cannot take the request: {why}")
            self._places += 1
            self._open += 1
            self._bodies_bytes += body_bytes
            return Place(self, body_bytes)

    def tokens(self, body: Union[bytes, bytearray], exchange: Exchange) -> None:
        """Generates, on the calling thread. Raises ClientGone when the client has left, and nothing else."""
        try:
            request = json.loads(body)
            token_ids: List[int] = request["token_ids"]
            if not isinstance(token_ids, list):
                raise TypeError("token_ids is no list")
            context = Context(str(request.get("request_id", "")), exchange.has_left, exchange.gone)
            left = (request.get("stop_conditions") or {}).get("max_tokens")
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            exchange.reply(refusal(400, f"cannot read the request for token ids: {error}"))
            return
        outputs: Iterator[Output] = iter(())
        outcome, tokens, has_head = "cancelled", 0, False
        try:
            outputs = self._outputs(request, context)
            for output in outputs:
                line = _line(output, left)
                tokens += len(line["token_ids"])
                left = None if left is None else left - len(line["token_ids"])
                if not has_head:
                    exchange.head(TOKENS_TYPE)
                    has_head = True
                if "finish_reason" in line:
                    outcome = "finished"
                exchange.piece(_encoded(line))
                if "finish_reason" in line:
                    break
            else:
                if not has_head:
                    exchange.head(TOKENS_TYPE)
                    has_head = True
                outcome = "finished"
                exchange.piece(_encoded({"token_ids": [], "finish_reason": "stop"}))
            outputs = _close(outputs)
            exchange.end()
        except ClientGone:
            outcome = "cancelled"
            raise
        except Exception as error:
            outcome = "failed"
            outputs = _close(outputs)
            _fail(error, exchange, has_head)
        finally:
            self._count(outcome, tokens)
            _close(outputs)

    def _count(self, outcome: str, tokens: int) -> None:
        with self._changed:
            self._counts[outcome] += 1
            self._tokens += tokens

    def _metrics(self) -> str:
        with self._changed:
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
        with self._changed:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=_run_loop, args=(self._loop,), daemon=True).start()
            return self._loop

    def _outputs(self, request: Dict[str, Any], context: Context) -> Iterator[Output]:
        given = self._generate(request, context)
        if inspect.isasyncgen(given) or hasattr(given, "__aiter__"):
            return self._of_async(given, context)  # type: ignore[arg-type]
        return iter(given)

    def _of_async(self, given: AsyncIterable[Output], context: Context) -> Iterator[Output]:
        loop = self._event_loop()
        outputs = given.__aiter__()

        stepping: "Optional[asyncio.Task[Any]]" = None

        async def step() -> Output:
            nonlocal stepping
            stepping = asyncio.current_task()
            return await outputs.__anext__()

        async def end() -> None:
            """
            A generator that runs cannot be closed: its step is cancelled, and ends, before that. Once: a
            second time would cancel what it does at its end.
            """
            if stepping is not None and not stepping.done():
                stepping.cancel()
                await asyncio.wait([stepping])
            close = getattr(outputs, "aclose", None)
            if close is not None:
                await close()

        try:
            while True:
                future = asyncio.run_coroutine_threadsafe(step(), loop)
                if not context._wait(future):
                    raise ClientGone()
                try:
                    output = future.result()
                except StopAsyncIteration:
                    return
                yield output
        finally:
            # Its place is taken until it has ended.
            concurrent.futures.wait([asyncio.run_coroutine_threadsafe(end(), loop)], CLOSE_S_MAX)


def refusal(status: int, message: str) -> Reply:
    kind = "invalid_request_error" if status < 500 else "server_error"
    error = {"message": message, "type": kind, "param": None, "code": None}
    return Reply(status, json.dumps({"error": error}))


def _fail(error: Exception, exchange: Exchange, has_head: bool) -> None:
    with contextlib.suppress(ClientGone):
        if has_head:
            exchange.piece(_encoded({"error": str(error)[:ERROR_CHARACTERS_MAX]}))
            exchange.end()
        else:
            status = error.status if isinstance(error, RefuseRequest) else 500
            exchange.reply(refusal(status, str(error)))


def _close(outputs: Iterator[Output]) -> Iterator[Output]:
    """Gives what is left of them: nothing."""
    close = getattr(outputs, "close", None)
    try:
        if close is not None:
            close()
    # Its tokens have been given already.
    except Exception:
        log.warning("a generator of tokens failed at its end", exc_info=True)
    return iter(())


def _run_loop(loop: asyncio.AbstractEventLoop) -> None:
    loop.run_forever()
    loop.close()


def _encoded(line: Dict[str, Any]) -> bytes:
    return json.dumps(line).encode() + b"\n"


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
