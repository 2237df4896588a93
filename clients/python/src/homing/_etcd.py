"""Registration at etcd: a key of the worker's own, which hangs on a lease, and so goes by itself when its
process has died (packages/transport/src/etcd/etcd-presence.ts).

    homing/homing.workers.NAMESPACE/LIFE    {"version": 1, "url": ...}; empty: it says good-bye

    no etcd --> announced --each BEAT_S--> kept alive --its lease or key is gone--> announced again
       ^                                       |
       +---------- a growing pause ------------+ no server answers

By etcd's JSON over HTTP, on a thread of its own. The server that answered last is asked first.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import logging
import os
import threading
import urllib.error
import urllib.request
from typing import Any, Dict, List, Optional, Sequence

from ._presence import card_of, subject_of_workers
from ._request_frames import BEAT_S, SILENCE_LOOKS

ANSWER_S_MAX = 2
#: All servers together: a lease that is kept alive must not end meanwhile.
CLUSTER_S_MAX = 3
ANSWER_BYTES_MAX = 2**20
RETRY_S_MIN, RETRY_S_MAX = 0.1, 5.0
#: Beats between two looks whether the key is still there.
LOOK_BEATS = 10

log = logging.getLogger("homing.worker")


class EtcdError(Exception):
    """No server answers, or what the server says."""


class EtcdPresence:
    """From `start` until `close`."""

    def __init__(self, servers: Sequence[str], namespace: str, url: str) -> None:
        self._servers = list(servers)
        self._key = f"homing/{subject_of_workers(namespace)}/{os.urandom(8).hex()}"
        self._card = card_of(url)
        self._is_closed = threading.Event()
        self._warned = ""
        # Not through a proxy of the environment.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """The last word. Without etcd the lease ends by itself."""
        self._is_closed.set()
        self._thread.join(2 * CLUSTER_S_MAX)

    def _run(self) -> None:
        lease: Optional[str] = None
        beats = 0
        retry_s = RETRY_S_MIN
        while not self._is_closed.is_set():
            pause_s = BEAT_S
            try:
                beats += 1
                if lease is None or not self._lives(lease, beats % LOOK_BEATS == 0):
                    lease = self._announce()
                self._warned = ""
                retry_s = RETRY_S_MIN
            except EtcdError as error:
                self._warn(str(error))
                pause_s = retry_s
                retry_s = min(2 * retry_s, RETRY_S_MAX)
            self._is_closed.wait(pause_s)
        if lease is not None:
            with contextlib.suppress(EtcdError):
                self._put(b"", lease)
                self._ask("lease/revoke", {"ID": lease})

    def _announce(self) -> str:
        lease = self._ask("lease/grant", {"TTL": int(SILENCE_LOOKS * BEAT_S)}).get("ID")
        if not isinstance(lease, str):
            raise EtcdError("cannot get a lease of etcd: the answer names none")
        self._put(self._card, lease)
        return lease

    def _lives(self, lease: str, looks: bool) -> bool:
        result = self._ask("lease/keepalive", {"ID": lease}).get("result")
        left = result.get("TTL", "0") if isinstance(result, dict) else "0"
        if str(left) == "0":
            return False
        return not looks or bool(self._ask("kv/range", {"key": _encoded(self._key.encode())}).get("kvs"))

    def _put(self, value: bytes, lease: str) -> None:
        key = _encoded(self._key.encode())
        self._ask("kv/put", {"key": key, "value": _encoded(value), "lease": lease})

    def _ask(self, path: str, body: Dict[str, Any]) -> Dict[str, Any]:
        """Raises EtcdError."""
        why = "no server is named"
        timeout_s = min(ANSWER_S_MAX, CLUSTER_S_MAX / len(self._servers))
        for server in list(self._servers):
            request = urllib.request.Request(
                f"{server.rstrip('/')}/v3/{path}",
                json.dumps(body).encode(),
                {"content-type": "application/json"},
                method="POST",
            )
            try:
                with self._opener.open(request, timeout=timeout_s) as reply:
                    answer = json.loads(reply.read(ANSWER_BYTES_MAX))
            except urllib.error.HTTPError as error:
                error.close()
                why = f"{server} answers {error.code} to /v3/{path}"
                continue
            except (OSError, ValueError, http.client.HTTPException) as error:
                why = f"{server}: {error}"
                continue
            if isinstance(answer, dict):
                self._servers.remove(server)
                self._servers.insert(0, server)
                return answer
            why = f"{server} answers no object to /v3/{path}"
        raise EtcdError(f"cannot use etcd: {why}")

    def _warn(self, why: str) -> None:
        """Once for each reason, until etcd answers."""
        if why != self._warned:
            self._warned = why
            log.warning("registration at etcd failed: %s", why)


def etcd_servers_of(given: Sequence[str]) -> Optional[List[str]]:
    """None: one of them is no base URL, or they are of two kinds."""
    schemes = {server.split("://", 1)[0] for server in given if isinstance(server, str)}
    is_right = len(schemes) <= 1 and schemes <= {"http", "https"}
    is_right = is_right and all(isinstance(one, str) and "@" not in one for one in given)
    return [server.rstrip("/") for server in given] if is_right else None


def _encoded(value: bytes) -> str:
    return base64.b64encode(value).decode()
