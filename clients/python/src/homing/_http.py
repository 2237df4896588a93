"""HTTP/1.1 over asyncio streams: what the client needs of it, from the standard library alone.

    call -> a kept connection, or a new one -> request -> head -> body, by its length or in chunks

A connection serves one call at a time. It is kept for the next one when its answer was read to the end, and
closed otherwise: leaving an answer aborts the request at the router.

Bounds   `connections_max` calls at one time, further ones wait; of the rest of the connections those unused
         for IDLE_S are closed. A head has HEAD_BYTES_MAX bytes, a line of a chunk no more; a body that is
         read whole has the bound of its call. A call has `timeout_s` until its head has come, and for each piece.
Repeats  a kept connection may have been closed by the router at the moment of use. Calls that change nothing
         are then sent once more, others are not: they may have been done.
"""

from __future__ import annotations

import asyncio
import json
import re
import ssl
import time
from typing import Dict, List, Mapping, Optional, Tuple
from urllib.parse import urlsplit

from .errors import HomingError, refused, shown

HEAD_BYTES_MAX = 65_536
PIECE_BYTES_MAX = 65_536
CHUNK_SIZE = re.compile(rb"[0-9A-Fa-f]{1,15}")
# The router closes an idle connection after 75 s, load balancers after 60 s.
IDLE_S = 30.0


class Answer:
    """Head of an answer, and its body as it comes. It must be read to the end, or closed."""

    def __init__(
        self,
        connection: "_Connection",
        origin: "Origin",
        status: int,
        headers: Mapping[str, str],
        timeout_s: float,
    ) -> None:
        self.status = status
        self.headers = headers
        self._connection: Optional[_Connection] = connection
        self._origin = origin
        self._timeout_s = timeout_s
        self._is_chunked = "chunked" in headers.get("transfer-encoding", "").lower()
        length = headers.get("content-length")
        if length is not None and not length.isdigit():
            raise refused("bad_answer", f"cannot read the answer: its content-length is {shown(length)}")
        # Bytes that are still to come of the body, or of the chunk; None: until the connection ends.
        self._left: Optional[int] = 0 if self._is_chunked else None if length is None else int(length)
        self._is_first_chunk = True

    async def piece(self) -> bytes:
        """The next bytes of the body, at most PIECE_BYTES_MAX; empty at its end."""
        connection = self._connection
        if connection is None:
            return b""
        try:
            data = await asyncio.wait_for(self._read(connection.reader), self._timeout_s)
        except asyncio.TimeoutError:
            self.close()
            raise refused(
                "timeout", f"cannot read the answer: nothing came for {self._timeout_s:g} s"
            ) from None
        except HomingError:
            self.close()
            raise
        except (OSError, EOFError, ValueError) as error:
            self.close()
            raise refused(
                "unreachable", f"cannot read the answer: the connection ended: {shown(error)}"
            ) from error
        except BaseException:
            self.close()
            raise
        if data == b"":
            self._ended(connection)
        return data

    async def whole(self, bytes_max: int) -> bytes:
        """The body. More than `bytes_max` bytes are an error."""
        pieces: List[bytes] = []
        size = 0
        while True:
            piece = await self.piece()
            if piece == b"":
                return b"".join(pieces)
            size += len(piece)
            if size > bytes_max:
                self.close()
                raise refused("bad_answer", f"cannot read the answer: it has more than {bytes_max} bytes")
            pieces.append(piece)

    def close(self) -> None:
        """Ends the call where it is. Idempotent; needs no event loop."""
        connection = self._connection
        self._connection = None
        if connection is not None:
            self._origin.drop(connection)

    def abandon(self) -> None:
        """`close`, from whatever thread the collector runs on."""
        connection = self._connection
        if connection is not None:
            try:
                connection.loop.call_soon_threadsafe(self.close)
            except RuntimeError:
                # Its event loop has ended, and the connection with it.
                pass

    async def _read(self, reader: asyncio.StreamReader) -> bytes:
        if self._is_chunked and self._left == 0:
            if not self._is_first_chunk:
                await reader.readexactly(2)
            self._is_first_chunk = False
            line = (await reader.readuntil(b"\r\n")).split(b";")[0].strip()
            if CHUNK_SIZE.fullmatch(line) is None:
                raise refused("bad_answer", f"cannot read the answer: {shown(line)} is no size of a chunk")
            self._left = int(line, 16)
            if self._left == 0:
                while await reader.readuntil(b"\r\n") != b"\r\n":
                    pass
                return b""
        if self._left is None:
            return await reader.read(PIECE_BYTES_MAX)
        if self._left == 0:
            return b""
        data = await reader.read(min(self._left, PIECE_BYTES_MAX))
        if data == b"":
            raise EOFError("before the answer was complete")
        self._left -= len(data)
        return data

    def _ended(self, connection: "_Connection") -> None:
        self._connection = None
        keeps = self._left is not None and self.headers.get("connection", "").lower() != "close"
        if keeps:
            self._origin.keep(connection)
        else:
            self._origin.drop(connection)


