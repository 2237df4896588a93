#!/usr/bin/env python3
"""vLLM's own block pool, hashing, eviction and event publisher, without a model.

A request goes through vllm.v1.core.kv_cache_manager as a scheduler would take it there, and what each step stored and evicted
goes out through vllm.distributed.kv_events.ZmqEventPublisher. The process forks a child per engine, so that one can be killed and
another started without the seconds that it takes to load vLLM:

    stdin   one JSON command per line, with an "id" that comes back with its answer
    stdout  one JSON answer per line

    {"op":"start","events":5557,"replay":6557 or null,"block":16,"blocks":40,"buffer":10000}   forks -> {"pid":…}
    {"op":"run","tokens":[…],"out":3}   a request       -> {"hit":tokens that were cached,"sequence":next batch}
    {"op":"burst","batches":3000}       requests of one block until so many batches were published
    {"op":"clear"}                      the clear leaves with the next step's batch, as in vLLM
    {"op":"held"}                       -> {"blocks":[hashes in hexadecimal]}
    {"op":"neighbour","events":5558,"replay":6558,"rank":1,"batches":300}   another pool and publisher, which has a request of its own
                                        with every run from then on

When a child ends the parent says {"ended":pid}, and takes the next start. Written for vLLM 0.32; its inner modules are no stable API.
"""

import json
import logging
import os
import random
import sys
import time

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
logging.disable(logging.WARNING)
ANSWERS = os.dup(1)
os.dup2(2, 1)  # the library prints to standard output

import torch  # noqa: E402
from vllm.distributed.kv_events import KVEventBatch, ZmqEventPublisher  # noqa: E402
from vllm.sampling_params import SamplingParams  # noqa: E402
from vllm.utils.hashing import get_hash_fn_by_name  # noqa: E402
from vllm.v1.core.kv_cache_manager import KVCacheManager  # noqa: E402
from vllm.v1.core.kv_cache_utils import get_block_hash, get_request_block_hasher, init_none_hash  # noqa: E402
from vllm.v1.core.kv_cache_utils import maybe_convert_block_hash  # noqa: E402
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec  # noqa: E402
from vllm.v1.request import Request  # noqa: E402

HASH = get_hash_fn_by_name("sha256_cbor")
init_none_hash(HASH)


def say(answer):
    os.write(ANSWERS, (json.dumps(answer) + "\n").encode())


def lines():
    """Byte by byte: what is not read belongs to the next reader of the pipe."""
    line = bytearray()
    while byte := os.read(0, 1):
        if byte == b"\n":
            yield json.loads(line)
            line.clear()
        else:
            line += byte


class Engine:
    def __init__(self, given):
        block = given["block"]
        spec = FullAttentionSpec(block_size=block, num_kv_heads=1, head_size=8, dtype=torch.float32)
        self.hasher = get_request_block_hasher(block, HASH)
        self.manager = KVCacheManager(
            KVCacheConfig(
                num_blocks=given["blocks"],
                kv_cache_tensors=[],
                kv_cache_groups=[KVCacheGroupSpec(["full"], spec)],
            ),
            max_model_len=1 << 20,
            scheduler_block_size=block,
            hash_block_size=block,
            enable_caching=True,
            enable_kv_cache_events=True,
        )
        replay = given["replay"]
        rank = given.get("rank", 0)
        # The publisher of rank r adds r to both ports.
        self.publisher = ZmqEventPublisher(
            rank,
            endpoint=f"tcp://*:{given['events'] - rank}",
            replay_endpoint=None if replay is None else f"tcp://*:{replay - rank}",
            buffer_steps=given["buffer"],
        )
        self.given = given
        self.neighbour = None
        self.random = random.Random(given.get("seed", 1))
        self.block = block
        self.sequence = 0
        self.requests = 0

    def publish(self):
        events = self.manager.take_events()
        if events:
            self.publisher.publish(KVEventBatch(ts=time.time(), events=events))
            self.sequence += 1

    def run(self, tokens, out):
        self.requests += 1
        request = Request(
            f"r{self.requests}", tokens, SamplingParams(max_tokens=1 << 20), None, block_hasher=self.hasher
        )
        manager = self.manager
        manager.new_step_starts()
        blocks, hit, *_ = manager.get_computed_blocks(request)
        fits = manager.allocate_slots(
            request, len(tokens) - hit, num_new_computed_tokens=hit, new_computed_blocks=blocks
        )
        if fits is None:
            raise ValueError("the prompt does not fit into the cache")
        request.num_computed_tokens = len(tokens)
        self.publish()
        for _ in range(out):
            request.append_output_token_ids(self.random.randrange(10, 2000))
            manager.new_step_starts()
            if manager.allocate_slots(request, 1) is None:
                break
            request.num_computed_tokens += 1
            self.publish()
        manager.free(request)
        self.publish()
        if self.neighbour is not None:
            self.neighbour.run([self.random.randrange(10, 2000) for _ in range(3 * self.block)], 1)
        return {"hit": hit, "sequence": self.sequence}

    def burst(self, batches):
        end = self.sequence + batches
        while self.sequence < end:
            self.run([self.random.randrange(10, 2000) for _ in range(self.block + 1)], 0)
        return {"sequence": self.sequence}

    def begin_neighbour(self, given):
        self.neighbour = Engine({**self.given, **given, "seed": 2})
        return self.neighbour.burst(given["batches"])

    def clear(self):
        return {"success": self.manager.reset_prefix_cache()}

    def held(self):
        known = self.manager.block_pool.cached_block_hash_to_block._cache
        return {"blocks": [f"{maybe_convert_block_hash(get_block_hash(key)):016x}" for key in known]}


def serve(given):
    engine = Engine(given)
    say({"id": given["id"], "pid": os.getpid()})
    operations = {
        "run": lambda command: engine.run(command["tokens"], command["out"]),
        "burst": lambda command: engine.burst(command["batches"]),
        "clear": lambda _: engine.clear(),
        "neighbour": engine.begin_neighbour,
        "held": lambda _: engine.held(),
    }
    for command in lines():
        try:
            answer = operations[command["op"]](command)
        except Exception as error:  # noqa: BLE001
            answer = {"error": f"{type(error).__name__}: {error}"}
        say({"id": command["id"], **answer})


say({"ready": True})
for command in lines():
    if command["op"] != "start":
        say({"id": command["id"], "error": "no engine is running"})
        continue
    child = os.fork()
    if child == 0:
        serve(command)
        os._exit(0)
    os.waitpid(child, 0)
    say({"ended": child})
