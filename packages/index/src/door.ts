/**
 * Door: the one word that tells readers of a shard whether their memory is still that of its writer.
 * It outlives writers and memories, and takes 64 bytes.
 *
 *   word   0       1
 *         | MAGIC | number of the present writer; 0: none yet |
 *
 * A writer that is created with a door takes the next number, and writes it into every memory that it makes.
 * A reader whose memory has another number holds the memory of an earlier writer, and ignores it.
 */

const MAGIC = 0x484f4d44
const D_MAGIC = 0
const D_NUMBER = 1
const DOOR_BYTES = 64

/** A door without a writer. Give it to `BlockIndex.create` and `IndexReader` in the place of the memory. */
export function createIndexDoor(): SharedArrayBuffer {
  const door = new SharedArrayBuffer(DOOR_BYTES)
  Atomics.store(new Int32Array(door), D_MAGIC, MAGIC)
  return door
}

export function isDoor(memory: SharedArrayBuffer): boolean {
  return memory.byteLength === DOOR_BYTES && Atomics.load(new Int32Array(memory), D_MAGIC) === MAGIC
}

/** The number of the present writer of a door. */
export function numberOfDoor(door: Int32Array): number {
  return Atomics.load(door, D_NUMBER)
}

/** Makes the caller the present writer; the number for its memories. */
export function claimDoor(door: SharedArrayBuffer): number {
  return Atomics.add(new Int32Array(door), D_NUMBER, 1) + 1
}
