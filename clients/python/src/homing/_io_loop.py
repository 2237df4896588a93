"""An event loop on a thread of its own, for the sockets of a worker."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from typing import Any, Callable, Coroutine, TypeVar

T = TypeVar("T")


class IoLoop:
    """Runs from the first use until `close`."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, work: "Callable[[], Coroutine[Any, Any, T]]", seconds: float) -> T:
        """What `work` gives, from another thread. Raises concurrent.futures.TimeoutError after so long."""
        future = asyncio.run_coroutine_threadsafe(work(), self.loop)
        try:
            return future.result(seconds)
        except concurrent.futures.TimeoutError:
            future.cancel()
            raise

    def close(self) -> None:
        """Ends the tasks that are left, and the thread."""
        if self.loop.is_closed():
            return
        self.loop.call_soon_threadsafe(self._cancel_all)
        self._thread.join()
        self.loop.close()

    def _cancel_all(self) -> None:
        tasks = asyncio.all_tasks(self.loop)
        for task in tasks:
            task.cancel()
        ended = asyncio.gather(*tasks, return_exceptions=True) if tasks else None
        if ended is None:
            self.loop.stop()
        else:
            ended.add_done_callback(lambda _: self.loop.stop())
