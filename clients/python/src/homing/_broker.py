"""A broker of NATS, by the package nats-py: one connection for all that a worker does there, made again
whenever it ends. Of an event loop.

The package's own reconnection is off: it would hide that messages were lost meanwhile.

Bounds   while BLOCKED_BYTES wait in this process, pieces of answers wait, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections import deque
from typing import Any, Awaitable, Callable, Deque, List, Optional, Protocol, Sequence, Tuple

from ._packages import needed

RECONNECT_S_MIN, RECONNECT_S_MAX = 0.1, 5.0
CONNECT_S_MAX = 5
PING_S = 5
BLOCKED_BYTES = 256 * 1024
#: For the last words to go out.
FLUSH_S_MAX = 2
LOOK_S = 0.01

log = logging.getLogger("homing.worker")


class BrokerUser(Protocol):
    async def up(self, link: "BrokerLink") -> None:
        """There is a connection."""

    def down(self) -> None:
        """It has ended; nothing more of it is told."""

    def drained(self) -> None:
        """Pieces may go on."""


class BrokerLink:
    """One connection."""

    def __init__(self, connection: Any, drained: Callable[[], None]) -> None:
        self._connection = connection
        self._drained = drained
        self._queue: Deque[Tuple[str, bytes, str]] = deque()
        self._queued_bytes = 0
        self._has_blocked = False
        self._wake = asyncio.Event()
        self.has_ended = False
        #: Larger payloads are not taken.
        self.payload_bytes_max = int(connection.max_payload)

    @property
    def is_blocked(self) -> bool:
        if self._queued_bytes < BLOCKED_BYTES:
            return False
        self._has_blocked = True
        return True

    def new_inbox(self) -> str:
        """A subject that no other client uses."""
        return str(self._connection.new_inbox())

    def publish(self, subject: str, payload: bytes, reply: str = "") -> None:
        """In order; what finds the connection ended is lost."""
        if self.has_ended:
            return
        self._queue.append((subject, payload, reply))
        self._queued_bytes += len(payload)
        self._wake.set()

    async def subscribe(
        self, subject: str, heard: Callable[[bytes, str], None], queue: str = ""
    ) -> Callable[[], Awaitable[None]]:
        """`heard(payload, reply)`. Of all subscribers with one `queue`, each message goes to one.

        Gives how to end it.
        """

        async def told(message: Any) -> None:
            if not self.has_ended:
                heard(message.data, message.reply)

        subscription = await self._connection.subscribe(subject, queue=queue, cb=told)

        async def unsubscribe() -> None:
            # The connection may have ended.
            with contextlib.suppress(Exception):
                await subscription.unsubscribe()

        return unsubscribe

    async def send(self) -> None:
        """Publishes what is queued, until it is cancelled or the connection ends."""
        while True:
            while self._queue:
                subject, payload, reply = self._queue.popleft()
                await self._connection.publish(subject, payload, reply=reply)
                self._queued_bytes -= len(payload)
                if self._has_blocked and self._queued_bytes < BLOCKED_BYTES // 2:
                    self._has_blocked = False
                    self._drained()
            self._wake.clear()
            await self._wake.wait()

    async def flush(self) -> None:
        """Until the broker has what was published, or FLUSH_S_MAX."""
        with contextlib.suppress(Exception):
            while self._queue and not self.has_ended:
                await asyncio.sleep(LOOK_S)
            await self._connection.flush(FLUSH_S_MAX)


class Broker:
    """Raises HomingError `packages_missing`. `users` are told of each connection, from `run` on."""

    def __init__(self, servers: Sequence[str], users: Sequence[BrokerUser]) -> None:
        self._nats = needed("nats", "nats-py", "reach a NATS broker", "nats", "nats-py")
        self._servers = list(servers)
        self._users = list(users)
        self._link: Optional[BrokerLink] = None
        self._warned = ""

    async def run(self) -> None:
        """Until it is cancelled."""
        pause_s = RECONNECT_S_MIN
        while True:
            ended: "asyncio.Future[None]" = asyncio.get_running_loop().create_future()
            try:
                connection = await self._connect(ended)
            except asyncio.CancelledError:
                raise
            # Those of sockets, of the package, and of TLS.
            except Exception as error:
                self._warn(f"{type(error).__name__}: {error}")
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, RECONNECT_S_MAX)
                continue
            pause_s = RECONNECT_S_MIN
            self._warned = ""
            await self._session(connection, ended)

    async def flush(self) -> None:
        if self._link is not None:
            await self._link.flush()

    async def _connect(self, ended: "asyncio.Future[None]") -> Any:
        async def closed() -> None:
            if not ended.done():
                ended.set_result(None)

        async def failed(error: Exception) -> None:
            self._warn(f"{type(error).__name__}: {error}")

        return await self._nats.connect(
            servers=self._servers,
            name="homing worker",
            allow_reconnect=False,
            connect_timeout=CONNECT_S_MAX,
            ping_interval=PING_S,
            max_outstanding_pings=2,
            closed_cb=closed,
            error_cb=failed,
        )

    async def _session(self, connection: Any, ended: "asyncio.Future[None]") -> None:
        link = BrokerLink(connection, self._drained)
        sending = asyncio.ensure_future(link.send())
        up = asyncio.ensure_future(self._up(link))
        self._link = link
        try:
            await asyncio.wait([ended, sending], return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._link = None
            link.has_ended = True
            for task in (up, sending):
                task.cancel()
            await asyncio.gather(up, sending, return_exceptions=True)
            for user in self._users:
                user.down()
            with contextlib.suppress(Exception):
                await connection.close()

    async def _up(self, link: BrokerLink) -> None:
        try:
            for user in self._users:
                await user.up(link)
        # The package's own; where the connection has ended, that is told.
        except Exception as error:
            if not link.has_ended:
                self._warn(f"{type(error).__name__}: {error}")

    def _drained(self) -> None:
        for user in self._users:
            user.drained()

    def _warn(self, why: str) -> None:
        """Once for each reason, until there is a connection."""
        if why != self._warned:
            self._warned = why
            log.warning("NATS connection to %s failed: %s", ",".join(map(_without_login, self._servers)), why)


def _without_login(server: str) -> str:
    return re.sub("//.*@", "//", server)


def servers_of(given: Sequence[str]) -> List[str]:
    return [server if "://" in server else f"nats://{server}" for server in given]
