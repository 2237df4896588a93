"""What is held of a cache, to be published again: labels go with their block."""

import unittest

from homing._held_blocks import POOL, HeldBlocks, Labels
from homing._labels import CxlMemoryMetadata, Label, MoeMetadata

DEVICE = Labels("device", None, None, None)
EXPERT = MoeMetadata(1, 2)
POOLED = CxlMemoryMetadata("cxl_pooled", 3, (5,))
WORDS = b"\x01\0\0\0"


def held(place=POOLED):
    blocks = HeldBlocks(1 << 20)
    blocks.store(None, [1], [WORDS], DEVICE, [Label(EXPERT, place)])
    return blocks


def told(blocks):
    """By tier: whether the block is labelled."""
    entries, labels = blocks.freeze()
    return {entry.labels.tier: entry.key in labels for entry in entries}


class LabelsTest(unittest.TestCase):
    def test_another_block_under_the_same_hash_has_no_labels_of_the_first(self):
        blocks = held()
        blocks.store(None, [1], [b"\x02\0\0\0"], DEVICE)
        self.assertEqual(told(blocks), {"device": False})
        blocks = held()
        blocks.remove([1], "device")
        self.assertEqual(told(blocks), {POOL: True})
        blocks.store(None, [1], [b"\x02\0\0\0"], DEVICE)
        self.assertEqual(told(blocks), {"device": False})

    def test_a_block_that_comes_back_from_the_pool_keeps_them(self):
        blocks = held()
        blocks.remove([1], "device")
        blocks.store(None, [1], [WORDS], DEVICE)
        self.assertEqual(told(blocks), {"device": True})

    def test_a_block_that_is_nowhere_goes_to_no_pool(self):
        blocks = held()
        blocks.remove([1], "device")
        for state in ("evicted", "in_transit", "cxl_pooled"):
            blocks.move([1], CxlMemoryMetadata(state, 3, (5,)))
        self.assertEqual(told(blocks), {})
        self.assertEqual(blocks.all_bytes, 0)


if __name__ == "__main__":
    unittest.main()
