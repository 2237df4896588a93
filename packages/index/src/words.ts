/**
 * Words: where the words of a shard lie, for TypeScript and for the loops in WebAssembly alike. Only
 * constants are in here: ../wasm/ imports this file as it stands. What they mean is in layout.ts.
 */

// The header: written at creation, but for those of which layout.ts says who changes them. Bases are word
// indexes.
export const H_MAGIC = 0
export const H_ACCESS = 1
export const H_SLOTS = 2
export const H_HOLDERS = 3
export const H_SET_WORDS = 4
/** Words of a bitmap that any holder in use needs; only grows. */
export const H_HOLDER_WORDS = 5
export const H_CHUNKS_MAX = 6
export const H_CHUNK_BASE = 7
export const H_BUCKET_BASE = 8
/** Buckets in use: linear hashing. */
export const H_BUCKETS = 9
export const H_SET_VERSION_BASE = 10
export const H_SET_BITS_BASE = 11
export const H_UNLINK_BASE = 12
export const H_UNLINK_MASK = 13
export const H_OWNER_BASE = 14
export const H_HOLDER_BASE = 15
/**
 * Odd while a new writer empties the shard, or a holder gets another owner or none. No walk counts that saw
 * it odd, or saw it change.
 */
export const H_LIFE = 16
/**
 * 1: the writer has left for another memory, which readers should ask for; what is here is of that moment.
 */
export const H_LEFT = 17
/** The number that the door gave to the writer of this memory; see door.ts. */
export const H_DOOR_NUMBER = 18
/** A scratch region that some reader gave back, as a word index; 0: none. */
export const H_SPARE_SCRATCH = 19
export const H_BUCKETS_MIN = 20
export const H_BUCKETS_MAX = 21
export const H_SETS_MAX = 22
export const H_TRANSITIONS_MAX = 23
export const H_SEGMENT_BITS = 24
/** Groups of a segment of the engine table, at most. */
export const H_SEGMENT_GROUPS = 25
/** The regions of the writer alone. */
export const H_SEGMENT_INFO_BASE = 26
export const H_SEGMENT_BASE = 27
export const H_NAME_BASE = 28
export const H_LINK_BASE = 29
export const H_FREE_BASE = 30
export const H_FREE_WORD_BASE = 31
export const H_RECENT_BASE = 32
export const H_HELD_BASE = 33
export const H_SET_BLOCKS_BASE = 34
export const H_SET_HASH_BASE = 35
export const H_FREE_SET_BASE = 36
export const H_INTERN_BASE = 37
export const H_TRANSITION_BASE = 38
export const H_SCRATCH_BASE = 39
export const H_EVENT_BASE = 40
export const H_TOUCH_BASE = 41
export const H_REBUILD_BASE = 42

/** The state of the writer, in lines of its own: readers do not look at it. */
export const STATE = 64
/** The highest chunk that was ever used in this memory, and the highest that is in use. */
export const S_TOUCHED = 64
export const S_TOP = 65
export const S_FREE_COUNT = 66
export const S_FREE_HINT = 67
/** A ring of chunks that were freed lately; some of them may be in use again. */
export const S_RECENT_END = 68
export const S_RECENT_COUNT = 69
/** Slots in use, of all chunks. */
export const S_SLOTS_USED = 70
export const S_BUCKETS_TOUCHED = 71
/** Chunks that may be touched beside what side names take. */
export const S_CHUNKS_ALLOWED = 72
/**
 * Interned sets: ids given out so far, free ones, rows ever written, ids before the tables grow, ids no block
 * has.
 */
export const S_SETS_FRESH = 73
export const S_SETS_FREE = 74
export const S_SETS_TOUCHED = 75
export const S_SETS_SOFT = 76
export const S_SETS_GARBAGE = 77
export const S_INTERN_MASK = 78
export const S_TRANSITION_MASK = 79
/** Sweeps of sets: after one, ids may stand for other sets. */
export const S_SET_SWEEPS = 80
/** Σ over distinct engine hashes of (entries of that hash − 1). */
export const S_DUPLICATES = 81
/** Groups of all segments that were ever used, and entries of the largest that was rebuilt. */
export const S_GROUPS_TOUCHED = 82
export const S_REBUILT_MAX = 83
export const S_LEFT_SINCE_MERGE = 84
/** Holders that belong to nobody and may still be in sets. */
export const S_RETIRED = 85
/** What a call tells: where it ended, the last block, memberships, distinct blocks, repeated reports. */
export const OUT_INDEX = 96
export const OUT_BLOCK = 97
export const OUT_MEMBERSHIPS = 98
export const OUT_DISTINCT = 99
export const OUT_AGAIN = 100
/** One hash that a call is about. */
export const HASH_ARGUMENT = 104
export const HEADER_WORDS = 112

export const CHUNK_WORDS = 56
export const CHUNK_SLOTS = 16
export const PARENT = 0
export const HNEXT = 1
export const USED = 2
export const MASK = 3
export const NEXT = 4
export const FIRST = 5
export const VER = 6
export const OWN = 7
export const SET = 8
export const LOC = 24
/** Of the word OWN: slots ever used since VER grew. */
export const SLOTS_MASK = 0xff
/** Of the word OWN: the mark of slot 0. */
export const MARK_SHIFT = 8

/** Chunks freed lately that are remembered, a power of two: what a processor's cache may still hold. */
export const RECENT_MAX = 512

/** The engine table: a group is a line of 16 words. */
export const GROUP_SLOTS = 12
export const GROUP_WORDS = 16
export const SEGMENT_INFO_WORDS = 4
export const INFO_GROUPS = 0
export const INFO_ENTRIES = 1
export const INFO_ROOM = 2
export const INFO_TOUCHED = 3
/** Load at which a segment grows, in thousandths. */
export const SEGMENT_LOAD_MAX = 720
export const SEGMENT_LOAD_MIN = 480

export const TRANSITION_WORDS = 4
export const SETS_SOFT_MIN = 64
export const TRANSITIONS_MIN = 256
/** In the place of a set: no id is free. */
export const NO_SET = -1

/** Blocks of one call of a run, and hashes that are read ahead at once. */
export const EVENT_BLOCKS = 256
export const TOUCH_MAX = 128
export const TOUCH_WORDS = 4

/** What a run ended with. SLOW: block OUT_INDEX needs more than the loops can say. */
export const DONE = 0
export const SLOW = 1
export const UNKNOWN_PARENT = 2

/** The scratch of a reader: word offsets of a region. */
export const R_WORDS = 0
export const R_RETRIES = 1
export const R_LIFE = 2
export const R_FIXED = 16
