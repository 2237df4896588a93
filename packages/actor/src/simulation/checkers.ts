/**
 * Checkers: the promises of the actor runtime, as functions over a recorded history. Each returns the faults
 * that it found, in words; nothing if the promise was kept. They assume that the run had come to rest at its
 * end.
 */

import type { HistoryEntry, TellTag } from './history.ts'

export type Checker = (history: readonly HistoryEntry[]) => readonly string[]

/** Handled in the order of sending, for each pair of sender and receiver. */
export const fifoPerPair: Checker = history => {
  const found: string[] = []
  const last = new Map<string, number>()
  for (const entry of history) {
    if (entry.type !== 'handled') continue
    const pair = `${entry.from} to ${entry.to}`
    const before = last.get(pair) ?? 0
    if (entry.number < before) found.push(`${pair}: ${entry.number} was handled after ${before}`)
    last.set(pair, Math.max(before, entry.number))
  }
  return found
}

/** Handled once at most, unless a fault doubled it. */
export const noDuplicates: Checker = history => {
  const found: string[] = []
  const allowed = new Map<string, number>()
  for (const entry of history) {
    if (entry.type === 'duplicated') allowed.set(keyOf(entry), (allowed.get(keyOf(entry)) ?? 1) + 1)
  }
  const handled = new Map<string, number>()
  for (const entry of history) {
    if (entry.type !== 'handled') continue
    const key = keyOf(entry)
    const times = (handled.get(key) ?? 0) + 1
    handled.set(key, times)
    if (times > (allowed.get(key) ?? 1)) found.push(`${key} was handled ${times} times`)
  }
  return found
}

/** Every tell that was accepted was handled, or there is a recorded reason why not. */
export const lossesHaveCauses: Checker = history => {
  const open = new Map<string, HistoryEntry & { type: 'sent' }>()
  const wired = new Set<string>()
  const takenBy = new Map<string, number>()
  const endedUids = new Set<number>()
  const lives = new Map<string, { uid: number; isStopped: boolean }>()
  const lost = new Set<string>()
  for (const entry of history) {
    switch (entry.type) {
      case 'sent':
        open.set(keyOf(entry), entry)
        break
      case 'wired':
        wired.add(keyOf(entry))
        break
      case 'taken':
        takenBy.set(keyOf(entry), entry.uid)
        break
      case 'lost':
        lost.add(keyOf(entry))
        break
      case 'handled':
        open.delete(keyOf(entry))
        break
      case 'threadEnded':
        endedUids.add(entry.uid)
        break
      case 'started':
        lives.set(entry.actor, { uid: entry.uid, isStopped: false })
        break
      // One that ends between two instances is given no more signals.
      case 'restarting':
      case 'stopped': {
        const life = lives.get(entry.actor)
        if (life !== undefined) life.isStopped = true
        break
      }
      default:
    }
  }
  const found: string[] = []
  for (const [key, { to, uid }] of open) {
    if (lost.has(key)) continue
    const receiver = lives.get(to)
    // A receiver that never started, or is over, leaves what waited for it.
    if (receiver === undefined || receiver.isStopped || endedUids.has(receiver.uid)) continue
    const taker = takenBy.get(key)
    if (taker !== undefined && endedUids.has(taker)) continue
    // Of one thread: it died with both.
    if (!wired.has(key) && endedUids.has(uid)) continue
    found.push(`${key} was accepted, and neither handled nor lost for a reason`)
  }
  return found
}

/** Every ask of a living thread settles once, not later than `slackMs` after its deadline. */
export function asksSettleOnce(slackMs: number): Checker {
  return history => {
    const found: string[] = []
    const open = new Map<number, { dueMs: number; uid: number }>()
    const settled = new Set<number>()
    const endedUids = uidsOf(history)
    for (const entry of history) {
      if (entry.type === 'asked') open.set(entry.ask, entry)
      else if (entry.type === 'settled') {
        if (settled.has(entry.ask)) found.push(`ask ${entry.ask} settled twice`)
        settled.add(entry.ask)
        const ask = open.get(entry.ask)
        open.delete(entry.ask)
        if (ask !== undefined && entry.atMs > ask.dueMs + slackMs) {
          found.push(`ask ${entry.ask} settled ${(entry.atMs - ask.dueMs).toFixed(3)} ms after its deadline`)
        }
      }
    }
    const lastMs = history.at(-1)?.atMs ?? 0
    for (const [ask, { uid, dueMs }] of open) {
      if (!endedUids.has(uid) && lastMs > dueMs + slackMs) found.push(`ask ${ask} did not settle`)
    }
    return found
  }
}

/** A watch fires once at most; and once, when its watcher lived on and what it watched has ended. */
export const watchesFireOnce: Checker = history => {
  const found: string[] = []
  const open = new Map<number, { watcher: string; watched: string }>()
  const fired = new Set<number>()
  const lives = new Map<string, { uid: number; isStopped: boolean }>()
  for (const entry of history) {
    switch (entry.type) {
      case 'watched':
        open.set(entry.watch, entry)
        break
      case 'terminated':
        if (fired.has(entry.watch)) found.push(`watch ${entry.watch} fired twice`)
        fired.add(entry.watch)
        open.delete(entry.watch)
        break
      case 'started':
        lives.set(entry.actor, { uid: entry.uid, isStopped: false })
        for (const [watch, { watcher }] of open) if (watcher === entry.actor) open.delete(watch)
        break
      case 'restarting':
        for (const [watch, { watcher }] of open) if (watcher === entry.actor) open.delete(watch)
        break
      case 'stopped': {
        const life = lives.get(entry.actor)
        if (life !== undefined) life.isStopped = true
        break
      }
      default:
    }
  }
  const endedUids = uidsOf(history)
  const isOver = (actor: string): boolean => {
    const life = lives.get(actor)
    return life === undefined || life.isStopped || endedUids.has(life.uid)
  }
  for (const [watch, { watcher, watched }] of open) {
    if (!isOver(watcher) && lives.has(watched) && isOver(watched)) {
      found.push(`watch ${watch} of ${watched} by ${watcher} did not fire`)
    }
  }
  return found
}

