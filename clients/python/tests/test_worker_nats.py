"""Requests for a worker at a broker, for which a list stands in. A real broker is in test/python."""

import asyncio
import json
import random
import unittest
from unittest import mock

from homing import _worker_nats
from homing._request_frames import ACCEPT, ALIVE, BODY, CANCEL, CREDIT, DATA, END, FAILED, HEAD, OPEN
from homing._worker_answers import Answers
from homing._worker_nats import NatsPlane, subject_of

SUBJECT = "homing.requests.w"
ASKED = json.dumps({"token_ids": [1, 2]}).encode()
OPENED = {
    "method": "POST",
    "path": "/v1/tokens",
    "headers": {},
    "bodyBytes": len(ASKED),
    "windowBytes": 65_536,
}


class Link:
    """A connection to a broker that tells what is published."""

    payload_bytes_max = 4096
    is_blocked = False

    def __init__(self):
        self.heard = {}
        self.published = asyncio.Queue()
        self.inboxes = 0

    def new_inbox(self):
        self.inboxes += 1
        return f"inbox.{self.inboxes}"

    def publish(self, subject, payload, reply=""):
        if not subject.endswith(".served"):
            self.published.put_nowait((subject, payload, reply))

    async def subscribe(self, subject, heard, queue=""):
        self.heard[subject] = heard

        async def end():
            del self.heard[subject]

        return end


def payload(call, sequence, *frames, version=1):
    head = bytes((version,)) + call.to_bytes(8, "big") + sequence.to_bytes(4, "little")
    return head + b"".join(bytes((kind,)) + len(data).to_bytes(4, "little") + data for kind, data in frames)


def opened(**members):
    return (OPEN, json.dumps({**OPENED, **members}).encode())


class NatsCase(unittest.IsolatedAsyncioTestCase):
    async def plane(self, generate=lambda request, _: iter(request["token_ids"])):
        self.link = Link()
        self.answers = Answers(generate, {"id": "m"}, 4, 2**20)
        plane = NatsPlane(self.answers, SUBJECT, 2**20)
        await plane.up(self.link)
        self.addCleanup(plane.down)
        return plane

    def ask(self, data, reply="r"):
        self.link.heard[SUBJECT](data, reply)

    async def frames(self, call, until=END):
        """Frames of a call, in order, and where its router may answer."""
        frames, reply, sequence = [], "", 0
        while True:
            _, data, inbox = await asyncio.wait_for(self.link.published.get(), 60)
            said = _worker_nats._payload_of(data)
            if said.call != call.to_bytes(8, "big"):
                continue
            self.assertEqual(said.sequence, sequence)
            sequence += 1
            reply = reply or inbox
            frames += said.frames
            if until in [kind for kind, _ in said.frames]:
                return frames, reply


