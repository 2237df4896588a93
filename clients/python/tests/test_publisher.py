"""What of the publisher needs no router; the wire is tested beside @homing/publisher in test/python."""

import importlib.util
import struct
import subprocess
import sys
import threading
import time
import unittest
from unittest import mock

from homing import HomingError, KvEventPublisher, ZmqKvEventPublisher

HAS_PACKAGES = all(importlib.util.find_spec(name) for name in ("zmq", "msgpack"))
ANY = {"zmq_endpoint": "tcp://127.0.0.1:*", "replay_endpoint": "tcp://127.0.0.1:*"}


class PackagesTest(unittest.TestCase):
    def test_a_missing_package_is_one_error_that_says_what_to_type(self):
        for name, package in (("zmq", "pyzmq"), ("msgpack", "msgpack")):
            stands_in = mock.Mock() if not HAS_PACKAGES else __import__("json")
            with mock.patch.dict(sys.modules, {"zmq": stands_in, "msgpack": stands_in, name: None}):
                with self.assertRaises(HomingError) as caught:
                    KvEventPublisher(16)
            self.assertEqual(caught.exception.name, "packages_missing")
            self.assertRegex(
                caught.exception.message,
                rf'the package {package} is missing; type: pip install "homing\[publisher\]"',
            )

    def test_wrong_options_are_refused_before_anything_is_opened(self):
        for options, message in (
            ({"kv_block_size": 0}, "kv_block_size is 0, use a whole number from 1 to 65536"),
            ({"kv_block_size": True}, "kv_block_size is True"),
            ({"kv_block_size": 16, "dp_rank": -1}, "dp_rank is -1"),
            ({"kv_block_size": 16, "queued_messages_max": 5}, "from 1025 to 100000"),
            (
                {"kv_block_size": 16, "enable_local_indexer": False, "replay_endpoint": "tcp://*:1"},
                "enable_local_indexer is False",
            ),
        ):
            with self.assertRaises(HomingError) as caught:
                KvEventPublisher(**options)
            self.assertEqual(caught.exception.name, "bad_option")
            self.assertIn(message, caught.exception.message)


