"""A worker of token ids over TCP, asked as a router asks it: many requests on one connection."""

import asyncio
import importlib.util
import json
import random
import socket
import sys
import threading
import unittest
from unittest import mock

from homing import HomingError, RefuseRequest, TokenWorker, _frame_exchange, _worker_tcp
from homing._request_frames import (
    ALIVE,
    BODY,
    CANCEL,
    CREDIT,
    DATA,
    END,
    FAILED,
    HEAD,
    OPEN,
    PIECE_BYTES,
    WINDOW_BYTES,
)
from homing._tcp_wire import BYE, FRAME_BYTES_MAX, HELLO, FrameReader, Hello, TcpWire
from urllib.parse import parse_qs, urlsplit

HAS_MSGPACK = importlib.util.find_spec("msgpack") is not None
WINDOW = 2**20
ASKED = {"request_id": "r", "token_ids": [1, 2, 3], "resumed_tokens": 0, "stop_conditions": {}}


class Router:
    """One connection of a router."""

    def __init__(self, worker, hello=True):
        self.wire = TcpWire()
        self.reader = FrameReader(self.wire)
        self.reader.frame_bytes_max = FRAME_BYTES_MAX
        [door] = parse_qs(urlsplit(worker.url).query)["requests"]
        address = urlsplit(door)
        self.socket = socket.create_connection((address.hostname, address.port), timeout=60)
        self.frames = []
        if hello:
            self.send(HELLO, 0, self.hello())

    @staticmethod
    def hello(**members):
        return {
            "protocol": "homing-requests",
            "version": 1,
            "frameBytesMax": 2**20,
            "streamsMax": 4096,
            "windowBytes": 4096,
            "idleMs": 60_000,
            **members,
        }

    def raw(self, data):
        self.socket.sendall(data)

    def send(self, kind, stream, content=None):
        self.raw(self.wire.encoded(kind, stream, content))

    def open(self, stream, method="POST", path="/v1/tokens", body=None, window=WINDOW, **members):
        body = json.dumps({**ASKED, **members}).encode() if body is None else body
        self.send(OPEN, stream, {**self.opened(len(body), window), "method": method, "path": path})
        for at in range(0, len(body), 60_000):
            self.send(BODY, stream, body[at : at + 60_000])

    @staticmethod
    def opened(body_bytes, window=WINDOW):
        headers = {"content-type": "application/json", "accept": ["a", "b"]}
        words = {"method": "POST", "path": "/v1/tokens", "headers": headers}
        return {**words, "bodyBytes": body_bytes, "windowBytes": window}

    def next(self):
        """The next frame; None: the worker has closed the connection."""
        while True:
            frame = self.reader.next()
            if frame is not None:
                return frame
            try:
                data = self.socket.recv(65_536)
            except ConnectionError:
                return None
            if data == b"":
                return None
            self.reader.put(data)

    def until(self, kind, stream):
        """The next frame of this kind in this stream. Others are kept."""
        for at, frame in enumerate(self.frames):
            if (frame.kind, frame.stream) == (kind, stream):
                return self.frames.pop(at)
        while True:
            frame = self.next()
            if frame is None:
                raise AssertionError(f"the connection ended before {kind} of {stream}")
            if (frame.kind, frame.stream) == (kind, stream):
                return frame
            self.frames.append(frame)

    def answer(self, stream):
        """Status and body of a whole answer."""
        status = self.until(HEAD, stream).content["status"]
        self.until(END, stream)
        mine = [frame for frame in self.frames if (frame.kind, frame.stream) == (DATA, stream)]
        self.frames = [frame for frame in self.frames if frame not in mine]
        return status, b"".join(frame.content for frame in mine)

    def lines(self, stream):
        status, body = self.answer(stream)
        assert status == 200, body
        return [json.loads(line) for line in body.splitlines()]

    def is_cut(self):
        while self.next() is not None:
            pass
        return True


