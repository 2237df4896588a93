"""Several routers: the program asks each without changing anything, and generates with the one whose worker
holds more of the prompt.

    python several_routers.py MODEL http://127.0.0.1:8000 http://127.0.0.1:8001
"""

import asyncio
import sys

from homing import KvRouter


async def main(model, first, second):
    router_1, router_2 = KvRouter(first, model=model), KvRouter(second, model=model)
    tokens = list(range(500, 436, -1))

    # So that the second has the prompt in its cache; its events are with its router in a moment.
    stream = await router_2.generate(tokens, stop_conditions={"max_tokens": 4, "ignore_eos": True})
    async for _ in stream:
        pass
    while not await router_2.find_matches_for_request(tokens):
        await asyncio.sleep(0.01)

    # Probe multiple routers without updating state
    worker_id_1, _dp_rank, overlap_1 = await router_1.best_worker(tokens)  # No request_id
    worker_id_2, _dp_rank, overlap_2 = await router_2.best_worker(tokens)
    print(f"Overlaps: {overlap_1} {overlap_2}")

    # Pick the best router based on results
    chosen_router, worker_id = (router_1, worker_id_1) if overlap_1 > overlap_2 else (router_2, worker_id_2)
    stream = await chosen_router.generate(
        tokens, worker_id=worker_id, stop_conditions={"max_tokens": 4, "ignore_eos": True}
    )
    count = 0
    async for output in stream:
        count += len(output["token_ids"])
    number = 1 if chosen_router is router_1 else 2
    print(f"Router {number} generated {count} tokens, {stream.usage.cached_tokens} of the prompt cached")

    # Closing one leaves the other
    await router_1.close()
    print(f"Still there: {len(await router_2.workers())}")
    await router_2.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
