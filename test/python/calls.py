"""For tests: makes the calls that its arguments name, and prints what they return as a list of JSON."""

import asyncio
import json
import ssl
import sys
import warnings

from homing import HomingError, KvRouter

warnings.simplefilter("ignore", DeprecationWarning)


async def generate(router, token_ids, options):
    stream = await router.generate(token_ids, **options)
    outputs = [output async for output in stream]
    return {
        "tokens": [token for output in outputs for token in output["token_ids"]],
        "finish_reason": outputs[-1]["finish_reason"],
        "worker": stream.place.worker,
        "usage": stream.usage,
    }


async def leave(router, token_ids, options):
    outputs = 0
    async with await router.generate(token_ids, **options) as stream:
        async for _ in stream:
            outputs += 1
            if outputs == 3:
                break
    return {"outputs": outputs}


async def secured(url, ca, options):
    tls = ssl.create_default_context(cafile=ca) if ca else None
    async with KvRouter(url, tls=tls, **options) as router:
        best = await router.best_worker([1, 2, 3])
        stream = await router.generate([1, 2, 3], stop_conditions={"max_tokens": 4, "ignore_eos": True})
        return [best, [output async for output in stream][-1]["finish_reason"]]


async def made(url, name, *arguments):
    try:
        if name == "secured":
            return await secured(url, *arguments)
        if name == "with":
            async with KvRouter(url, **arguments[0]) as router:
                return await router.best_worker([1])
        async with KvRouter(url) as router:
            if name in ("generate", "leave"):
                return await globals()[name](router, *arguments)
            positional = [each for each in arguments if not isinstance(each, dict)]
            named = next((each for each in arguments if isinstance(each, dict)), {})
            return await getattr(router, name)(*positional, **named)
    except HomingError as error:
        return {"status": error.status, "name": error.name, "message": error.message}


async def main(url, *calls):
    print(json.dumps([await made(url, *json.loads(call)) for call in calls]))


asyncio.run(main(*sys.argv[1:]))