@unittest.skipUnless(HAS_MSGPACK, "msgpack is not installed")
class TcpCase(unittest.TestCase):
    def started(self, generate, **options):
        worker = TokenWorker(generate, "m", request_plane="tcp", **options).start()
        self.addCleanup(worker.close)
        return worker

    def router(self, worker, **options):
        router = Router(worker, **options)
        self.addCleanup(router.socket.close)
        return router

    def while_it_closes(self, generate, closing):
        """Its one place is taken, and the answer of stream 1 has not ended."""
        router = self.router(self.started(generate, requests_max=1))
        router.open(1)
        closing.wait(60)
        router.open(2)
        self.assertEqual(router.answer(2)[0], 503)
        self.assertNotIn((END, 1), [(frame.kind, frame.stream) for frame in router.frames])
        return router


def given(request, _):
    yield from request["token_ids"]


class TestAnswers(TcpCase):
    def test_the_worker_names_its_door_and_says_what_it_reads(self):
        worker = self.started(given, kv_blocks=7)
        query = parse_qs(urlsplit(worker.url).query)
        self.assertEqual(query["requests"], [f"tcp://{urlsplit(worker.url).netloc}"])
        self.assertEqual([query["block_size"], query["kv_blocks"]], [["16"], ["7"]])
        router = self.router(worker)
        hello = router.next()
        self.assertEqual([hello.kind, hello.stream], [HELLO, 0])
        self.assertEqual(hello.content, Router.hello(frameBytesMax=FRAME_BYTES_MAX, windowBytes=WINDOW_BYTES))

    def test_many_requests_share_a_connection(self):
        go = threading.Event()

        async def awaiting(request, _):
            for token in request["token_ids"]:
                yield token

        def plain(request, _):
            if request["token_ids"] == [0]:
                go.wait(60)
            yield from request["token_ids"]

        for generate in (plain, awaiting):
            router = self.router(self.started(generate))
            go.clear()
            for stream in range(1, 41):
                router.open(stream, token_ids=[0] if stream == 1 else [stream, stream + 1])
            # The first one is held, and holds no other.
            for stream in range(40, 1, -1):
                lines = router.lines(stream)
                self.assertEqual([each["token_ids"] for each in lines], [[stream], [stream + 1], []])
                self.assertEqual(lines[-1]["finish_reason"], "stop")
            go.set()
            self.assertEqual(router.lines(1)[0], {"token_ids": [0]})

    def test_what_needs_no_body_is_answered_at_once(self):
        go = threading.Event()

        def waiting(_request, _):
            go.wait(60)
            yield 1

        router = self.router(self.started(waiting, requests_max=1, model_path="/models/m"))
        router.open(1)
        router.open(2, method="GET", path="/v1/models", body=b"")
        status, body = router.answer(2)
        card = json.loads(body)["data"][0]
        self.assertEqual([status, card["model_input"], card["root"]], [200, "Tokens", "/models/m"])
        router.open(3, method="GET", path="/metrics", body=b"")
        self.assertIn(b"homing_worker_open_requests 1\n", router.answer(3)[1])
        router.open(4, method="GET", path="/nothing", body=b"")
        self.assertEqual(router.answer(4)[0], 404)
        go.set()
        self.assertEqual(router.lines(1)[0], {"token_ids": [1]})

    def test_a_body_comes_as_far_as_there_is_credit(self):
        router = self.router(self.started(lambda request, _: iter([len(request["token_ids"])])))
        ids = list(range(1_000_000, 1_400_000))
        body = json.dumps({**ASKED, "token_ids": ids}).encode()
        self.assertGreater(len(body), 3 * 2**20)
        router.send(OPEN, 1, Router.opened(len(body)))
        credit, at = WINDOW_BYTES, 0
        while at < len(body):
            size = min(60_000, len(body) - at, credit - PIECE_BYTES)
            if size <= 0:
                credit += router.until(CREDIT, 1).content
                continue
            router.send(BODY, 1, body[at : at + size])
            credit -= size + PIECE_BYTES
            at += size
        self.assertEqual(router.lines(1)[0], {"token_ids": [400_000]})

    def test_a_router_that_gives_no_credit_stops_the_generator(self):
        made = []
        ended = threading.Event()

        def forever(_request, _):
            try:
                while True:
                    made.append(1)
                    yield [7] * 100
            finally:
                ended.set()

        worker = self.started(forever)
        router = self.router(worker)
        line = len(json.dumps({"token_ids": [7] * 100})) + 1
        router.open(1, window=4096)
        router.open(2, method="GET", path="/health", body=b"")
        router.until(HEAD, 1)
        got = 0
        while got < 4096 - 2 * PIECE_BYTES - line:
            got += len(router.until(DATA, 1).content) + PIECE_BYTES
        self.assertLessEqual(got, 4096)
        # Others go on, and what was made beyond the credit is bounded.
        self.assertEqual(router.answer(2)[0], 200)
        bound = (4096 + _frame_exchange.AHEAD_BYTES_MAX) // line + 2
        self.assertLessEqual(len(made), bound)
        for _ in range(100):
            router.send(CREDIT, 1, 4096)
        got = 0
        while got < 100 * 4096 - 2 * PIECE_BYTES - line:
            got += len(router.until(DATA, 1).content) + PIECE_BYTES
        self.assertGreater(len(made), bound)
        router.send(CANCEL, 1)
        self.assertTrue(ended.wait(60))

    def test_no_more_tokens_than_asked_for(self):
        router = self.router(self.started(lambda *_: iter([[1, 2], [3, 4]])))
        router.open(1, stop_conditions={"max_tokens": 3})
        self.assertEqual(
            router.lines(1), [{"token_ids": [1, 2]}, {"token_ids": [3], "finish_reason": "length"}]
        )


