"""Registration at a broker: routers that watch the namespace have the worker in their fleets, as long as it
says so.

    homing.workers.NAMESPACE.present   {"version": 1, "url": ...}: each BEAT_S, at each connection, and when
                                       asked; and a last word
    homing.workers.NAMESPACE.hello     a router asks who is there

A payload is VERSION, kind, eight bytes of a life, the number of the connection (4 bytes, little-endian), then
of a message the length (4 bytes, little-endian) and the bytes of its frame
(packages/transport/src/nats/payload.ts).
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from typing import Optional

from ._broker import BrokerLink
from ._request_frames import BEAT_S

_VERSION = 1
_MESSAGE, _BYE = 0, 4
_NAMESPACE = re.compile(r"[A-Za-z0-9_-]{1,64}")


def is_namespace(text: object) -> bool:
    return isinstance(text, str) and _NAMESPACE.fullmatch(text) is not None


def subject_of_workers(namespace: str) -> str:
    return f"homing.workers.{namespace}"


def card_of(url: str) -> bytes:
    """What routers are told of a worker."""
    return json.dumps({"version": _VERSION, "url": url}).encode()


class Presence:
    """A user of a Broker."""

    def __init__(self, namespace: str, url: str) -> None:
        self._subject = subject_of_workers(namespace)
        self._card = card_of(url)
        self._life = os.urandom(8)
        self._connection = 0
        self._link: Optional[BrokerLink] = None
        self._timer: Optional[asyncio.TimerHandle] = None
        self._is_closed = False

    async def up(self, link: BrokerLink) -> None:
        if self._is_closed:
            return
        self._link = link
        self._connection += 1
        await link.subscribe(f"{self._subject}.hello", lambda *_: self._beat())
        self._go_on()

    def down(self) -> None:
        self._link = None
        if self._timer is not None:
            self._timer.cancel()

    def drained(self) -> None:
        pass

    def close(self) -> None:
        """The last word."""
        link = self._link
        self._is_closed = True
        self.down()
        if link is not None:
            link.publish(f"{self._subject}.present", self._head(_BYE))

    def _go_on(self) -> None:
        self._beat()
        self._timer = asyncio.get_running_loop().call_later(BEAT_S, self._go_on)

    def _beat(self) -> None:
        if self._link is not None and not self._is_closed:
            card = self._card
            payload = self._head(_MESSAGE) + len(card).to_bytes(4, "little") + card
            self._link.publish(f"{self._subject}.present", payload)

    def _head(self, kind: int) -> bytes:
        return bytes((_VERSION, kind)) + self._life + self._connection.to_bytes(4, "little")
