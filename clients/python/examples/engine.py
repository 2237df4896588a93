"""A small engine that a router serves exactly: it publishes what its KV cache holds.

    python engine.py [PORT]         prints the line that starts a router over it; needs homing[publisher]

The model is a toy (a token is a byte, and it says the alphabet), the cache is not: full blocks are kept by
the hash of all tokens up to their end, the least recently used go first, and every change is published.
"""

import hashlib
import json
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from homing import KvEventPublisher

MODEL, BLOCK, CACHE_BLOCKS, CONTEXT = "toy", 16, 256, 2048


class Cache:
    """Blocks that are held, the least recently used first."""

    def __init__(self, publisher):
        self.publisher, self.event_id, self.held, self.lock = publisher, 0, {}, threading.Lock()

    def hashes(self, tokens):
        """Of each full block and all before it; of no other engine the same."""
        state, found = hashlib.sha256(b"toy"), []
        for end in range(BLOCK, len(tokens) + 1, BLOCK):
            state.update(bytes(str(tokens[end - BLOCK : end]), "ascii"))
            found.append(int.from_bytes(state.digest()[:8], "big"))
        return found

    def use(self, tokens):
        """Tokens of a beginning that was held. All full blocks are held afterwards."""
        hashes = self.hashes(tokens)
        with self.lock:
            hit = next((i for i, each in enumerate(hashes) if each not in self.held), len(hashes))
            # The end of a prompt is older than its beginning: it goes first.
            for each in reversed(hashes):
                self.held.pop(each, None)
                self.held[each] = True
            new, parent = hashes[hit:], hashes[hit - 1] if hit else None
            if new:
                self.event_id += 1
                self.publisher.publish_stored(
                    event_id=self.event_id,
                    token_ids=tokens[hit * BLOCK : len(hashes) * BLOCK],
                    num_block_tokens=[BLOCK] * len(new),
                    block_hashes=new,
                    parent_hash=parent,
                )
            gone = list(self.held)[: max(0, len(self.held) - CACHE_BLOCKS)]
            if gone:
                for each in gone:
                    del self.held[each]
                self.event_id += 1
                self.publisher.publish_removed(event_id=self.event_id, block_hashes=gone)
        # The last token of a prompt is always computed.
        return min(hit, (len(tokens) - 1) // BLOCK) * BLOCK


def tokens_of(body):
    prompt = body.get("prompt")
    if isinstance(prompt, list):
        return prompt
    if prompt is None:
        lines = [f"{message['role']}: {message['content']}\n" for message in body["messages"]]
        prompt = "".join(lines) + "assistant: "
    return list(prompt.encode())


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        model = {"id": MODEL, "object": "model", "max_model_len": CONTEXT}
        known = {"/health": {}, "/v1/models": {"object": "list", "data": [model]}}
        self.answer(200, known[self.path]) if self.path in known else self.answer(404, {})

    def do_POST(self):
        try:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            tokens = tokens_of(body)
            if not 0 < len(tokens) < CONTEXT:
                raise ValueError(f"the prompt has {len(tokens)} tokens: send 1 to {CONTEXT - 1}")
        except (KeyError, TypeError, ValueError) as error:
            return self.answer(400, {"error": {"message": str(error), "type": "invalid_request_error"}})
        if self.path == "/tokenize":
            return self.answer(200, {"tokens": tokens, "count": len(tokens), "max_model_len": CONTEXT})
        if self.path not in ("/v1/completions", "/v1/chat/completions"):
            return self.answer(404, {})
        self.generate(body, tokens, is_chat=self.path.startswith("/v1/chat"))

    def generate(self, body, tokens, is_chat):
        cached = cache.use(tokens)
        count = min(body.get("max_tokens") or body.get("max_completion_tokens") or 16, CONTEXT - len(tokens))
        output = [97 + i % 26 for i in range(count)]
        cache.use(tokens + output)
        usage = {
            "prompt_tokens": len(tokens),
            "completion_tokens": count,
            "total_tokens": len(tokens) + count,
            "prompt_tokens_details": {"cached_tokens": cached},
        }
        name = "chat.completion" if is_chat else "text_completion"
        head = {"id": f"toy-{time.time_ns()}", "created": int(time.time()), "model": MODEL}

        def choice(ids, reason, part):
            text = {"text": bytes(ids).decode()}
            if is_chat:
                text = {part: {"role": "assistant", "content": text["text"]}}
            ids = {"token_ids": ids} if body.get("return_token_ids") else {}
            return [{"index": 0, "finish_reason": reason, **text, **ids}]

        if not body.get("stream"):
            choices = choice(output, "length", "message")
            return self.answer(200, {**head, "object": name, "choices": choices, "usage": usage})
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        head["object"] = name + (".chunk" if is_chat else "")
        for i, token in enumerate(output):
            reason = "length" if i + 1 == count else None
            self.event({**head, "choices": choice([token], reason, "delta")})
        if (body.get("stream_options") or {}).get("include_usage"):
            self.event({**head, "choices": [], "usage": usage})
        self.wfile.write(b"data: [DONE]\n\n")

    def event(self, data):
        self.wfile.write(b"data: %s\n\n" % json.dumps(data).encode())

    def answer(self, status, data):
        body = json.dumps(data).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1]) if len(sys.argv) > 1 else 0), Handler)
    with KvEventPublisher(
        BLOCK, zmq_endpoint="tcp://127.0.0.1:*", replay_endpoint="tcp://127.0.0.1:*"
    ) as publisher:
        cache = Cache(publisher)
        events, replay = (each.rsplit(":", 1)[1] for each in (publisher.endpoint, publisher.replay_endpoint))
        url = f"http://127.0.0.1:{server.server_port}?events={events}&replay={replay}&block_size={BLOCK}"
        print(f"homing router --worker '{url}'", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            pass
