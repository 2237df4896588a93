"""Requests for a worker over HTTP: a thread for each connection.

Bounds   `connections_max` connections; further ones are closed at once. A connection on which nothing
         comes, or which takes nothing, is closed after SILENCE_S_MAX.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Optional, Set

from ._worker_answers import Answers, ClientGone, Exchange, Place, Reply, refusal

SILENCE_S_MAX = 300


class HttpPlane:
    """Listens from `start` until `stop`; what is open then goes on until `cut`."""

    def __init__(
        self, answers: Answers, host: str, port: int, body_bytes_max: int, connections_max: int
    ) -> None:
        self._answers = answers
        self._host, self._port = host, port
        self._body_bytes_max = body_bytes_max
        self._connections_max = connections_max
        self._lock = threading.Lock()
        self._threads = 0
        self._connections: Set[socket.socket] = set()
        self._server: Optional[ThreadingHTTPServer] = None

    def start(self) -> int:
        """The port. Raises OSError."""
        server = self._make_server()
        self._server = server
        threading.Thread(target=server.serve_forever, args=(0.1,), daemon=True).start()
        return server.server_address[1]

    def stop(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()

    def cut(self) -> None:
        with self._lock:
            connections = list(self._connections)
        for connection in connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def _make_server(self) -> ThreadingHTTPServer:
        plane = self
        answers = self._answers

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            timeout = SILENCE_S_MAX

            def setup(self) -> None:
                super().setup()
                with plane._lock:
                    plane._connections.add(self.connection)

            def finish(self) -> None:
                with plane._lock:
                    plane._connections.discard(self.connection)
                with contextlib.suppress(OSError):
                    super().finish()

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
                pass

            def do_GET(self) -> None:
                self.say(answers.plain("GET", self.path) or refusal(404, "there is nothing"))

            def do_POST(self) -> None:
                length = self.headers.get("content-length", "")
                if not length.isdigit() or int(length) > plane._body_bytes_max:
                    why = f"its body must have a content-length of at most {plane._body_bytes_max}"
                    self.refuse(refusal(413 if length.isdigit() else 411, f"cannot take the request: {why}"))
                    return
                body_bytes = int(length)
                place = answers.plain("POST", self.path) or answers.begin(body_bytes)
                if isinstance(place, Reply):
                    self.refuse(place)
                    return
                try:
                    body = self.rfile.read(body_bytes)
                    if len(body) == body_bytes:
                        answers.tokens(body, _HttpExchange(self, place))
                except ClientGone:
                    self.close_connection = True
                finally:
                    place.end()

            def refuse(self, reply: Reply) -> None:
                """Its body is not read."""
                self.close_connection = True
                self.say(reply)

            def say(self, reply: Reply) -> None:
                data = reply.text.encode()
                self.send_response(reply.status)
                self.send_header("content-type", reply.content_type)
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            block_on_close = False
            request_queue_size = 128
            address_family = socket.AF_INET6 if ":" in plane._host else socket.AF_INET

            def process_request(self, request: Any, client_address: Any) -> None:
                if plane._connect():
                    super().process_request(request, client_address)
                else:
                    self.shutdown_request(request)

            def process_request_thread(self, request: Any, client_address: Any) -> None:
                try:
                    super().process_request_thread(request, client_address)
                finally:
                    plane._disconnect()

            def handle_error(self, request: Any, client_address: Any) -> None:
                """A connection that broke: its thread ends, and nothing else."""

        return Server((self._host, self._port), Handler)

    def _connect(self) -> bool:
        with self._lock:
            if self._threads >= self._connections_max:
                return False
            self._threads += 1
            return True

    def _disconnect(self) -> None:
        with self._lock:
            self._threads -= 1


class _HttpExchange(Exchange):
    """An answer on a connection: pieces are chunks."""

    def __init__(self, handler: Any, place: Place) -> None:
        self._handler = handler
        self._place = place

    def has_left(self) -> bool:
        return has_left(self._handler.connection)

    def reply(self, reply: Reply) -> None:
        self._place.leave()
        try:
            self._handler.say(reply)
        except OSError as error:
            raise ClientGone() from error

    def head(self, content_type: str) -> None:
        handler = self._handler
        handler.send_response(200)
        handler.send_header("content-type", content_type)
        handler.send_header("transfer-encoding", "chunked")
        try:
            handler.end_headers()
        except OSError as error:
            raise ClientGone() from error

    def piece(self, data: bytes) -> None:
        try:
            self._handler.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        except OSError as error:
            # The program's own faults are of the same kinds, and mean something else.
            raise ClientGone() from error

    def end(self) -> None:
        self._place.leave()
        self.piece(b"")


#: ``select`` takes no descriptor above 1,023, and ``epoll`` makes one for each look.
_Selector = getattr(selectors, "PollSelector", selectors.SelectSelector)


def has_left(connection: socket.socket) -> bool:
    """Whether the other side has closed the connection."""
    try:
        with _Selector() as selector:
            selector.register(connection, selectors.EVENT_READ)
            return bool(selector.select(0)) and connection.recv(1, socket.MSG_PEEK) == b""
    except (OSError, ValueError):
        return True
