"""A worker of token ids: it says the prompt backwards, token by token.

    python token_worker.py DIRECTORY [ROUTER]     DIRECTORY has the tokenizer of the model
        --request-plane tcp                       all requests of a router share one connection
        --request-plane nats --nats nats://HOST:4222 --port 9000

It prints the line that starts a router over it. With the URL of a ROUTER it registers itself there, with --nats
at that broker.
"""

import argparse
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
    parser = argparse.ArgumentParser()
    parser.add_argument("directory")
    parser.add_argument("router", nargs="?")
    parser.add_argument("--request-plane", default="http")
    parser.add_argument("--nats", action="append", default=[])
    parser.add_argument("--port", type=int, default=0)
    given = parser.parse_args()
    worker = TokenWorker(
        generate,
        "mirror",
        given.directory,
        context_length=4096,
        request_plane=given.request_plane,
        port=given.port,
        routers=[given.router] if given.router else [],
        nats=given.nats,
    )
    with worker:
        plane = "" if given.request_plane == "http" else f" --request-plane {given.request_plane}"
        broker = "".join(f" --nats {address}" for address in given.nats)
        known = broker or f" --worker '{worker.url}'"
        print(f"homing router{known}{plane}", flush=True)
        sys.stdin.read()


main()
