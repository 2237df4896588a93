"""GenerateStream: one request of `KvRouter.generate`, from its first token to the last."""

from __future__ import annotations

import codecs
import json
import re
from collections import deque
from typing import Any, Deque, Dict, List, NamedTuple, Optional

from ._http import Answer
from .errors import HomingError, refused, shown

# Of an event that is not whole: no token has as many.
EVENT_CHARACTERS_MAX = 1_048_576
LINE_END = re.compile("\r\n|\n|\r")


class GeneratePlace(NamedTuple):
    """Where the request went: the worker key, the id of the decision (`GET /decisions/ID`), and leading
    blocks of the prompt that the worker was believed to hold.
    """

    worker: str
    decision_id: str
    overlap_blocks: int


class GenerateUsage(NamedTuple):
    """Counts of a whole answer, in tokens, as the engine says them; None: it does not say."""

    prompt_tokens: Optional[int]
    completion_tokens: Optional[int]
    # Tokens of the prompt that it did not compute.
    cached_tokens: Optional[int]


class GenerateStream:
    """Outputs of one answer, as dicts: ``{"token_ids": [...], "text": "...", "finish_reason": ...}``.

    The token ids of all outputs are the answer. `finish_reason` is None while the answer goes on, then
    ``"length"``, ``"stop"`` or what else the engine says. The pace of the loop reaches the engine. It can be
    iterated once. Raises HomingError ``generate_failed`` when the answer breaks off, ``no_token_ids`` when
    the engine answers with text alone.
    """

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._outputs: Deque[Dict[str, Any]] = deque()
        self._text = codecs.getincrementaldecoder("utf-8")("replace")
        # The line that has not ended, and the lines of data of an event that has not.
        self._rest = ""
        self._data: List[str] = []
        self._data_characters = 0
        # A line feed behind it belongs to it.
        self._follows_carriage_return = False
        self._is_over = False
        self._failure: Optional[HomingError] = None
        #: Undefined until the engine has counted: None.
        self.usage: Optional[GenerateUsage] = None
        headers = answer.headers
        worker = headers.get("x-homing-worker")
        #: None: the router says nothing of it (its head was sent before the choice).
        self.place: Optional[GeneratePlace] = (
            None
            if worker is None
            else GeneratePlace(
                worker,
                headers.get("x-homing-decision", ""),
                _whole(headers.get("x-homing-overlap-blocks", "")),
            )
        )

    def __aiter__(self) -> "GenerateStream":
        return self

    async def __anext__(self) -> Dict[str, Any]:
        while True:
            if self._outputs:
                return self._outputs.popleft()
            if self._failure is not None:
                failure, self._failure = self._failure, None
                raise failure
            if self._is_over:
                raise StopAsyncIteration
            await self._read()

    async def aclose(self) -> None:
        """Aborts the request, at its engine too. Nothing happens if the answer is complete. Idempotent."""
        self._outputs.clear()
        self._failure = None
        self._end(None)

    async def __aenter__(self) -> "GenerateStream":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __del__(self) -> None:
        # A loop was left with `break`.
        if not self._is_over:
            self._answer.abandon()

    async def _read(self) -> None:
        try:
            piece = await self._answer.piece()
        except HomingError as error:
            self._end(refused("generate_failed", f"cannot generate: {error.message}"))
            return
        except BaseException:
            # The task was cancelled: `piece` has closed the connection.
            self._is_over = True
            raise
        if piece == b"":
            for line in (self._rest, ""):
                self._line(line)
            self._is_over = True
            return
        text = self._text.decode(piece)
        if text == "":
            return
        if self._follows_carriage_return and text[0] == "\n":
            text = text[1:]
        self._follows_carriage_return = text.endswith("\r")
        lines = LINE_END.split(text)
        lines[0] = self._rest + lines[0]
        self._rest = lines.pop()
        for line in lines:
            self._line(line)
        if len(self._rest) + self._data_characters > EVENT_CHARACTERS_MAX:
            self._end(_failed(f"an event has more than {EVENT_CHARACTERS_MAX} characters", ""))

    def _line(self, line: str) -> None:
        """An event ends with an empty line; its lines of data are one text (WHATWG event stream format)."""
        if line.startswith("data:"):
            self._data.append(line[5:])
            # With the end of the line: empty lines of data count, too.
            self._data_characters += len(line) - 4
        elif line == "" and self._data:
            data, self._data, self._data_characters = self._data, [], 0
            self._event("\n".join(data).strip())

    def _event(self, data: str) -> None:
        if self._is_over or data == "[DONE]":
            return
        try:
            chunk = json.loads(data)
        except ValueError:
            chunk = None
        if not isinstance(chunk, dict):
            self._end(_failed(shown(data), ""))
            return
        error = chunk.get("error")
        if error is not None:
            message, code = (
                (error.get("message"), error.get("code")) if isinstance(error, dict) else (error, None)
            )
            self._end(_failed(str(message), "" if code is None else str(code)))
            return
        for choice in _list(chunk.get("choices")):
            if not isinstance(choice, dict):
                continue
            ids = choice.get("token_ids")
            text = choice.get("text") or ""
            if not isinstance(ids, list) and text != "":
                worker = "" if self.place is None else f" {self.place.worker}"
                self._end(
                    refused(
                        "no_token_ids",
                        f"cannot generate: worker{worker} answers without token ids; "
                        "its engine must know return_token_ids (vLLM from 0.10.2)",
                    )
                )
                return
            self._outputs.append(
                {"token_ids": _list(ids), "text": text, "finish_reason": choice.get("finish_reason")}
            )
        usage = chunk.get("usage")
        if isinstance(usage, dict):
            details = usage.get("prompt_tokens_details")
            self.usage = GenerateUsage(
                usage.get("prompt_tokens"),
                usage.get("completion_tokens"),
                details.get("cached_tokens") if isinstance(details, dict) else None,
            )

    def _end(self, failure: Optional[HomingError]) -> None:
        """Only the first call counts. What has come before is still taken."""
        if self._is_over:
            return
        self._is_over = True
        self._failure = failure
        self._answer.close()


def _failed(why: str, code: str) -> HomingError:
    """`code`: the short one of the router or the engine."""
    return refused(code or "generate_failed", f"cannot generate: {why}")


def _list(value: Any) -> List[Any]:
    return value if isinstance(value, list) else []


def _whole(text: str) -> int:
    return int(text) if text.isdigit() else 0
