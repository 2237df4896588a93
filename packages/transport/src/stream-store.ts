/**
 * Stream store: snapshots of worker keys beside a stream, the lock under which they are taken, and the
 * purge of what they stand for.
 *
 *   images      object store   HASH.RANDOM: the bytes of a snapshot. Never changed, so nothing is read half
 *   snapshots   key-value      HASH of a subject: which object is its snapshot, and where that stands
 *   locks       key-value      who takes snapshots; an entry that is not renewed ends by itself
 *
 * Order    upload → switch, if no other router has switched since → purge, of what the snapshot has and every
 *          consumer has dealt with → delete the object before. So after a crash at any point, the snapshot
 *          and the stream meet; an object that no key names is deleted by the next one that takes snapshots.
 */

/** What a snapshot stands for. */
export interface StoredSnapshot {
  readonly bytes: Uint8Array
  /** Of the publisher: 16 hexadecimal digits. */
  readonly life: string
  /** The first batch that the stream must keep: it proves the snapshot. */
  readonly keepFrom: number
}

/** How full a stream is, and how full it may be; undefined: there is no such limit. */
export interface StreamFill {
  readonly messages: number
  readonly messagesMax: number | undefined
  readonly bytes: number
  readonly bytesMax: number | undefined
  /** Of its first message, by the broker's clock; 0: it has none. */
  readonly ageMs: number
  readonly ageMsMax: number | undefined
}

/** Of a stream that is not there yet. */
export const NO_FILL: StreamFill = {
  ...{ messages: 0, bytes: 0, ageMs: 0 },
  ...{ messagesMax: undefined, bytesMax: undefined, ageMsMax: undefined },
}

/** What is known of a snapshot without its bytes. */
export interface NamedSnapshot extends Omit<StoredSnapshot, 'bytes'> {
  /** Changes with every snapshot of the subject; 0: there is none. */
  readonly revision: number
  /** By the broker's clock. */
  readonly ageMs: number
}

export const NO_SNAPSHOT: NamedSnapshot = { revision: 0, life: '', keepFrom: 0, ageMs: 0 }

export type Replaced = 'replaced' | 'late' | 'older'

export interface SnapshotLock {
  /** False: it is lost. */
  renew(): Promise<boolean>
  release(): Promise<void>
}

/** For the publishers of one stream, each named by the subject of its endpoint. Rejects with StreamError. */
export interface StreamStore {
  close(): void
  /** A stream that is not there is empty. */
  fill(): Promise<StreamFill>
  /** Undefined: another one has it. */
  lock(): Promise<SnapshotLock | undefined>
  named(subject: string): Promise<NamedSnapshot>
  /** Undefined: there is none. */
  read(subject: string): Promise<Uint8Array | undefined>
  /**
   * `late`: another snapshot has come since `revision`. `older`: the one that is there stands for more of the
   * same life, and what proves this one may be purged. In both cases this one is dropped.
   */
  replace(subject: string, snapshot: StoredSnapshot, revision: number): Promise<Replaced>
  /**
   * Purges what was dealt with by all consumers, and is before `keepFrom` of a snapshot, if one is given;
   * answers how many messages. Without one nothing is purged if there is no consumer.
   */
  purge(subject: string, snapshot?: Omit<StoredSnapshot, 'bytes'>): Promise<number>
  /**
   * Deletes what is left over: snapshots of subjects that are not `known`, have no message in the stream and
   * are older than it keeps one (undefined: it is not known yet which are in use); objects that are no
   * snapshot any more; and what an upload has left that ended under way.
   */
  tidy(known: ReadonlySet<string> | undefined): Promise<void>
}

/** The same, of one connection; for the namespace of a stream. */
export interface BrokerSnapshots extends Omit<StreamStore, 'close'> {}
