"""KV events of an engine in Python: publishes what its cache holds, answers replays and snapshots.

The wire form is docs/publisher.md. Needs pyzmq and msgpack.

    publisher = Publisher(block_size=16)
    publisher.stored(None, [hash0, hash1], tokens_of_both)    # after the blocks are allocated
    publisher.stored(hash1, [hash2], tokens)                  # the parent is the block before
    publisher.removed([hash2])
    publisher.cleared()

Run as a program it does what lines of JSON on standard input say, for tests:
["stored", parent, hashes, tokens], ["removed", hashes], ["cleared"].
"""

import collections, json, os, struct, sys, threading, time

import msgpack, zmq

END = b"\xff" * 8
PART_BLOCKS = 1024


class Publisher:
    """One per dp rank. Calls may come from any thread; answers are given by a thread of its own."""

    def __init__(self, block_size, events="tcp://*:5557", replay="tcp://*:6557", topic="", rank=0, keep=1024):
        self.block_size, self.topic, self.rank = block_size, topic.encode(), rank
        self.id = struct.unpack(">Q", os.urandom(8))[0]  # another one in each life
        self.sequence = 0  # of the next batch
        self.kept = collections.deque(maxlen=keep)  # (sequence, payload) of the last batches
        self.held = {}  # hash -> [parent, tokens, copies]
        self.lock = threading.Lock()
        context = zmq.Context.instance()
        self.pub = context.socket(zmq.PUB)
        self.router = context.socket(zmq.ROUTER)
        self.router.sndhwm = 0  # the default of 1000 would lose the rest of a long replay without a word
        self.pub.bind(events)
        self.router.bind(replay)
        threading.Thread(target=self._serve, daemon=True).start()

    def stored(self, parent, hashes, tokens):
        """`hashes[i]` is of tokens [i, i + 1) * block_size and all before them; `parent` of the block before."""
        if len(tokens) != len(hashes) * self.block_size:
            raise ValueError(f"{len(tokens)} tokens for {len(hashes)} blocks of {self.block_size}")
        with self.lock:
            before = parent
            for i, block in enumerate(hashes):
                part = tokens[i * self.block_size : (i + 1) * self.block_size]
                self.held.setdefault(block, [before, part, 0])[2] += 1
                before = block
            self._publish(self._store(parent, hashes, tokens))

    def removed(self, hashes):
        """One copy of each. Only the last one is told: routers cannot know how many an engine has."""
        gone = []
        with self.lock:
            for block in hashes:
                if block in self.held:
                    self.held[block][2] -= 1
                    if self.held[block][2] > 0:
                        continue
                    del self.held[block]
                gone.append(block)
            if gone:
                self._publish({"type": "BlockRemoved", "block_hashes": gone})

    def cleared(self):
        """The cache is empty. (Who stands beside an engine and has missed something adds "withdrawn": True.)"""
        with self.lock:
            self.held.clear()
            self._publish({"type": "AllBlocksCleared"})

    def _store(self, parent, hashes, tokens):
        return {"type": "BlockStored", "block_hashes": hashes, "parent_block_hash": parent,
                "token_ids": tokens, "block_size": self.block_size, "lora_id": None,
                "lora_name": None, "cache_salt": None}  # there are none, which is more than not saying so

    def _publish(self, event):
        payload = msgpack.packb([time.time(), [event], self.rank])
        self.kept.append((self.sequence, payload))  # first: who hears of a batch may ask for it at once
        self.pub.send_multipart([self.topic, struct.pack(">Q", self.sequence), payload])
        self.sequence += 1

    def _serve(self):
        while True:
            peer, *request = self.router.recv_multipart()
            if len(request) == 2 and request[0] == b"" and len(request[1]) == 8:
                with self.lock:
                    kept = list(self.kept)
                for sequence, payload in kept:
                    if sequence >= struct.unpack(">Q", request[1])[0]:
                        self.router.send_multipart([peer, b"", self.topic, struct.pack(">Q", sequence), payload])
                self.router.send_multipart([peer, b"", b"", END, b""])
            elif request == [b"", b"snapshot", b"\x01"]:
                with self.lock:
                    events, following = self._dump(), self.sequence
                parts = [events[i : i + PART_BLOCKS] for i in range(0, len(events), PART_BLOCKS)] or [[]]
                for part, stores in enumerate(parts):
                    header = struct.pack(">BBQQII", 1, 1, self.id, following, part, len(parts))
                    payload = msgpack.packb([time.time(), stores, self.rank])
                    self.router.send_multipart([peer, b"", b"snapshot", header, payload])

    def _dump(self):
        """A store for each copy of each block, parents first."""
        events, done = [], set()
        for block in self.held:
            path = []
            while block in self.held and block not in done:
                done.add(block)
                path.append(block)
                block = self.held[block][0]
            for known in reversed(path):
                parent, tokens, _ = self.held[known]
                events.append(self._store(parent, [known], tokens))
        return events


if __name__ == "__main__":
    one = Publisher(block_size=4, events=sys.argv[1], replay=sys.argv[2], topic="kv-events", keep=int(sys.argv[3]))
    print(one.pub.last_endpoint.decode(), one.router.last_endpoint.decode(), flush=True)
    for line in sys.stdin:
        name, *arguments = json.loads(line)
        getattr(one, name)(*arguments)
        print(one.sequence, flush=True)