/**
 * No actor restarts more than `max` times within any `withinMs`. Counted for one life of its thread: the next
 * does not know of a failure that the thread did not live to report.
 */
export function restartsWithinBudget(max: number, withinMs: number): Checker {
  return history => {
    const found: string[] = []
    const times = new Map<string, number[]>()
    const uids = new Map<string, number>()
    for (const entry of history) {
      if (entry.type === 'started') {
        if (uids.get(entry.actor) !== entry.uid) times.delete(entry.actor)
        uids.set(entry.actor, entry.uid)
      }
      if (entry.type !== 'restarting') continue
      const recent = (times.get(entry.actor) ?? []).filter(timeMs => entry.atMs - timeMs < withinMs)
      recent.push(entry.atMs)
      times.set(entry.actor, recent)
      if (recent.length > max)
        found.push(`${entry.actor} restarted ${recent.length} times within ${withinMs} ms`)
    }
    return found
  }
}

/** What has stopped handles nothing. */
export const stoppedReceiveNothing: Checker = history => {
  const found: string[] = []
  const stopped = new Set<string>()
  for (const entry of history) {
    if (entry.type === 'stopped') stopped.add(entry.actor)
    else if (entry.type === 'started') stopped.delete(entry.actor)
    else if (entry.type === 'handled' && stopped.has(entry.to))
      found.push(`${keyOf(entry)} was handled by a stopped actor`)
  }
  return found
}

/**
 * When an actor ends or restarts, its children have ended. `graceMs`: for children on other threads, when
 * threads die; the runtime stops those as soon as it hears of it.
 */
export function childrenWithinParents(graceMs: number): Checker {
  return history => {
    const found: string[] = []
    const endedUids = new Map<number, number>()
    const lastMs = history.at(-1)?.atMs ?? 0
    for (const entry of history) if (entry.type === 'threadEnded') endedUids.set(entry.uid, entry.atMs)
    const open = new Map<string, { parent: string; uid: number }>()
    /** When a child lost its parent. */
    const orphans = new Map<string, { sinceMs: number; why: string; uid: number }>()
    const uids = new Map<string, number>()
    /** Between two instances, or over. */
    const absent = new Set<string>()
    const orphan = (parent: string, atMs: number, why: string): void => {
      absent.add(parent)
      for (const [child, given] of open) {
        if (given.parent === parent && !orphans.has(child))
          orphans.set(child, { sinceMs: atMs, why, uid: given.uid })
      }
    }
    const check = (child: string, untilMs: number): void => {
      const given = orphans.get(child)
      orphans.delete(child)
      if (given === undefined) return
      const endMs = Math.min(untilMs, endedUids.get(given.uid) ?? Number.POSITIVE_INFINITY)
      if (endMs - given.sinceMs > graceMs) {
        found.push(`${child} lived on ${(endMs - given.sinceMs).toFixed(1)} ms after its parent ${given.why}`)
      }
    }
    for (const entry of history) {
      switch (entry.type) {
        case 'started': {
          const { actor, parent, uid } = entry
          uids.set(actor, uid)
          absent.delete(actor)
          if (parent === undefined) break
          open.set(actor, { parent, uid })
          if (absent.has(parent)) orphans.set(actor, { sinceMs: entry.atMs, why: 'was away', uid })
          break
        }
        // Without an instance it lives no more than one that is over; it may be stopped before the next.
        case 'restarting':
        case 'stopped':
          check(entry.actor, entry.atMs)
          open.delete(entry.actor)
          orphan(entry.actor, entry.atMs, entry.type === 'stopped' ? 'stopped' : 'restarted')
          break
        case 'threadEnded':
          for (const [actor, uid] of uids)
            if (uid === entry.uid) orphan(actor, entry.atMs, 'died with its thread')
          break
        default:
      }
    }
    for (const child of [...orphans.keys()]) check(child, lastMs)
    return found
  }
}

/**
 * After the last fault, every asked actor answered within `withinMs`; `actors`: how many were asked.
 */
export function servesAgain(actors: number, withinMs: number): Checker {
  return history => {
    const calm = history.findLast(({ type }) => type === 'calm')
    if (calm === undefined) return ['the faults never stopped']
    const served = new Set<string>()
    for (const entry of history) {
      if (entry.type === 'served' && entry.atMs >= calm.atMs && entry.atMs <= calm.atMs + withinMs)
        served.add(entry.actor)
    }
    return served.size >= actors
      ? []
      : [`${served.size} of ${actors} actors answered within ${withinMs} ms after the last fault`]
  }
}

function keyOf({ from, to, number }: TellTag): string {
  return `${from} to ${to} #${number}`
}

function uidsOf(history: readonly HistoryEntry[]): Set<number> {
  const uids = new Set<number>()
  for (const entry of history) if (entry.type === 'threadEnded') uids.add(entry.uid)
  return uids
}