@unittest.skipUnless(HAS_PACKAGES, "the Python packages pyzmq and msgpack are not installed")
class PublisherTest(unittest.TestCase):
    def test_calls_from_many_threads_are_numbered_without_a_gap(self):
        with KvEventPublisher(1, **ANY) as publisher:
            threads = [
                threading.Thread(
                    target=lambda first=first: [
                        publisher.publish_stored(None, [7], None, [first * 1000 + i]) for i in range(200)
                    ]
                )
                for first in range(1, 5)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            stats = publisher.stats
            self.assertEqual((stats.batches, stats.blocks, stats.kept_batches), (800, 800, 800))
            self.assertEqual([sequence for sequence, _ in publisher._kept], list(range(800)))

    def test_a_port_that_is_taken_is_one_error_and_leaves_nothing_open(self):
        with KvEventPublisher(1, **ANY) as publisher:
            for option, endpoint in (
                ("zmq_endpoint", publisher.endpoint),
                ("replay_endpoint", publisher.replay_endpoint),
                ("zmq_endpoint", "nowhere"),
            ):
                with self.assertRaises(HomingError) as caught:
                    KvEventPublisher(1, **{**ANY, option: endpoint})
                self.assertEqual(caught.exception.name, "listen_failed")
                self.assertIn(endpoint, caught.exception.message)
            endpoint = publisher.endpoint
        with KvEventPublisher(1, **{**ANY, "zmq_endpoint": endpoint}) as again:
            self.assertEqual(again.endpoint, endpoint)

    def test_close_settles_once_and_calls_are_refused_afterwards(self):
        publisher = KvEventPublisher(1, **ANY)
        publisher.close()
        publisher.close()
        publisher.shutdown()
        for call in (
            lambda: publisher.publish_stored(None, [1], None, [1]),
            lambda: publisher.publish_removed(None, [1]),
            publisher.publish_all_cleared,
        ):
            with self.assertRaises(HomingError) as caught:
                call()
            self.assertEqual(caught.exception.name, "closed")

    def test_without_a_local_indexer_nothing_is_held_or_answered(self):
        with KvEventPublisher(1, 0, False, zmq_endpoint="tcp://127.0.0.1:*") as publisher:
            publisher.publish_stored(None, [1], None, [1])
            stats = publisher.stats
            self.assertEqual((stats.batches, stats.blocks, stats.kept_batches), (1, 0, 0))
            self.assertIsNone(publisher.replay_endpoint)

    def test_by_its_endpoint_as_engines_create_it(self):
        publisher = ZmqKvEventPublisher("tcp://127.0.0.1:*", 2, replay_endpoint="tcp://127.0.0.1:*")
        publisher.publish_stored(1, [1, 2], [2], [-1], lora_id=3)
        publisher.publish_removed(2, [2**64 - 1])
        publisher.publish_all_cleared(3)
        self.assertEqual(publisher.next_sequence, 3)
        self.assertEqual(publisher.stats.unknown_removes, 0)
        publisher.shutdown()

    def test_peers_that_do_not_read_hold_little_and_others_are_served(self):
        import zmq

        with mock.patch("homing._replies.STALL_S", 3600.0), KvEventPublisher(256, **ANY) as publisher:
            tokens = list(range(100_000, 100_256))
            for first in range(8000):
                publisher.publish_stored(None, tokens, None, [first + 1])
            with zmq.Context() as context:
                context.linger = 0
                context.rcvhwm = 1
                context.rcvbuf = 4096
                silent = [context.socket(zmq.DEALER) for _ in range(40)]
                for peer in silent:
                    peer.connect(publisher.replay_endpoint)
                    peer.send_multipart([b"", b"snapshot", b"\x01"])
                while publisher.stats.snapshots < len(silent):
                    time.sleep(0.001)
                self.assertLessEqual(publisher.stats.taken_snapshots, 4)
                reads = context.socket(zmq.DEALER)
                reads.rcvhwm = 0
                reads.connect(publisher.replay_endpoint)
                reads.send_multipart([b"", b"snapshot", b"\x01"])
                parts = 0
                while True:
                    *_, header, payload = reads.recv_multipart()
                    part, count = struct.unpack(">II", header[18:])
                    self.assertEqual(part, parts)
                    parts += 1
                    if parts == count:
                        break
                self.assertEqual(parts, 8000 * 256 // 8192)
                self.assertEqual(publisher.stats.unread_replies, 0)
                with mock.patch("homing._replies.STALL_S", 0.0):
                    while publisher.stats.open_replies > 0:
                        time.sleep(0.001)
                self.assertEqual(publisher.stats.unread_replies, len(silent))
                for peer in [*silent, reads]:
                    peer.close()

    def test_an_error_on_the_thread_of_the_replies_does_not_hold_up_the_end(self):
        import zmq

        told = []
        with mock.patch("threading.excepthook", told.append), zmq.Context() as context:
            publisher = KvEventPublisher(1, **ANY)
            with mock.patch.object(publisher._replies, "_kept_from", side_effect=MemoryError):
                peer = context.socket(zmq.DEALER)
                peer.connect(publisher.replay_endpoint)
                peer.send_multipart([b"", bytes(8)])
                publisher._replies._thread.join()
                peer.close(linger=0)
            publisher.close()
        self.assertIs(told[0].exc_type, MemoryError)

    def test_close_inside_a_batch_publishes_what_was_called(self):
        publisher = KvEventPublisher(1, **ANY)
        with publisher.batch():
            publisher.publish_stored(None, [1], None, [1])
            publisher.close()
        self.assertEqual(publisher.next_sequence, 1)

    def test_what_a_loop_of_an_engine_raises_inside_a_batch_loses_no_event(self):
        with KvEventPublisher(1, **ANY) as publisher:
            with self.assertRaises(KeyError), publisher.batch():
                publisher.publish_stored(None, [1], None, [1])
                publisher.publish_stored(None, [1], None, [2])
                raise KeyError
            self.assertEqual((publisher.next_sequence, publisher.stats.events), (1, 2))

    def test_a_program_that_does_not_close_ends_all_the_same(self):
        program = (
            "from homing import KvEventPublisher\n"
            "p = KvEventPublisher(1, zmq_endpoint='tcp://127.0.0.1:*', replay_endpoint='tcp://127.0.0.1:*')\n"
            "p.publish_stored(None, [1], None, [1])\n"
        )
        ended = subprocess.run([sys.executable, "-W", "ignore", "-c", program], timeout=60)
        self.assertEqual(ended.returncode, 0)


if __name__ == "__main__":
    unittest.main()
