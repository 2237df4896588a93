/**
 * Etcd lock: who takes snapshots beside a stream, at etcd (--lock-backend etcd). The key hangs on a lease,
 * so it goes by itself when its holder has died; a revision that only its holder knows tells whether it is
 * still the same.
 *
 *   homing/NAMESPACE/locks/snapshots
 */

import type { SnapshotLock } from '../stream-store.ts'
import type { EtcdClient } from './etcd-client.ts'

/** A lock that is not renewed for so long is free. */
const LOCK_S = 30

export interface EtcdLockOptions {
  readonly client: EtcdClient
  readonly namespace: string
  /** Default LOCK_S. */
  readonly seconds?: number
  readonly newName: () => string
}

export class EtcdLocks {
  readonly #options: EtcdLockOptions
  readonly #key: string

  constructor(options: EtcdLockOptions) {
    this.#options = options
    this.#key = `homing/${options.namespace}/locks/snapshots`
  }

  /** Undefined: another one has it. Rejects with StreamError. */
  async lock(): Promise<SnapshotLock | undefined> {
    const { client, newName, seconds = LOCK_S } = this.#options
    const key = this.#key
    if ((await client.get(key)) !== undefined) return undefined
    const lease = await client.grantLease(seconds)
    const revision = await client.create(key, newName(), lease)
    if (revision === undefined) {
      await client.revokeLease(lease)
      return undefined
    }
    const isMine = async (): Promise<boolean> => (await client.get(key))?.createRevision === revision
    return {
      // In this order: a lease that ends between the two would not be noticed in the other.
      renew: async () => (await client.keepAlive(lease)) && (await isMine()),
      async release() {
        await client.deleteCreated(key, revision)
        await client.revokeLease(lease)
      },
    }
  }
}
