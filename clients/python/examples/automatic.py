"""Automatic routing: the router does everything. It chooses the worker, books the load, sends the prompt
and gives the tokens as they come.

    python automatic.py http://127.0.0.1:8000 MODEL
"""

import asyncio
import sys

from homing import KvRouter, KvRouterConfig


async def main(endpoint, model):
    # Create KV router
    kv_router_config = KvRouterConfig()
    router = KvRouter(endpoint=endpoint, block_size=16, kv_router_config=kv_router_config)

    # Your input tokens
    token_ids = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]

    # Generate with per-request routing override
    stream = await router.generate(
        token_ids=token_ids,
        model=model,
        stop_conditions={
            "max_tokens": 20,  # Generate exactly 20 tokens
            "ignore_eos": True,  # Don't stop at EOS token
        },
        sampling_options={
            "temperature": 0.7,
            "top_p": 0.9,
        },
        router_config_override={
            "overlap_score_weight": 2.0,  # Prioritize cache hits for this request
            "router_temperature": 0.5,  # Add routing randomness
        },
    )

    # Collect generated tokens
    generated_tokens = []
    async for response in stream:
        if isinstance(response, dict) and "token_ids" in response:
            generated_tokens.extend(response["token_ids"])

    print(f"Generated {len(generated_tokens)} tokens: {generated_tokens}")
    await router.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