class TestTroubles(TcpCase):
    def test_a_request_that_is_cancelled_ends_its_generator(self):
        begun, ended, seen = threading.Event(), threading.Event(), []

        async def silent(_request, context):
            import asyncio

            try:
                yield 1
                begun.set()
                await asyncio.Event().wait()
            finally:
                seen.append(context.is_stopped())
                ended.set()

        worker = self.started(silent)
        router = self.router(worker)
        router.open(1)
        router.until(DATA, 1)
        self.assertTrue(begun.wait(60))
        router.frames.clear()
        router.send(CANCEL, 1)
        self.assertTrue(ended.wait(60))
        self.assertEqual(seen, [True])
        # The connection goes on, and nothing more is said of the one that was cancelled.
        router.open(2, method="GET", path="/metrics", body=b"")
        self.assertIn(b'outcome="cancelled"} 1', self.metrics_until(router, b'outcome="cancelled"} 1'))
        self.assertFalse([frame for frame in router.frames if frame.stream == 1])

    def metrics_until(self, router, text):
        stream = 2
        while True:
            body = router.answer(stream)[1]
            if text in body:
                return body
            stream += 1
            router.open(stream, method="GET", path="/metrics", body=b"")

    def test_a_connection_that_ends_ends_all_its_generators(self):
        ended = threading.Semaphore(0)

        def forever(_request, context):
            try:
                while not context.is_stopped():
                    yield 1
            finally:
                ended.release()

        worker = self.started(forever)
        router = self.router(worker)
        for stream in (1, 2, 3):
            router.open(stream, window=4096)
        for stream in (1, 2, 3):
            router.until(DATA, stream)
        router.socket.close()
        for _ in range(3):
            self.assertTrue(ended.acquire(timeout=60))
        self.assertTrue(worker._answers.wait_idle(60))

    def test_what_fails_before_the_first_token_is_a_status_and_later_the_last_line(self):
        def failing(request, _):
            first = request["token_ids"][0]
            if first == 1:
                raise RefuseRequest("its queue is full", 503)
            if first == 2:
                raise ValueError("no weights")
            yield 1
            yield -1

        router = self.router(self.started(failing))
        for stream in (1, 2, 3):
            router.open(stream, token_ids=[stream])
        self.assertEqual(router.answer(1)[0], 503)
        self.assertEqual(router.answer(2)[0], 500)
        self.assertEqual(
            router.lines(3)[-1], {"error": "token id -1 is no whole number from 0 to 4294967295"}
        )

    def test_requests_bodies_and_heads_have_bounds(self):
        go = threading.Event()

        def waiting(_request, _):
            yield 1
            go.wait(60)

        worker = self.started(waiting, requests_max=1, body_bytes_max=5000)
        router = self.router(worker)
        router.open(1)
        router.until(DATA, 1)
        router.open(2)
        status, body = router.answer(2)
        self.assertEqual([status, b"1 are open" in body], [503, True])
        router.send(OPEN, 3, Router.opened(5001))
        self.assertEqual(router.answer(3)[0], 413)
        large = {**Router.opened(0), "headers": {"x": "y" * 70_000}}
        router.send(OPEN, 4, large)
        self.assertEqual(router.answer(4)[0], 431)
        go.set()
        router.until(END, 1)
        for stream, body, status in ((5, b"[]", 400), (6, b"{", 400), (7, b'{"token_ids": 1}', 400)):
            router.open(stream, body=body)
            self.assertEqual(router.answer(stream)[0], status)
        router.send(OPEN, 8, Router.opened(3))
        router.send(BODY, 8, b"abcd")
        self.assertEqual(router.answer(8)[0], 400)
        self.assertTrue(worker._answers.wait_idle(60))

    def test_the_place_of_a_request_is_free_when_its_answer_ends(self):
        closing, go = threading.Event(), threading.Event()

        def slow_to_close(_request, _):
            try:
                yield 1
                yield {"token_ids": [2], "finish_reason": "stop"}
            finally:
                closing.set()
                go.wait(60)

        router = self.while_it_closes(slow_to_close, closing)
        go.set()
        for stream in range(3, 50):
            router.until(END, stream - 2 if stream == 3 else stream - 1)
            router.open(stream, body=b"[]" if stream % 2 else None)
            self.assertEqual(router.until(HEAD, stream).content["status"], 400 if stream % 2 else 200)

    def test_the_place_of_an_async_generator_is_free_when_it_has_closed(self):
        closing, go = threading.Event(), threading.Event()

        async def slow_to_close(_request, _):
            try:
                yield 1
                yield {"token_ids": [2], "finish_reason": "stop"}
            finally:
                closing.set()
                await asyncio.get_running_loop().run_in_executor(None, go.wait, 60)

        router = self.while_it_closes(slow_to_close, closing)
        go.set()
        router.until(END, 1)
        router.open(3)
        self.assertEqual(router.answer(3)[0], 200)

    def test_the_place_of_an_async_generator_that_is_cancelled_is_free_when_it_has_ended(self):
        began, cleaning, go = threading.Event(), threading.Event(), threading.Event()

        async def slow_to_abort(request, _):
            if request["token_ids"] == [2]:
                yield 1
                return
            try:
                began.set()
                await asyncio.sleep(60)
                yield 1
            finally:
                cleaning.set()
                await asyncio.get_running_loop().run_in_executor(None, go.wait, 60)

        worker = self.started(slow_to_abort, requests_max=1)
        router = self.router(worker)
        router.open(1)
        began.wait(60)
        router.send(CANCEL, 1)
        cleaning.wait(60)
        router.open(2, token_ids=[2])
        self.assertEqual(router.answer(2)[0], 503)
        go.set()
        self.assertTrue(worker._answers.wait_idle(60))
        router.open(3, token_ids=[2])
        self.assertEqual(router.answer(3)[0], 200)

    def test_a_router_that_takes_nothing_keeps_the_place(self):
        router = self.router(self.started(given, requests_max=1))
        # Credit for a part of the lines alone.
        router.open(1, token_ids=list(range(500)), window=4096)
        router.until(HEAD, 1)
        router.open(2)
        self.assertEqual(router.answer(2)[0], 503)

    def test_all_requests_together_have_a_bound(self):
        go = threading.Event()

        def waiting(_request, _):
            go.wait(60)
            yield 1

        with mock.patch.object(_worker_tcp, "CALLS_MAX", 2):
            worker = self.started(waiting)
            one, other = self.router(worker), self.router(worker)
            one.open(1)
            one.open(2)
            one.open(3, method="GET", path="/health", body=b"")
            status, body = one.answer(3)
            self.assertEqual([status, b"2 are open" in body], [503, True])
            other.send(OPEN, 1, Router.opened(0))
            self.assertEqual(other.answer(1)[0], 503)
            go.set()
            for stream in (1, 2):
                self.assertEqual(one.lines(stream)[0], {"token_ids": [1]})
            other.open(2)
            self.assertEqual(other.lines(2)[0], {"token_ids": [1]})

    def test_a_body_that_stalls_is_answered_with_408(self):
        with mock.patch.object(_worker_tcp, "BEAT_S", 0.01), mock.patch.object(
            _frame_exchange, "BODY_SILENCE_S_MAX", 2
        ), mock.patch.object(_worker_tcp, "SILENCE_LOOKS", 10_000):
            worker = self.started(given)
            router = self.router(worker)
            router.send(OPEN, 1, Router.opened(10))
            self.assertEqual(router.answer(1)[0], 408)
            self.assertTrue(worker._answers.wait_idle(60))

    def test_a_worker_that_stops_finishes_what_is_open(self):
        go = threading.Event()

        def waiting(_request, _):
            yield 1
            go.wait(60)
            yield 2

        worker = self.started(waiting)
        router = self.router(worker)
        router.open(1)
        router.until(DATA, 1)
        closing = threading.Thread(target=worker.close, args=(60,))
        closing.start()
        self.assertEqual(router.until(BYE, 0).content, 1)
        router.send(OPEN, 2, Router.opened(0))
        self.assertEqual(router.until(FAILED, 2).content, ["the worker is stopping", False])
        go.set()
        router.until(END, 1)
        self.assertTrue(router.is_cut())
        closing.join()
        with self.assertRaises(OSError):
            Router(worker)

    def test_what_is_open_when_it_ends_is_cut_and_said(self):
        ended = threading.Event()

        def forever(_request, context):
            try:
                while not context.is_stopped():
                    yield 1
            finally:
                ended.set()

        worker = self.started(forever)
        router = self.router(worker)
        router.open(1, window=4096)
        router.until(DATA, 1)
        worker.close()
        self.assertEqual(router.until(FAILED, 1).content, ["the worker cut the answer", True])
        self.assertTrue(router.is_cut())
        self.assertTrue(ended.wait(60))

    def test_silence_ends_a_connection_and_a_beat_keeps_it(self):
        with mock.patch.object(_worker_tcp, "BEAT_S", 0.02):
            worker = self.started(given)
            router = self.router(worker)
            self.assertIsNone(router.until(ALIVE, 0).content)
            self.assertTrue(router.is_cut())
        with mock.patch.object(_worker_tcp, "CONNECT_S_MAX", 0.02), self.assertLogs("homing.worker"):
            worker = self.started(given)
            self.assertTrue(self.router(worker, hello=False).is_cut())

    def test_connections_have_a_bound(self):
        with mock.patch.object(_worker_tcp, "CONNECTIONS_MAX", 1):
            worker = self.started(given)
            first = self.router(worker)
            first.next()
            self.assertTrue(self.router(worker, hello=False).is_cut())
            first.open(1)
            self.assertEqual(first.lines(1)[0], {"token_ids": [1]})

    def test_a_frame_that_cannot_be_cuts_its_connection_alone(self):
        worker = self.started(given)
        good = self.router(worker)
        wire = TcpWire()
        begun = wire.hello(Hello(2**20, 10, 4096, 1000))
        opened = wire.encoded(OPEN, 1, Router.opened(10))

        def packed(text):
            return len(text).to_bytes(4, "big") + text

        for name, data in {
            "no hello": opened,
            "a hello that is too long": (4097).to_bytes(4, "big"),
            "another protocol": wire.encoded(HELLO, 0, {"protocol": "x", "version": 1}),
            "another version": wire.encoded(HELLO, 0, Router.hello(version=2)),
            "a window that cannot be": wire.encoded(HELLO, 0, Router.hello(windowBytes=1)),
            "a text for a number": wire.encoded(HELLO, 0, Router.hello(idleMs="1")),
            "two hellos": begun + begun,
            "a frame that is too long": begun + (FRAME_BYTES_MAX + 1).to_bytes(4, "big"),
            "an empty frame": begun + packed(b""),
            "no MessagePack": begun + packed(b"\xc1"),
            "a cut frame": begun + packed(b"\x93\x00"),
            "more behind it": begun + packed(b"\x93\x03\x01\xc0\xc0"),
            "no array": begun + packed(b"\x80"),
            "a stream that is true": begun + packed(b"\x93\x03\xc3\xc0"),
            "an extension": begun + packed(b"\x93\x03\x01\xd4\x01\x00"),
            "a text that is not UTF-8": begun + packed(b"\x93\x00\x01\xa1\xff"),
            "deep arrays": begun + packed(b"\x93\x00\x01" + b"\x91" * 60_000 + b"\xc0"),
            "a request that is none": begun + wire.encoded(OPEN, 1, {"method": "GET"}),
            "headers that are none": begun + wire.encoded(OPEN, 1, {**Router.opened(0), "headers": {"a": 1}}),
            "a window without room": begun + wire.encoded(OPEN, 1, Router.opened(0, window=100)),
            "a request of the connection": begun + wire.encoded(OPEN, 0, Router.opened(0)),
            "a request twice": begun + opened + opened,
            "a piece without a request": begun + wire.encoded(BODY, 1, b"x"),
            "an empty piece": begun + opened + packed(b"\x93\x01\x01\xc4\x00"),
            "a negative credit": begun + opened + wire.encoded(CREDIT, 1, -1),
            "a word of workers": begun + opened + wire.encoded(HEAD, 1, {"status": 200}),
            "an unknown kind": begun + wire.encoded(99, 1, None),
        }.items():
            with self.subTest(name), self.assertLogs("homing.worker", "WARNING"):
                router = self.router(worker, hello=False)
                router.raw(data)
                self.assertTrue(router.is_cut())
        good.open(1)
        self.assertEqual(good.lines(1)[0], {"token_ids": [1]})
        self.assertTrue(worker._answers.wait_idle(60))

    def test_whatever_strangers_send_others_are_served(self):
        seed = random.randrange(2**32)
        draw = random.Random(seed)
        worker = self.started(given)
        good = self.router(worker)
        wire = TcpWire()
        parts = [
            wire.hello(Hello(2**20, 10, 4096, 1000)),
            wire.encoded(OPEN, 1, Router.opened(40)),
            wire.encoded(BODY, 1, b"x" * 40),
            wire.encoded(CREDIT, 1, 4096),
            wire.encoded(CANCEL, 1),
            wire.encoded(ALIVE, 0),
        ]
        with self.assertLogs("homing.worker", "WARNING"):
            for number in range(200):
                data = bytearray(b"".join(draw.choices(parts, k=draw.randrange(1, 6))))
                for _ in range(draw.randrange(1, 5)):
                    data[draw.randrange(len(data))] = draw.randrange(256)
                stranger = self.router(worker, hello=False)
                try:
                    stranger.raw(bytes(data[: draw.randrange(1, len(data) + 1)]))
                    stranger.socket.shutdown(socket.SHUT_WR)
                except OSError:
                    pass
                self.assertTrue(stranger.is_cut(), f"seed {seed}, stranger {number}")
                stranger.socket.close()
        good.open(1)
        self.assertEqual(good.lines(1)[0], {"token_ids": [1]}, f"seed {seed}")
        self.assertTrue(worker._answers.wait_idle(60), f"seed {seed}")


