"""Manual booking: the router chooses a worker and counts the load; the program sends the request itself,
and says when its first token has come and when it has ended.

    python manual_booking.py http://127.0.0.1:8000 MODEL
"""

import asyncio
import sys

from homing import KvRouter


async def main(endpoint, model):
    router = KvRouter(endpoint, model=model)
    tokens = list(range(1, 65))

    async def requests_there():
        loads = await router.get_potential_loads(tokens)
        return next(load["active_requests"] for load in loads if load["worker_id"] == worker_id)

    worker_id, _dp_rank, overlap = await router.best_worker(tokens, request_id="req-123")
    print(f"Worker {worker_id} holds {overlap} blocks")
    print(f"Requests there: {await requests_there()}")
    try:
        # The engine itself: it speaks the API of the router, and knows nothing of it.
        url = next(worker["url"] for worker in await router.workers() if worker["worker_id"] == worker_id)
        async with KvRouter(url, model=model) as client:
            response = await client.generate(tokens, stop_conditions={"max_tokens": 8, "ignore_eos": True})
            first = await response.__anext__()  # Get first token
            await router.mark_prefill_complete("req-123")  # After first token
            count = len(first["token_ids"])
            async for output in response:  # Continue generating
                count += len(output["token_ids"])
            print(f"Generated {count} tokens")
    finally:
        # Also when the request fails: a booking that is left counts as load until it expires.
        await router.free("req-123")  # After completion
    print(f"Requests there: {await requests_there()}")
    await router.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
