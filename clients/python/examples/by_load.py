"""A rule of one's own: the worker with the least prefill work, for the earliest first token. The router
tells the loads; the program chooses, and forces its choice.

    python by_load.py http://127.0.0.1:8000 MODEL
"""

import asyncio
import sys

from homing import KvRouter, KvRouterConfig


async def minimize_ttft_routing(endpoint, model):
    # Setup router
    router = KvRouter(endpoint=endpoint, block_size=16, kv_router_config=KvRouterConfig())

    # Your input tokens
    token_ids = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]

    # Get potential loads for all workers
    potential_loads = await router.get_potential_loads(token_ids, model=model)

    # Find worker with minimum prefill tokens (best for TTFT)
    best_worker = min(potential_loads, key=lambda x: x["potential_prefill_tokens"])

    print(f"Worker loads: {potential_loads}")
    print(
        f"Selected worker {best_worker['worker_id']} with {best_worker['potential_prefill_tokens']} prefill tokens"
    )

    # Route directly to the selected worker
    stream = await router.generate(
        token_ids=token_ids,
        model=model,
        worker_id=best_worker["worker_id"],  # Force routing to optimal worker
        stop_conditions={"max_tokens": 20},
    )

    # Process response
    async for response in stream:
        if isinstance(response, dict) and "token_ids" in response:
            print(f"Generated tokens: {response['token_ids']}")
    await router.close()


if __name__ == "__main__":
    asyncio.run(minimize_ttft_routing(*sys.argv[1:]))