class Origin:
    """One router at its URL, with the connections to it. Belongs to the event loop that first uses it."""

    def __init__(
        self, url: str, tls: Optional[ssl.SSLContext], connections_max: int, timeout_s: float
    ) -> None:
        try:
            parts = urlsplit(url)
            port = parts.port
        except (TypeError, ValueError, AttributeError) as error:
            raise refused("bad_option", f"cannot use the URL {shown(url)}: {error}") from error
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise refused(
                "bad_option", f"cannot use the URL {shown(url)}: give one such as http://127.0.0.1:8000"
            )
        if parts.query or parts.fragment or parts.username is not None:
            raise refused(
                "bad_option", f"cannot use the URL {shown(url)}: give scheme, host, port and path alone"
            )
        self.url = url
        self._host = parts.hostname
        self._port = port or (443 if parts.scheme == "https" else 80)
        self._tls = (tls or ssl.create_default_context()) if parts.scheme == "https" else None
        self._path = parts.path.rstrip("/")
        self._authority = parts.netloc
        self._timeout_s = timeout_s
        self._connections_max = connections_max
        self._loop: Optional[asyncio.AbstractEventLoop] = None
        self._slots: Optional[asyncio.Semaphore] = None
        self._idle: List[_Connection] = []
        self._open: Dict[_Connection, None] = {}

    async def call(
        self,
        method: str,
        path: str,
        body: Optional[bytes],
        headers: Mapping[str, str],
        *,
        may_repeat: bool,
    ) -> Answer:
        """Sends a request and reads the head of its answer."""
        slots = self._bind()
        head = [
            f"{method} {self._path}{path} HTTP/1.1",
            f"host: {self._authority}",
            "accept-encoding: identity",
        ]
        if body is not None:
            head += ["content-type: application/json", f"content-length: {len(body)}"]
        head += [f"{name}: {value}" for name, value in headers.items()]
        request = "\r\n".join(head + ["", ""]).encode("latin-1") + (body or b"")
        while True:
            try:
                await asyncio.wait_for(slots.acquire(), self._timeout_s)
            except asyncio.TimeoutError:
                raise refused(
                    "timeout",
                    f"cannot call {self.url}{path}: {self._connections_max} calls are under way (connections_max)",
                ) from None
            connection = self._kept()
            was_kept = connection is not None
            try:
                exchange = self._exchange(connection, slots, request)
                return await asyncio.wait_for(exchange, self._timeout_s)
            except _Gone as gone:
                slots.release()
                if was_kept and may_repeat:
                    continue
                raise refused("unreachable", f"cannot call {self.url}{path}: {gone}") from gone.__cause__
            except asyncio.TimeoutError:
                slots.release()
                raise refused(
                    "timeout", f"cannot call {self.url}{path}: no answer for {self._timeout_s:g} s"
                ) from None
            except BaseException:
                slots.release()
                raise

    def keep(self, connection: "_Connection") -> None:
        connection.idle_since_s = time.monotonic()
        self._idle.append(connection)
        connection.slots.release()

    def drop(self, connection: "_Connection") -> None:
        self._open.pop(connection, None)
        connection.abort()
        connection.slots.release()

    def close(self) -> None:
        """Ends all calls. Idempotent."""
        for connection in list(self._open):
            connection.abort()
        self._open.clear()
        self._idle.clear()

    async def _exchange(
        self, connection: Optional["_Connection"], slots: asyncio.Semaphore, request: bytes
    ) -> Answer:
        try:
            if connection is None:
                connection = await self._connect(slots)
            connection.writer.write(request)
            await connection.writer.drain()
            status = 100
            # Early heads, of a proxy or of the router itself, are no answer.
            while status < 200 and status != 101:
                status, headers = _read_head(await connection.reader.readuntil(b"\r\n\r\n"))
            return Answer(connection, self, status, headers, self._timeout_s)
        except (OSError, EOFError, asyncio.LimitOverrunError, ssl.CertificateError) as error:
            self._end(connection)
            why = "the connection ended before the answer" if isinstance(error, EOFError) else shown(error)
            raise _Gone(why or type(error).__name__) from error
        except BaseException:
            self._end(connection)
            raise

    async def _connect(self, slots: asyncio.Semaphore) -> "_Connection":
        reader, writer = await asyncio.open_connection(
            self._host, self._port, ssl=self._tls, limit=HEAD_BYTES_MAX
        )
        connection = _Connection(reader, writer, slots)
        self._open[connection] = None
        return connection

    def _end(self, connection: Optional["_Connection"]) -> None:
        if connection is None:
            return
        self._open.pop(connection, None)
        connection.abort()

    def _kept(self) -> Optional["_Connection"]:
        """The one that was used last; those that ended or are old are closed."""
        old_s = time.monotonic() - IDLE_S
        found: Optional[_Connection] = None
        kept: List[_Connection] = []
        for connection in reversed(self._idle):
            if connection.idle_since_s < old_s or connection.is_over():
                self._end(connection)
            elif found is None:
                found = connection
            else:
                kept.append(connection)
        self._idle = kept[::-1]
        return found

    def _bind(self) -> asyncio.Semaphore:
        loop = asyncio.get_running_loop()
        if self._slots is not None and self._loop is loop:
            return self._slots
        # Connections of a loop that has ended are of no use to another one.
        self._idle.clear()
        self._open.clear()
        self._loop = loop
        self._slots = asyncio.Semaphore(self._connections_max)
        return self._slots


