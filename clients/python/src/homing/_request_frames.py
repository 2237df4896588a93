"""Request frames: what a router and a worker say to each other about one request, whatever carries it.

    router, to the worker
      OPEN      {method, path, headers, bodyBytes, windowBytes}
      BODY      a piece of the body, within the worker's credit
      CREDIT    number of bytes more of the answer may come
      CANCEL    the router wants no answer any more
    worker, to the router
      ACCEPT    {windowBytes}: so much of the body may come
      CREDIT    number of bytes more of the body may come
      HEAD      {status, headers}
      DATA      a piece of the answer, within the router's credit
      END       the answer is whole
      FAILED    there will be no whole answer: why, and whether the request was seen
    both        ALIVE

A piece of n bytes takes n + PIECE_BYTES of credit. The same as packages/transport/src/requests/frames.ts.
"""

from __future__ import annotations

from typing import Any, Dict, NamedTuple, Optional

OPEN, BODY, CREDIT, CANCEL, ALIVE, ACCEPT, HEAD, DATA, END, FAILED = range(10)

PIECE_BYTES = 64
#: Of each body, so much is under way at most.
WINDOW_BYTES = 2**20
WINDOW_BYTES_MIN, WINDOW_BYTES_MAX = 4096, 2**30
HEADER_BYTES_MAX = 64 * 1024
#: After more looks than this in silence, one each BEAT_S, the other side counts as gone. Looks are counted,
#: not time: if our own thread stood still, the other side does not count as gone.
SILENCE_LOOKS = 5
BEAT_S = 1.0
#: ': ' and the end of the line.
_HEADER_LINE_BYTES = 4


class Sink:
    """Where a request says its frames. Of the event loop of its plane."""

    #: A larger piece is split.
    piece_bytes_max: int

    @property
    def is_blocked(self) -> bool:
        """Too much waits for the network: pieces wait for `FrameExchange.unblocked`."""
        raise NotImplementedError

    def put(self, kind: int, content: Any = None) -> None:
        raise NotImplementedError


class Opened(NamedTuple):
    """What a router says of its request."""

    method: str
    path: str
    #: As the head of a request over HTTP, about.
    head_bytes: int
    body_bytes: int
    window_bytes: int


def opened_of(content: object) -> Optional[Opened]:
    """None: it is no request."""
    if not isinstance(content, dict):
        return None
    method, path, headers = content.get("method"), content.get("path"), content.get("headers")
    if not isinstance(method, str) or not isinstance(path, str) or not path.startswith("/"):
        return None
    body_bytes: Any = content.get("bodyBytes")
    window_bytes: Any = content.get("windowBytes")
    if not is_count(body_bytes, 0, 2**53 - 1):
        return None
    if not is_count(window_bytes, WINDOW_BYTES_MIN, WINDOW_BYTES_MAX):
        return None
    header_bytes = _header_bytes(headers)
    if header_bytes is None:
        return None
    return Opened(method, path, len(method) + len(path) + header_bytes, body_bytes, window_bytes)


def is_count(value: object, low: int, high: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def head_of(status: int, content_type: str, length: Optional[int]) -> Dict[str, Any]:
    """The content of HEAD."""
    headers = {"content-type": content_type}
    if length is not None:
        headers["content-length"] = str(length)
    return {"status": status, "headers": headers}


def _header_bytes(headers: object) -> Optional[int]:
    """None: they are no headers."""
    if not isinstance(headers, dict):
        return None
    total = 0
    for name, value in headers.items():
        values = value if isinstance(value, list) else [value]
        if not isinstance(name, str) or not all(isinstance(one, str) for one in values):
            return None
        # A name without values is kept, too.
        total += sum(len(name) + len(one) + _HEADER_LINE_BYTES for one in values or [""])
    return total
