"""A worker of token ids: it says the prompt backwards, token by token.

    python token_worker.py DIRECTORY [ROUTER]     DIRECTORY has the tokenizer of the model

It prints the line that starts a router over it; with the URL of a ROUTER it registers itself there.
"""

import asyncio
import sys

from homing import TokenWorker


async def generate(request, context):
    prompt = request["token_ids"]
    # What another worker has generated of this answer is at the end of them.
    resumed = request["resumed_tokens"]
    answer = list(reversed(prompt[: len(prompt) - resumed]))
    for token in answer[resumed:]:
        await asyncio.sleep(0)
        yield {"token_ids": [token]}


def main():
    routers = sys.argv[2:3]
    with TokenWorker(generate, "mirror", sys.argv[1], context_length=4096, routers=routers) as worker:
        print(f"homing router --worker '{worker.url}'", flush=True)
        sys.stdin.read()


main()