class TestOptions(unittest.TestCase):
    def test_planes_that_cannot_be_are_named(self):
        for options, message in (
            ({"request_plane": "udp"}, "request_plane='udp': use http, tcp, nats"),
            ({"request_plane": "nats"}, "use it with nats=, the addresses of the broker"),
            ({"request_plane": "nats", "nats": ["a"]}, "port=0: use a number that no other worker"),
            ({"nats": "nats://a"}, "use a list of addresses"),
            ({"etcd": ["http://a:1", "https://b:1"]}, "etcd: use a list of URLs such as http://10.0"),
            ({"etcd": ["a:1"]}, "etcd: use a list of URLs"),
            ({"nats": ["a"], "namespace": "a.b"}, "namespace='a.b': use 1 to 64 letters"),
        ):
            with self.assertRaisesRegex(HomingError, message):
                TokenWorker(given, "m", **options)

    def test_a_missing_package_is_one_error_that_says_what_to_type(self):
        for name, extra, options in (
            ("msgpack", "tcp", {"request_plane": "tcp"}),
            ("nats", "nats", {"nats": ["127.0.0.1:9"]}),
        ):
            with mock.patch.dict(sys.modules, {name: None}), self.assertRaises(HomingError) as caught:
                TokenWorker(given, "m", **options).start()
            self.assertEqual(caught.exception.name, "packages_missing")
            self.assertRegex(caught.exception.message, rf'type: pip install "homing\[{extra}\]"')


if __name__ == "__main__":
    unittest.main()
