"""A worker of token ids over real sockets, asked as a router asks it."""

import asyncio
import fcntl
import http.client
import json
import resource
import select
import socket
import threading
import time
import unittest
from urllib.parse import urlsplit

from homing import HomingError, RefuseRequest, TokenWorker
from homing._worker_http import has_left
from homing.worker import Context


def _closed(connections, count):
    """Those that the other side has closed: waits for `count` of them, a minute at most."""
    closed, end = set(), time.monotonic() + 60
    while len(closed) < count and time.monotonic() < end:
        for one in select.select([one for one in connections if one not in closed], [], [], 1)[0]:
            try:
                is_over = one.recv(1) == b""
            except ConnectionError:
                is_over = True
            if is_over:
                closed.add(one)
    return closed


class WorkerCase(unittest.TestCase):
    def started(self, generate, **options):
        worker = TokenWorker(generate, "m", **options).start()
        self.addCleanup(worker.close)
        return worker

    def connection(self, worker):
        connection = http.client.HTTPConnection(urlsplit(worker.url).netloc, timeout=60)
        self.addCleanup(connection.close)
        return connection

    def ask(self, worker, connection=None, **members):
        body = {"request_id": "r", "token_ids": [1, 2, 3], "resumed_tokens": 0, "stop_conditions": {}, **members}
        connection = connection or self.connection(worker)
        connection.request("POST", "/v1/tokens", json.dumps(body))
        return connection.getresponse()

    def lines(self, response):
        return [json.loads(line) for line in response.read().splitlines()]


class TestAnswers(WorkerCase):
    def test_generators_of_both_kinds_give_the_same_lines(self):
        def plain(request, _):
            yield 5
            yield [6, 7]
            yield {"token_ids": [8], "cached_tokens": 2}

        async def awaiting(request, context):
            for output in plain(request, context):
                await asyncio.sleep(0)
                yield output

        for generate in (plain, awaiting):
            response = self.ask(self.started(generate))
            self.assertEqual(response.status, 200)
            self.assertEqual(
                self.lines(response),
                [
                    {"token_ids": [5]},
                    {"token_ids": [6, 7]},
                    {"token_ids": [8], "cached_tokens": 2},
                    {"token_ids": [], "finish_reason": "stop"},
                ],
            )

    def test_no_more_tokens_than_asked_for(self):
        ended = threading.Event()

        def forever(request, _):
            try:
                while True:
                    yield [1, 2]
            finally:
                ended.set()

        lines = self.lines(self.ask(self.started(forever), stop_conditions={"max_tokens": 3}))
        self.assertEqual(lines, [{"token_ids": [1, 2]}, {"token_ids": [1], "finish_reason": "length"}])
        self.assertTrue(ended.wait(60))

    def test_one_connection_takes_one_request_after_the_other(self):
        def generate(request, _):
            yield request["token_ids"]

        worker = self.started(generate)
        connection = self.connection(worker)
        for _ in range(3):
            self.assertEqual(self.lines(self.ask(worker, connection))[0], {"token_ids": [1, 2, 3]})

    def test_the_model_says_that_it_takes_token_ids(self):
        worker = self.started(lambda *_: iter(()), model_path="/models/m", context_length=99)
        connection = self.connection(worker)
        connection.request("GET", "/v1/models")
        [card] = json.loads(connection.getresponse().read())["data"]
        self.assertEqual(
            [card[name] for name in ("id", "model_input", "root", "max_model_len")], ["m", "Tokens", "/models/m", 99]
        )


