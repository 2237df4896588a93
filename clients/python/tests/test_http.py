"""The client against servers that answer with given bytes."""

import asyncio
import gc
import threading
import unittest
import warnings
from array import array

from homing import HomingError, KvRouter


class Server:
    """Answers each request with the next of `answers`; None: closes the connection instead."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.requests = []
        self.connections = 0
        self.tasks = []

    async def __aenter__(self):
        self.server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        self.url = "http://127.0.0.1:%d" % self.server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_):
        self.server.close()
        for task, writer in self.tasks:
            writer.transport.abort()
            await asyncio.wait([task])

    async def serve(self, reader, writer):
        self.tasks.append((asyncio.current_task(), writer))
        self.connections += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = [line for line in head.split(b"\r\n") if line.startswith(b"content-length")]
                body = await reader.readexactly(int(length[0].split(b":")[1])) if length else b""
                self.requests.append((head, body))
                answer = self.answers.pop(0)
                if answer is None:
                    break
                if callable(answer):
                    await answer(reader, writer)
                    break
                writer.write(answer)
                await writer.drain()
        except (EOFError, ConnectionError):
            pass
        finally:
            writer.close()


def json_answer(text, status=200):
    return b"HTTP/1.1 %d X\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (
        status,
        len(text),
        text,
    )


BEST = json_answer(b'{"worker_id":3,"dp_rank":1,"overlap_blocks":2,"worker":"x","url":"y"}')
DONE = json_answer(b'{"success":true}')


def chunked(*events):
    pieces = [b"%x\r\n%s\r\n" % (len(event), event) for event in events]
    return (
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\nx-homing-worker: w/0\r\nx-homing-decision: d\r\n"
        b"x-homing-overlap-blocks: 4\r\n\r\n" + b"".join(pieces) + b"0\r\n\r\n"
    )


class HttpTest(unittest.IsolatedAsyncioTestCase):
    async def refused(self, awaited, **members):
        with self.assertRaises(HomingError) as caught:
            await awaited
        for name, value in members.items():
            if name == "message":
                self.assertRegex(caught.exception.message, value)
            else:
                self.assertEqual(getattr(caught.exception, name), value, repr(caught.exception))
        return caught.exception

    async def test_calls_share_a_kept_connection(self):
        async with Server(BEST, BEST, DONE) as server, KvRouter(server.url) as router:
            self.assertEqual(await router.best_worker([1, 2]), (3, 1, 2))
            self.assertEqual(await router.best_worker((1, 2), request_id="a"), (3, 1, 2))
            await router.free("a")
            self.assertEqual(server.connections, 1)
            self.assertEqual(server.requests[0][1], b'{"token_ids":[1,2]}')

    async def test_a_kept_connection_that_ended_is_replaced_where_nothing_changes(self):
        async with Server(BEST, None, BEST, None) as server, KvRouter(server.url) as router:
            await router.best_worker([1])
            self.assertEqual(await router.best_worker([1]), (3, 1, 2), "asked again")
            await self.refused(router.free("a"), status=0, name="unreachable")
            self.assertEqual(len(server.requests), 4, "free is sent once")

    async def test_a_new_connection_that_ends_is_an_error(self):
        async with Server(None) as server, KvRouter(server.url) as router:
            await self.refused(
                router.best_worker([1]), status=0, name="unreachable", message="ended before the answer"
            )

    async def test_nothing_listens(self):
        async with Server() as server:
            url = server.url
        async with KvRouter(url) as router:
            await self.refused(router.best_worker([1]), status=0, name="unreachable", message=url)

    async def test_a_silent_router_is_left_after_the_timeout(self):
        async def silent(reader, _writer):
            await reader.read()

        async with Server(silent) as server, KvRouter(server.url, timeout_s=0.05) as router:
            await self.refused(
                router.best_worker([1]), status=0, name="timeout", message="no answer for 0.05 s"
            )

    async def test_refusals_have_status_name_message_and_param(self):
        body = b'{"error":{"message":"cannot use x","type":"t","param":"x","code":"invalid_value"}}'
        async with Server(json_answer(body, 400), json_answer(b"nothing here", 502)) as server:
            async with KvRouter(server.url) as router:
                await self.refused(
                    router.best_worker([1]),
                    status=400,
                    name="invalid_value",
                    message="^cannot use x$",
                    param="x",
                )
                await self.refused(router.best_worker([1]), status=502, name="", message="nothing here")

    async def test_answers_that_are_none(self):
        for answer in (
            b"SSH-2.0\r\n\r\n",
            json_answer(b"{"),
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n-5\r\nabcde\r\n",
            b"HTTP/1.1 200 OK\r\ncontent-length: many\r\n\r\n",
        ):
            async with Server(answer) as server, KvRouter(server.url) as router:
                await self.refused(router.best_worker([1]), name="bad_answer")

    async def test_early_heads_are_no_answer(self):
        early = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n"
        async with Server(early + BEST) as server, KvRouter(server.url) as router:
            self.assertEqual(await router.best_worker([1]), (3, 1, 2))

    async def test_a_url_that_is_none(self):
        for url in ("127.0.0.1:8000", "http://127.0.0.1:99999", "http://h:x", "http://[::1", "ftp://h", 5, None):
            with self.assertRaises(HomingError) as caught:
                KvRouter(url)
            self.assertEqual(caught.exception.name, "bad_option", url)
            self.assertRegex(caught.exception.message, "cannot use the URL")

    async def test_each_form_of_a_stream_is_read(self):
        text = (
            ': a comment\n\nevent: message\ndata: {"choices":[{"index":0,\ndata: "text":"a","token_ids":[1]}]}\n\n'
            'data:{"choices":[{"index":0,"text":"b","token_ids":[2],"finish_reason":"stop"}]}\n\n'
            "data: [DONE]\n\n"
        )
        for end in ("\n", "\r\n", "\r"):
            stream = text.replace("\n", end).encode()
            for pieces in ([stream], [bytes([byte]) for byte in stream]):
                async with Server(chunked(*pieces)) as server, KvRouter(server.url) as router:
                    outputs = [output async for output in await router.generate([1])]
                    self.assertEqual([output["token_ids"] for output in outputs], [[1], [2]], repr(end))
                    self.assertEqual(outputs[-1]["finish_reason"], "stop")

    async def test_a_head_without_end_is_refused(self):
        async with Server(b"HTTP/1.1 200 OK\r\nx: " + b"y" * 200_000) as server:
            async with KvRouter(server.url) as router:
                await self.refused(router.best_worker([1]), status=0, name="unreachable")

    async def test_generate_gives_outputs_in_order_across_any_pieces(self):
        text = (
            b'data: {"choices":[{"token_ids":[1,2],"text":"\xc3\xa4"}]}\n\n: keep-alive\n\n'
            b'data: {"choices":[{"token_ids":[3],"text":"b","finish_reason":"length"}]}\n\n'
            b'data: {"choices":[],"usage":{"prompt_tokens":4,"completion_tokens":3}}\n\ndata: [DONE]\n\n'
        )
        pieces = [text[i : i + 7] for i in range(0, len(text), 7)]
        async with Server(chunked(*pieces), DONE) as server, KvRouter(server.url) as router:
            stream = await router.generate([9], stop_conditions={"max_tokens": 3})
            self.assertEqual(stream.place, ("w/0", "d", 4))
            outputs = [output async for output in stream]
            self.assertEqual(
                outputs,
                [
                    {"token_ids": [1, 2], "text": "ä", "finish_reason": None},
                    {"token_ids": [3], "text": "b", "finish_reason": "length"},
                ],
            )
            self.assertEqual(stream.usage, (4, 3, None))
            await router.free("a")
            self.assertEqual(server.connections, 1, "the connection is kept")

    async def test_an_answer_that_breaks_off(self):
        for tail, members in (
            (b'data: {"error":{"message":"gone","code":"worker_lost"}}\n\n', {"name": "worker_lost"}),
            (b'data: {"choices":[{"text":"words"}]}\n\n', {"name": "no_token_ids", "message": "w/0"}),
            (b"data: {\n\n", {"name": "generate_failed"}),
        ):
            first = b'data: {"choices":[{"token_ids":[1],"text":"a"}]}\n\n'
            async with Server(chunked(first, tail)) as server, KvRouter(server.url) as router:
                stream = await router.generate([9])
                self.assertEqual((await stream.__anext__())["token_ids"], [1])
                await self.refused(stream.__anext__(), status=0, **members)
                with self.assertRaises(StopAsyncIteration):
                    await stream.__anext__()

    async def test_leaving_closes_the_connection_and_frees_its_place(self):
        ended = asyncio.Queue()

        async def endless(reader, writer):
            writer.write(chunked(b'data: {"choices":[{"token_ids":[1],"text":"a"}]}\n\n')[:-5])
            try:
                await reader.read()
            except ConnectionError:
                pass
            ended.put_nowait(True)

        async with Server(endless, endless, endless, endless, BEST) as server:
            async with KvRouter(server.url, connections_max=1) as router:
                async with await router.generate([9]) as stream:
                    await stream.__anext__()
                await ended.get()

                stream = await router.generate([9])
                async for _ in stream:
                    break
                del stream
                await ended.get()

                async def consume():
                    async for _ in await router.generate([9]):
                        seen.set()

                seen = asyncio.Event()
                task = asyncio.ensure_future(consume())
                await seen.wait()
                task.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await task
                await ended.get()

                stream = await router.generate([9])
                await stream.aclose()
                await stream.aclose()
                await ended.get()
                self.assertEqual(await router.best_worker([1]), (3, 1, 2))

    async def test_calls_past_connections_max_wait_for_a_place(self):
        async with Server(*[BEST] * 20) as server, KvRouter(server.url, connections_max=2) as router:
            found = await asyncio.gather(*(router.best_worker([1]) for _ in range(20)))
            self.assertEqual(found, [(3, 1, 2)] * 20)
            self.assertLessEqual(server.connections, 2)

    async def test_keys_are_sent_where_they_belong(self):
        async with Server(BEST, chunked(b"data: [DONE]\n\n")) as server:
            router = KvRouter(server.url, admin_key="operator", client_key="client")
            await router.best_worker([1])
            [_ async for _ in await router.generate([1])]
            await router.close()
            self.assertIn(b"authorization: Bearer operator\r\n", server.requests[0][0])
            self.assertIn(b"authorization: Bearer client\r\n", server.requests[1][0])

    async def test_ids_of_any_kind_of_whole_number(self):
        class Number:
            def __index__(self):
                return 7

        async with Server(*[BEST] * 4) as server, KvRouter(server.url) as router:
            for ids in (array("H", [7]), [Number()], range(7, 8), (7,)):
                await router.best_worker(ids)
            self.assertEqual({body for _, body in server.requests}, {b'{"token_ids":[7]}'})

    async def test_closed(self):
        router = KvRouter("http://127.0.0.1:9")
        await router.close()
        await router.close()
        for call in (
            router.best_worker([1]),
            router.generate([1]),
            router.free("a"),
            router.dump_events(),
            router.workers(),
        ):
            await self.refused(call, status=0, name="closed", message="this router was closed")


class LoopsTest(unittest.TestCase):
    def test_one_router_serves_several_event_loops_one_after_the_other(self):
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever)
        thread.start()

        def there(awaited):
            return asyncio.run_coroutine_threadsafe(awaited, loop).result(60)

        server = Server(BEST, BEST)
        there(server.__aenter__())
        router = KvRouter(server.url)
        with warnings.catch_warnings():
            # What a loop has left open is closed by the interpreter, with a warning.
            warnings.simplefilter("ignore", ResourceWarning)
            for _ in range(2):
                self.assertEqual(asyncio.run(router.best_worker([1])), (3, 1, 2))
            del router
            gc.collect()
        there(server.__aexit__())
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


if __name__ == "__main__":
    unittest.main()
