"""A worker that labels its blocks and moves them to a pool, as docs/labels.md says: its own hashes, its own ids."""

import itertools
import sys

from homing import CxlMemoryMetadata, KvEventPublisher, MoeMetadata

BLOCK_TOKENS = 16

kv_publisher = KvEventPublisher(
    kv_block_size=BLOCK_TOKENS,
    zmq_endpoint="tcp://127.0.0.1:*",
    replay_endpoint="tcp://127.0.0.1:*",
)
event_ids = itertools.count(1)
prompt = [40 + i for i in range(4 * BLOCK_TOKENS)]
# The engine's own hashes, each of a block and all before it.
prefill_block_hashes = [0xA1, 0xA2, 0xA3, 0xA4]
cxl_pool_id = 0
decode_worker_ids = [2]

# During prefill blocks are in local GPU memory.
kv_publisher.publish_stored(
    event_id=next(event_ids),
    token_ids=prompt,
    num_block_tokens=None,
    block_hashes=prefill_block_hashes,
    moe_metadata=[MoeMetadata(layer_id=3, expert_id=i, expert_group=0) for i in range(4)],
    cxl_metadata=CxlMemoryMetadata(state="local_gpu", pool_id=None, accessible_workers=[]),
)
# The prefill is over: the blocks go to the pool.
kv_publisher.publish_cxl_state_transition(
    event_id=next(event_ids),
    block_hashes=prefill_block_hashes,
    new_state="in_transit",
    pool_id=cxl_pool_id,
    accessible_workers=decode_worker_ids,
)
# The transfer is over: worker 2 can read them there.
kv_publisher.publish_cxl_state_transition(
    event_id=next(event_ids), block_hashes=prefill_block_hashes, new_state="cxl_pooled"
)
# The worker needs its own memory for others; in the pool the last two blocks stay.
kv_publisher.publish_removed(next(event_ids), prefill_block_hashes[:1:-1])

ports = [endpoint.rsplit(":", 1)[1] for endpoint in (kv_publisher.endpoint, kv_publisher.replay_endpoint)]
print(f"events={ports[0]}&replay={ports[1]}", flush=True)
# Serves until its input ends.
sys.stdin.read()
kv_publisher.close()