class TestBroker(NatsCase):
    async def test_an_answer_is_numbered_payloads(self):
        await self.plane()
        self.ask(payload(7, 0, opened(), (BODY, ASKED)))
        frames, inbox = await self.frames(7)
        self.assertEqual(frames[0], (ACCEPT, b'{"windowBytes": 1048576}'))
        self.assertEqual(json.loads(frames[1][1])["status"], 200)
        text = b"".join(data for kind, data in frames if kind == DATA)
        self.assertEqual([json.loads(line)["token_ids"] for line in text.splitlines()], [[1], [2], []])
        self.assertEqual([kind for kind, _ in frames][-1], END)
        self.assertEqual(inbox, "inbox.1")

    async def test_a_body_may_follow_and_a_lost_payload_fails_the_request(self):
        await self.plane()
        for call, sequence in ((1, 1), (2, 2)):
            self.ask(payload(call, 0, opened()))
            _, inbox = await self.frames(call, ACCEPT)
            self.link.heard[inbox](payload(call, sequence, (BODY, ASKED)), "")
        frames, _ = await self.rest(2)
        self.assertEqual(frames[-1], (FAILED, b"1 payloads of the request were lost"))
        self.assertTrue(await asyncio.to_thread(self.answers.wait_idle, 60))

    async def rest(self, call):
        frames = []
        while not frames or frames[-1][0] not in (END, FAILED):
            _, data, inbox = await asyncio.wait_for(self.link.published.get(), 60)
            said = _worker_nats._payload_of(data)
            if said.call == call.to_bytes(8, "big"):
                frames += said.frames
        return frames, inbox

    async def test_a_cancel_silence_and_the_end_of_the_connection_end_a_generator(self):
        def forever(_request, context):
            while not context.is_stopped():
                yield 1

        with mock.patch.object(_worker_nats, "BEAT_S", 0.01):
            for leave in ("cancel", "silence", "down"):
                plane = await self.plane(forever)
                self.ask(payload(1, 0, opened(), (BODY, ASKED)))
                frames, inbox = await self.frames(1, DATA)
                self.assertIn(HEAD, [kind for kind, _ in frames])
                if leave == "cancel":
                    self.link.heard[inbox](payload(1, 1, (CANCEL, b"")), "")
                elif leave == "down":
                    plane.down()
                else:
                    # It beats until it has not heard the other side for long enough.
                    while ALIVE not in [kind for kind, _ in frames]:
                        said = _worker_nats._payload_of((await self.link.published.get())[1])
                        frames = said.frames
                self.assertTrue(await asyncio.to_thread(self.answers.wait_idle, 60), leave)
                plane.down()

    async def test_what_is_no_request_is_refused_and_others_are_served(self):
        await self.plane()
        for data, why in (
            (b"", b"it is no request"),
            (payload(0, 0, version=9), b"its request plane is of version 9, not 1"),
            (payload(0, 0), b"its request cannot be read"),
            (payload(0, 1, opened(), (BODY, ASKED)), b"its request cannot be read"),
            (payload(0, 0, (OPEN, b"[]")), b"its request cannot be read"),
            (payload(0, 0, (OPEN, b"[" * 100_000)), b"its request cannot be read"),
            (payload(0, 0, opened(), (CREDIT, b"1234")), b"its request cannot be read"),
            (payload(0, 0, opened()) + b"\0", b"it is no request"),
            (payload(0, 0, opened(), (BODY, b"")), b"it is no request"),
        ):
            self.ask(data)
            self.assertEqual(await self.rest(0), ([(FAILED, why)], ""), data[:40])
        self.ask(payload(7, 0, opened(), (BODY, ASKED)))
        self.assertEqual((await self.frames(7))[0][-1][0], END)

    async def test_whatever_strangers_publish_others_are_served(self):
        seed = random.randrange(2**32)
        draw = random.Random(seed)
        await self.plane()
        parts = [opened(), (BODY, ASKED), (CREDIT, b"1234"), (CANCEL, b""), (ALIVE, b""), (99, b"x")]
        # Some of it says that it serves the subject, too.
        with self.assertLogs("homing.worker", "WARNING"):
            for _ in range(500):
                frames = draw.choices(parts, k=draw.randrange(5))
                data = bytearray(payload(draw.randrange(3), draw.randrange(2), *frames))
                for _ in range(draw.randrange(4)):
                    data[draw.randrange(len(data))] = draw.randrange(256)
                subject = draw.choice((SUBJECT, "inbox.1", f"{SUBJECT}.served"))
                self.link.heard[subject](bytes(data[: draw.randrange(len(data) + 1)]), "r")
        self.ask(payload(7, 0, opened(), (BODY, ASKED)))
        self.assertEqual((await self.frames(7))[0][-1][0], END, f"seed {seed}")

    async def test_a_worker_that_stops_is_asked_nothing_more(self):
        plane = await self.plane()
        await plane.stop()
        self.assertEqual(list(self.link.heard), ["inbox.1"])

    def test_subjects_are_those_of_the_other_language(self):
        self.assertEqual(subject_of("10.0.0.1:8000"), "homing.requests.10_0_0_1_8000")
        self.assertEqual(subject_of("[fe80::1]:80"), "homing.requests._fe80__1__80")


if __name__ == "__main__":
    unittest.main()