class TestTroubles(WorkerCase):
    def test_what_fails_before_the_first_token_is_a_status(self):
        def failing(request, _):
            if request["token_ids"][0] == 1:
                raise RefuseRequest("its queue is full", 503)
            raise ValueError("no weights")
            yield 1

        worker = self.started(failing)
        response = self.ask(worker)
        self.assertEqual([response.status, "its queue is full" in response.read().decode()], [503, True])
        response = self.ask(worker, token_ids=[2])
        self.assertEqual([response.status, "no weights" in response.read().decode()], [500, True])

    def test_a_program_that_cannot_connect_has_failed(self):
        def plain(request, _):
            raise ConnectionRefusedError("no engine")
            yield 1

        async def awaiting(request, _):
            raise asyncio.TimeoutError("no engine")
            yield 1

        for generate in (plain, awaiting):
            response = self.ask(self.started(generate))
            self.assertEqual([response.status, "no engine" in response.read().decode()], [500, True])

    def test_clients_are_seen_at_descriptors_above_1023(self):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if hard < 1200:
            self.skipTest("few descriptors are allowed")
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 1200), hard))
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        near, far = socket.socketpair()
        self.addCleanup(far.close)
        high = socket.socket(fileno=fcntl.fcntl(near.detach(), fcntl.F_DUPFD, 1100))
        self.addCleanup(high.close)
        context = Context("r", lambda: has_left(high))
        self.assertFalse(context.is_stopped())
        far.close()
        self.assertTrue(context.is_stopped())

    def test_what_fails_later_is_the_last_line(self):
        def failing(request, _):
            yield 1
            yield -1

        last = self.lines(self.ask(self.started(failing)))[-1]
        self.assertEqual(last, {"error": "token id -1 is no whole number from 0 to 4294967295"})

    def test_a_client_that_leaves_ends_a_silent_generator(self):
        ended = threading.Event()
        begun = threading.Event()

        async def silent(request, context):
            try:
                yield 1
                begun.set()
                await asyncio.Event().wait()
            finally:
                ended.set()

        worker = self.started(silent)
        connection = self.connection(worker)
        response = self.ask(worker, connection)
        self.assertEqual(response.readline(), b'{"token_ids": [1]}\n')
        self.assertTrue(begun.wait(60))
        response.close()
        connection.close()
        self.assertTrue(ended.wait(60))

    def test_requests_past_the_bound_are_refused(self):
        go = threading.Event()

        def waiting(request, _):
            yield 1
            go.wait(60)

        worker = self.started(waiting, requests_max=1)
        first = self.ask(worker)
        self.assertEqual(first.readline(), b'{"token_ids": [1]}\n')
        self.assertEqual(self.ask(worker).status, 503)
        go.set()
        first.read()

    def test_bodies_together_and_connections_have_a_bound(self):
        go = threading.Event()

        def waiting(request, _):
            yield 1
            go.wait(60)

        worker = self.started(waiting, requests_max=2, bodies_bytes_max=1000)
        first = self.ask(worker)
        self.assertEqual(first.readline(), b'{"token_ids": [1]}\n')
        # The body of this one is announced, and never sent: it is refused without being read.
        second = self.connection(worker)
        second.putrequest("POST", "/v1/tokens")
        second.putheader("content-length", "950")
        second.endheaders()
        refused = second.getresponse()
        self.assertEqual([refused.status, "leave no room" in refused.read().decode()], [503, True])
        idle = [socket.create_connection(urlsplit(worker.url).netloc.split(":"), timeout=60) for _ in range(8)]
        for one in idle:
            self.addCleanup(one.close)
        self.assertGreaterEqual(len(_closed(idle, 8 - 4)), 8 - 4)
        go.set()
        first.read()

    def test_open_requests_finish_while_it_drains(self):
        go = threading.Event()

        def waiting(request, _):
            yield 1
            go.wait(60)
            yield 2

        worker = self.started(waiting)
        first = self.ask(worker)
        self.assertEqual(first.readline(), b'{"token_ids": [1]}\n')
        closing = threading.Thread(target=worker.close, args=(60,))
        closing.start()
        go.set()
        self.assertEqual([json.loads(line) for line in first.read().splitlines()][0], {"token_ids": [2]})
        closing.join()

    def test_bad_options_and_routers_are_named(self):
        with self.assertRaisesRegex(HomingError, "port=99999: use a whole number from 0 to 65535"):
            TokenWorker(lambda *_: iter(()), "m", port=99_999)
        with self.assertRaisesRegex(HomingError, "cannot tell http://127.0.0.1:9 of the worker"):
            TokenWorker(lambda *_: iter(()), "m", routers=["http://127.0.0.1:9"]).start()

    def test_what_is_no_request_is_refused(self):
        worker = self.started(lambda *_: iter(()))
        self.assertEqual(self.ask(worker, token_ids="x").status, 400)
        connection = self.connection(worker)
        connection.request("POST", "/v1/chat/completions", "{}")
        self.assertEqual(connection.getresponse().status, 404)


if __name__ == "__main__":
    unittest.main()