async def json_of(answer: Answer, bytes_max: int) -> object:
    """The body of an answer as JSON; one of an error status is raised."""
    text = await answer.whole(bytes_max)
    if answer.status != 200:
        raise refusal(answer.status, text)
    try:
        return json.loads(text)
    except ValueError as error:
        raise HomingError(answer.status, "bad_answer", f"cannot read the answer: {error}") from error


def refusal(status: int, body: bytes) -> HomingError:
    """What the router, or an engine behind it, says in the form of the API."""
    text = body.decode("utf-8", "replace")
    try:
        error = json.loads(text)["error"]
        message = error["message"] if isinstance(error, dict) else error
    except (ValueError, KeyError, TypeError):
        return HomingError(status, "", text or f"the router answers {status}")
    if not isinstance(error, dict):
        return HomingError(status, "", str(message))
    code = error.get("code")
    param = error.get("param")
    return HomingError(
        status, "" if code is None else str(code), str(message), param if isinstance(param, str) else None
    )


class _Gone(Exception):
    """The connection ended before the head of an answer."""


class _Connection:
    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, slots: asyncio.Semaphore
    ) -> None:
        self.reader = reader
        self.writer = writer
        # Those of its event loop: one is held while it serves a call.
        self.slots = slots
        self.loop = asyncio.get_running_loop()
        self.idle_since_s = 0.0

    def is_over(self) -> bool:
        return self.reader.at_eof() or self.writer.transport.is_closing()

    def abort(self) -> None:
        try:
            self.writer.transport.abort()
        except RuntimeError:
            # Its event loop has ended, and the connection with it.
            pass


def _read_head(head: bytes) -> Tuple[int, Dict[str, str]]:
    lines = head.decode("latin-1").split("\r\n")
    first = lines[0].split(" ", 2)
    if len(first) < 2 or not first[0].startswith("HTTP/1.") or not first[1].isdigit():
        raise refused("bad_answer", f"cannot read the answer: {shown(lines[0])} is no HTTP")
    headers: Dict[str, str] = {}
    for line in lines[1:]:
        name, colon, value = line.partition(":")
        if colon:
            headers[name.strip().lower()] = value.strip()
    return int(first[1]), headers
