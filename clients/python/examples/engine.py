"""A small engine that a router serves exactly: it publishes what its KV cache holds.

    python engine.py [PORT]         prints the line that starts a router over it; needs homing[publisher]

The model is a toy (a token is a byte, and it says the alphabet), the cache is not: full blocks are kept by
the hash of all tokens up to their end, the least recently used go first, and every change is published.
"""

import contextlib
import itertools
import json
import sys
import threading
import time
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from homing import KvEventPublisher

MODEL, BLOCK, CACHE_BLOCKS, CONTEXT = "toy", 16, 256, 2048
publisher = KvEventPublisher(BLOCK, zmq_endpoint="tcp://127.0.0.1:*", replay_endpoint="tcp://127.0.0.1:*")
event_ids, lock = itertools.count(1), threading.Lock()
held = {}  # Blocks, the least recently used first.


def hash_of(tokens):
    """Of a block and all before it; of no other engine the same."""
    return int.from_bytes(sha256(b"toy" + str(tokens).encode()).digest()[:8], "big")


def use(tokens):
    """How many blocks of a beginning were held. All full blocks are held afterwards."""
    hashes = [hash_of(tokens[:end]) for end in range(BLOCK, len(tokens) + 1, BLOCK)]
    with lock:
        hit = next((i for i, each in enumerate(hashes) if each not in held), len(hashes))
        for each in reversed(hashes):  # The end of a prompt is older than its beginning: it goes first.
            held[each] = held.pop(each, each)
        new, parent = hashes[hit:], hashes[hit - 1] if hit else None
        stored = tokens[hit * BLOCK : len(hashes) * BLOCK]
        publisher.publish_stored(next(event_ids), stored, [BLOCK] * len(new), new, parent_hash=parent)
        gone = [held.pop(each) for each in list(held)[: max(0, len(held) - CACHE_BLOCKS)]]
        publisher.publish_removed(next(event_ids), gone)
    return hit


def reset():
    with lock:
        held.clear()
        publisher.publish_all_cleared(next(event_ids))
    return {}


def tokens_of(body):
    said = "".join(f"{message['role']}: {message['content']}\n" for message in body.get("messages", []))
    prompt = body.get("prompt", f"{said}assistant: ")
    return prompt if isinstance(prompt, list) else list(prompt.encode())


def generate(body, tokens, is_chat):
    """The object of an answer, or those of a stream."""
    cached = min(use(tokens), (len(tokens) - 1) // BLOCK) * BLOCK  # The last token is always computed.
    count = min(body.get("max_tokens") or body.get("max_completion_tokens") or 16, CONTEXT - len(tokens))
    output = [97 + i % 26 for i in range(count)]
    use(tokens + output)
    usage = {"prompt_tokens": len(tokens), "completion_tokens": count, "total_tokens": len(tokens) + count}
    usage["prompt_tokens_details"] = {"cached_tokens": cached}
    stream = body.get("stream")
    name = ("chat.completion.chunk" if stream else "chat.completion") if is_chat else "text_completion"
    head = {"id": f"toy-{time.time_ns()}", "object": name, "created": int(time.time()), "model": MODEL}

    def part(ids, reason):
        message = {"role": "assistant", "content": bytes(ids).decode()}
        said = {"delta" if stream else "message": message} if is_chat else {"text": message["content"]}
        more = {"token_ids": ids} if body.get("return_token_ids") else {}
        return {**head, "choices": [{"index": 0, "finish_reason": reason, **said, **more}]}

    if not stream:
        return {**part(output, "length"), "usage": usage}
    parts = [part([token], "length" if i + 1 == count else None) for i, token in enumerate(output)]
    wants_usage = (body.get("stream_options") or {}).get("include_usage")
    return [*parts, {**head, "choices": [], "usage": usage}] if wants_usage else parts


def answer(path, body):
    if path == "/v1/models":
        return 200, {"object": "list", "data": [{"id": MODEL, "object": "model", "max_model_len": CONTEXT}]}
    if path in ("/health", "/reset_prefix_cache"):
        return 200, {} if path == "/health" else reset()
    if path not in ("/v1/completions", "/v1/chat/completions", "/tokenize"):
        return 404, {}
    tokens = tokens_of(body)
    if not 0 < len(tokens) < CONTEXT:
        raise ValueError(f"send 1 to {CONTEXT - 1} tokens")
    if path != "/tokenize":
        return 200, generate(body, tokens, path == "/v1/chat/completions")
    return 200, {"tokens": tokens, "count": len(tokens), "max_model_len": CONTEXT}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        try:
            status, said = answer(self.path, json.loads(body or "{}"))
        except (AttributeError, KeyError, TypeError, ValueError) as fault:
            status, said = 400, {"error": {"message": str(fault), "type": "invalid_request_error"}}
        is_stream = isinstance(said, list)
        events = [f"data: {each}\n\n" for each in [*map(json.dumps, said), "[DONE]"]] if is_stream else []
        text = "".join(events) if is_stream else json.dumps(said)
        self.send_response(status)
        self.send_header("content-type", "text/event-stream" if is_stream else "application/json")
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    do_GET = do_POST

    def log_message(self, *_): ...


server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1]) if len(sys.argv) > 1 else 0), Handler)
events, replay = (each.rsplit(":", 1)[1] for each in (publisher.endpoint, publisher.replay_endpoint))
url = f"http://127.0.0.1:{server.server_port}?events={events}&replay={replay}&block_size={BLOCK}"
print(f"homing router --worker '{url}'", flush=True)
with publisher, contextlib.suppress(KeyboardInterrupt):
    server.serve_forever()
