/** The answers of `/actors` and `/actors/flight`: JSON, and text for people at a terminal. */

import {
  type ActorStatus,
  type Census,
  type FlightEvent,
  type SystemView,
  type ThreadCounters,
  type ThreadStatus,
  textOfEvent,
} from '@homing/actor'

const MIB = 2 ** 20

export interface ThreadRow {
  readonly thread: string
  readonly state: ThreadStatus['state']
  readonly lives: number
  readonly restarts_last_minute: number
  /** False: its actors are not shown. */
  readonly answered: boolean
  readonly actors: number
  readonly handled: number
  readonly asks_pending: number
  readonly mailbox_high_water: number
  readonly busy_ms: number
  readonly heap_used_bytes: number
  readonly heap_limit_bytes: number
}

export interface ActorRow {
  readonly name: string
  readonly thread: string
  readonly state: ActorStatus['state']
  readonly restarts: number
  readonly mailbox_depth: number
  readonly mailbox_high_water: number
  readonly children: readonly ActorRow[]
}

export interface ActorsView {
  readonly threads: readonly ThreadRow[]
  readonly actors: readonly ActorRow[]
  /** Actors and threads beyond the limit. */
  readonly left_out: number
}

/** Up to `limit` threads, and up to `limit` actors, parents before their children. */
export function actorsView(census: Census, system: SystemView, limit: number): ActorsView {
  const counters = new Map(system.counters().threads.map(one => [one.thread, one]))
  const unanswered = new Set(census.unanswered)
  const threads = system.threads().map(status => {
    return threadRow(status, counters.get(status.name), !unanswered.has(status.name))
  })
  let room = limit
  let leftOut = Math.max(0, threads.length - limit)
  const rowsOf = (actors: readonly ActorStatus[]): ActorRow[] =>
    actors.flatMap(({ mailboxDepth, mailboxHighWater, children, ...actor }) => {
      if (room === 0) {
        leftOut++
        rowsOf(children)
        return []
      }
      room--
      const { name, thread, state, restarts } = actor
      const figures = { restarts, mailbox_depth: mailboxDepth, mailbox_high_water: mailboxHighWater }
      return [{ name, thread, state, ...figures, children: rowsOf(children) }]
    })
  const actors = rowsOf(census.actors)
  return { threads: threads.slice(0, limit), actors, left_out: leftOut }
}

function threadRow(status: ThreadStatus, counters: ThreadCounters | undefined, answered: boolean): ThreadRow {
  return {
    thread: status.name,
    state: status.state,
    lives: status.lives,
    restarts_last_minute: status.restartsLately,
    answered,
    actors: counters?.actors ?? 0,
    handled: counters?.handled ?? 0,
    asks_pending: counters?.asksPending ?? 0,
    mailbox_high_water: counters?.mailboxHighWater ?? 0,
    busy_ms: Math.round(counters?.busyMs ?? 0),
    heap_used_bytes: counters?.heapUsedBytes ?? 0,
    heap_limit_bytes: counters?.heapLimitBytes ?? 0,
  }
}

/** The same for a terminal: a line for each thread, then the tree. */
export function actorsText({ threads, actors, left_out: leftOut }: ActorsView): string {
  const threadRows = threads.map(row => [
    row.thread,
    row.answered ? row.state : `${row.state}, silent`,
    `life ${row.lives}`,
    `${row.actors} actors`,
    `${row.handled} handled`,
    `most waiting ${row.mailbox_high_water}`,
    `busy ${(row.busy_ms / 1000).toFixed(1)} s`,
    row.heap_limit_bytes === 0
      ? ''
      : `heap ${Math.round(row.heap_used_bytes / MIB)} of ${Math.round(row.heap_limit_bytes / MIB)} MiB`,
  ])
  const actorRows: string[][] = []
  const draw = (rows: readonly ActorRow[], indent: string, isTop: boolean): void => {
    for (const [at, row] of rows.entries()) {
      const isLast = at === rows.length - 1
      const branch = isTop ? '' : isLast ? '└─ ' : '├─ '
      actorRows.push([
        `${indent}${branch}${row.name}`,
        row.thread,
        row.state,
        `waiting ${row.mailbox_depth} (most ${row.mailbox_high_water})`,
        row.restarts === 0 ? '' : `${row.restarts} restarts`,
      ])
      draw(row.children, isTop ? indent : `${indent}${isLast ? '   ' : '│  '}`, false)
    }
  }
  draw(actors, '', true)
  const rest = leftOut === 0 ? [] : [`… and ${leftOut} more: ?limit=`]
  return [...inColumns(threadRows), '', ...inColumns(actorRows), ...rest, ''].join('\n')
}

function inColumns(rows: readonly (readonly string[])[]): string[] {
  const widths: number[] = []
  for (const row of rows)
    for (const [at, text] of row.entries()) widths[at] = Math.max(widths[at] ?? 0, text.length)
  return rows.map(row =>
    row
      .map((text, at) => text.padEnd(widths[at]!))
      .join('  ')
      .trimEnd(),
  )
}

export function flightView(thread: string, events: readonly FlightEvent[]): object {
  return {
    thread,
    events: events.map(event => ({
      at: timeOf(event),
      kind: event.kind,
      actor: event.actor ?? null,
      type: event.type ?? null,
      detail: event.detail,
      count: event.count,
      in_hand: event.isInHand,
      text: textOfEvent(event),
    })),
  }
}

export function flightText(events: readonly FlightEvent[]): string {
  return events.map(event => `${timeOf(event)}  ${textOfEvent(event)}\n`).join('')
}

const timeOf = ({ atMs }: FlightEvent): string => new Date(atMs).toISOString()
