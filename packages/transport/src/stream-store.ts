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

export type Replaced = 'replaced' | 'late' | 'older'

export interface SnapshotLock {
  /** False: it is lost. */
  renew(): Promise<boolean>
  release(): Promise<void>
}

/** For the publishers of one stream, each named by the subject of its endpoint. Rejects with StreamError. */
export interface StreamStore {
  close(): void
  /** Messages in the stream. */
  messages(): Promise<number>
  /** Undefined: another one has it. */
  lock(): Promise<SnapshotLock | undefined>
  /** Changes with every snapshot of the subject; 0: there is none. */
  revision(subject: string): Promise<number>
  /** Undefined: there is none. */
  read(subject: string): Promise<Uint8Array | undefined>
  /**
   * `late`: another snapshot has come since `revision`. `older`: the one that is there stands for more of the
   * same life, and what proves this one may be purged. In both cases this one is dropped.
   */
  replace(subject: string, snapshot: StoredSnapshot, revision: number): Promise<Replaced>
  /** Purges what is before `keepFrom` and was dealt with by all consumers; answers how many messages. */
  purge(subject: string, snapshot: Omit<StoredSnapshot, 'bytes'>): Promise<number>
  /** Deletes objects that are no snapshot any more. */
  tidy(): Promise<void>
}

/** The same, of one connection; for the namespace of a stream. */
export interface BrokerSnapshots extends Omit<StreamStore, 'close'> {}
