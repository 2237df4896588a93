"""For tests: a worker of token ids whose answers are scripted (Script of test/system/token-world.ts).

    scripted_worker.py {"options": ..., "scripts": [...], "cached": [...]}

Of the tokens `cached`, all whole blocks are published as stored before it starts; none: it has no publisher.

Each line that comes is a command: `go`, `open`, `given`, `close SECONDS`. Each line that it prints is JSON: the
`url` first, then each `request`, and 1 for each that is `held`, `cancelled` or has `ended`; and the answers of
the commands.
"""

import asyncio
import itertools
import json
import sys
import threading

from homing import KvEventPublisher, RefuseRequest, TokenWorker

BLOCK = 16
ANY = "tcp://127.0.0.1:*"

told = threading.Lock()
#: Outputs that all generators gave.
given = 0
gates = []


def say(**word):
    with told:
        print(json.dumps(word), flush=True)


def failure(script):
    refusal = script.get("refusal")
    return RuntimeError("out of memory") if refusal is None else RefuseRequest(refusal)


def generate_of(scripts):
    async def generate(request, context):
        global given
        say(request=request)
        script = scripts[request["sampling_options"].get("seed", 0)]
        ids, piece_tokens = script["ids"], script.get("pieceTokens", 1)
        try:
            starts = range(request["resumed_tokens"], len(ids), piece_tokens)
            for at in itertools.cycle(starts) if script.get("isEndless") else starts:
                if at >= script.get("failsAt", len(ids)):
                    raise failure(script)
                if at in script.get("holdsAt", ()):
                    gate = asyncio.Event()
                    gates.append((asyncio.get_running_loop(), gate))
                    say(held=1)
                    await gate.wait()
                given += 1
                yield ids[at] if piece_tokens == 1 else ids[at : at + piece_tokens]
        finally:
            if context.is_stopped():
                say(cancelled=1)
            say(ended=1)

    return generate


def publisher_of(cached):
    publisher = KvEventPublisher(BLOCK, zmq_endpoint=ANY, replay_endpoint=ANY)
    count = len(cached) // BLOCK
    publisher.publish_stored(
        event_id=1,
        token_ids=cached[: count * BLOCK],
        num_block_tokens=[BLOCK] * count,
        block_hashes=list(range(1, count + 1)),
        parent_hash=None,
    )
    return publisher


def port_of(endpoint):
    return int(endpoint.rsplit(":", 1)[1])


def main(scripts, options, cached):
    publisher = publisher_of(cached) if cached else None
    if publisher is not None:
        options["events_port"] = port_of(publisher.endpoint)
        options["replay_port"] = port_of(publisher.replay_endpoint)
    worker = TokenWorker(generate_of(scripts), kv_cache_block_size=BLOCK, **options).start()
    say(url=worker.url)
    for line in sys.stdin:
        command, *words = line.split()
        if command == "go":
            for loop, gate in gates:
                loop.call_soon_threadsafe(gate.set)
            gates.clear()
        elif command == "open":
            say(open=worker.open_requests)
        elif command == "given":
            say(given=given)
        elif command == "close":
            threading.Thread(target=lambda: (worker.close(float(words[0])), say(closed=1))).start()
    worker.close()
    if publisher is not None:
        publisher.close()


main(**json.loads(sys.argv[1]))
