/**
 * Ring programs: the operations of the link's threads on a ring, reduced as far as possible; and models made
 * of them for the explorer.
 *
 *   writer   frames: reserve, write the words, commit; every `publishEvery` frames: publish, and ring when
 *            told to. No room: publish, ask to be woken, wait.
 *   reader   take up to `takeMax` frames, read their words, release, ring when told to, *then* deliver. No
 *            frames: park, wait.
 *   heir     a reader that takes over from a dead one: it ends the dead one's park, and announces itself to
 *            the writer.
 *
 * A frame has the number of its place in the sending order (1, 2, …) in each word after its size, so a
 * frame that is torn or mixed with another one is seen by its reader. Delivering is a note `got n`, having
 * read it is `read n`; the checks at the end compare them with what was sent.
 *
 * The ring's module is an argument: the one of production, or one with a stated change (patched-ring.ts).
 */

import assert from 'node:assert/strict'
import type * as ring from '../../src/links/ring/ring.ts'
import type { Words } from '../../src/links/ring/words.ts'
import type { Model, Monitor, StateView, VirtualThread } from './explorer.ts'
import { type Host, type Program, WordsFrom } from './model-words.ts'

export type RingModule = Pick<typeof ring, 'RingWriter' | 'RingReader' | 'RING_DATA'>

/** Where ring.ts has its words; its header promises these places. */
export const TAIL = 0
export const HEAD = 16
export const READER = 32
export const WRITER = 48
/** PARKED, and WAITING. */
const ASLEEP = 1
const TAKE_MAX = 2
/** Words between two rings of one model, and where words of other use begin. */
const RING_STRIDE = 256
/** The life of the reader's thread that the writers know of. */
const LIFE = 4096

export interface RingSetup {
  readonly module: RingModule
  readonly capacityWords: number
  /** Sizes in words of the frames to send, each at least 2. */
  readonly frames: readonly number[]
  /** How many of `frames` are in the ring at the start. Needs a module whose writer starts from memory. */
  readonly framesBefore?: number
  /** Head and tail at the start; 0 if left out. Needs a module whose writer starts from memory. */
  readonly start?: number
  readonly publishEvery?: number
  readonly takeMax?: number
  /** After these frames, by number, one is reserved and given up again. */
  readonly givesUpAfter?: readonly number[]
  /** How often the reader ends a park by itself, as by a timer. */
  readonly unparksMax?: number
  /** The reader ends its parks when it is woken, so that no writer rings while it runs. */
  readonly unparksWhenWoken?: boolean
  /** How many readers die, one after the other, each at any point. */
  readonly deaths?: number
  /** What a variant does wrong. */
  readonly mistake?: RingMistake
}

export type RingMistake = 'releases before reading' | 'delivers before releasing' | 'heir is not announced'

/** One writer and one reader; with `deaths`, heirs of the reader. */
export function oneRing(setup: RingSetup): Model {
  const deaths = setup.deaths ?? 0
  const readers: VirtualThread[] = []
  for (let life = 0; life <= deaths; life++) {
    const thread = { name: readerName(life), program: reader(setup, life > 0), mayDie: life < deaths }
    const heirOf = life > 0 ? { heirOf: readerName(life - 1) } : {}
    readers.push({ ...thread, ...heirOf, bells: ['frames'] })
  }
  const names = readers.map(({ name }) => name)
  const sleeps: Sleep[] = [
    { word: READER, sleeper: /^reader|^heir/, waker: /^writer/, bell: 'frames' },
    { word: WRITER, sleeper: /^writer/, waker: /^reader|^heir/, bell: 'space' },
  ]
  return {
    threads: [{ name: 'writer', program: writer(setup) }, ...readers],
    bells: ['frames', 'space'],
    memory: initialMemory(setup),
    monitor: parkMonitor(sleeps, deaths),
    nameWord,
    invariant: state => withinCapacity(state, 0, setup.capacityWords),
    atEnd: state =>
      checkWriter(state, 'writer') ??
      checkDelivery(state, setup, names) ??
      (deaths === 0 ? checkParks(state, sleeps) : undefined),
  }
}

/** Two writers with a ring each, and one reader that parks when both are empty. */
export function twoRings(setup: RingSetup, framesOfSecond = setup.frames): Model {
  const { capacityWords } = setup
  const second = { ...setup, frames: framesOfSecond }
  const sleeps: Sleep[] = [
    { word: READER, sleeper: /^reader/, waker: /^writer 0/, bell: 'frames' },
    { word: WRITER, sleeper: /^writer 0/, waker: /^reader/, bell: 'space' },
    { word: RING_STRIDE + READER, sleeper: /^reader/, waker: /^writer 1/, bell: 'frames' },
    { word: RING_STRIDE + WRITER, sleeper: /^writer 1/, waker: /^reader/, bell: 'space 1' },
  ]
  const program =
    (i: number): Program =>
    (words, host) =>
      writer(i === 0 ? setup : second, i)(new WordsFrom(words, i * RING_STRIDE), host)
  return {
    threads: [
      { name: 'writer 0', program: program(0) },
      { name: 'writer 1', program: program(1) },
      { name: 'reader', program: readerOfTwo(setup) },
    ],
    bells: ['frames', 'space', 'space 1'],
    monitor: parkMonitor(sleeps),
    nameWord,
    invariant: state =>
      withinCapacity(state, 0, capacityWords) ?? withinCapacity(state, RING_STRIDE, capacityWords),
    atEnd: state =>
      checkWriter(state, 'writer 0') ??
      checkWriter(state, 'writer 1') ??
      checkDelivery(state, setup, ['reader'], '0:') ??
      checkDelivery(state, second, ['reader'], '1:') ??
      checkParks(state, sleeps),
  }
}

/**
 * One ring whose reader dies. Each life of its thread has its own doorbell, as it has its own port: a writer
 * that does not know the heir yet rings a port without a listener. `ringsNewPort`: when the writer learns of
 * the heir, it rings the new port once, whatever the reader's state.
 */
export function newPort(setup: RingSetup, ringsNewPort: boolean): Model {
  const bells = ['frames', 'frames 1']
  const heir: Program = (words, host) => {
    words.store(LIFE, 1)
    host.ring('space')
    reader(setup, true, bells[1])(words, host)
  }
  const eventLoop: Program = (words, host) => {
    let life = 0
    const listen = () => {
      if (life === 1 || words.load(LIFE) === 0) return
      life = 1
      if (ringsNewPort) host.ring(bells[1]!)
    }
    const listening: Host = {
      ring: () => host.ring(bells[life]!),
      wait(bell) {
        host.wait(bell)
        listen()
      },
      poll: bell => host.poll(bell),
      choose: count => host.choose(count),
      note: text => host.note(text),
    }
    writer(setup)(words, listening)
    while (life === 0) listening.wait('space')
  }
  return {
    memory: initialMemory(setup),
    nameWord,
    threads: [
      { name: 'writer', program: eventLoop },
      { name: 'reader', program: reader(setup, false), mayDie: true, bells: ['frames'] },
      { name: 'heir', program: heir, heirOf: 'reader' },
    ],
    bells: [...bells, 'space'],
    invariant: state => withinCapacity(state, 0, setup.capacityWords),
    atEnd(state) {
      const isHeard = state.status('reader') !== 'dead' || state.status('writer') === 'ended'
      return isHeard ? checkDelivery(state, setup, ['reader', 'heir']) : checkWriter(state, 'writer')
    },
  }
}

/** One ring whose writer dies at any point. `isAnnounced`: main then wakes the reader to take the rest. */
export function writerDeath(setup: RingSetup, isAnnounced: boolean): Model {
  const main: Program = (_, host) => {
    if (isAnnounced) host.ring('frames')
  }
  return {
    threads: [
      { name: 'writer', program: writer(setup), mayDie: true, bells: ['space'] },
      { name: 'reader', program: reader(setup, false) },
      { name: 'main', program: main, heirOf: 'writer' },
    ],
    bells: ['frames', 'space'],
    memory: initialMemory(setup),
    nameWord,
    invariant: state => withinCapacity(state, 0, setup.capacityWords),
    atEnd(state) {
      if (state.status('writer') !== 'dead') return checkDelivery(state, setup, ['reader'])
      const got = state.notes('reader').filter(note => note.startsWith('got '))
      // All published frames, which are the first of the frames to send.
      return checkDelivery(state, { ...setup, frames: setup.frames.slice(0, got.length) }, ['reader'])
    },
  }
}

function readerName(life: number): string {
  return life === 0 ? 'reader' : life === 1 ? 'heir' : `heir ${life}`
}

function writer(setup: RingSetup, ringNumber = 0): Program {
  const { module, capacityWords, frames, publishEvery = 1, framesBefore = 0, givesUpAfter = [] } = setup
  const space = ringNumber === 0 ? 'space' : `space ${ringNumber}`
  return (words, host) => {
    const ring = new module.RingWriter(words, capacityWords)
    const publish = () => {
      if (ring.publish()) host.ring('frames')
    }
    const reserve = (size: number): number => {
      for (;;) {
        const index = ring.reserve(size)
        if (index !== -1) return index
        if (ring.hasUnpublished) publish()
        if (ring.awaitSpace()) host.wait(space)
      }
    }
    for (let number = framesBefore + 1; number <= frames.length; number++) {
      const size = frames[number - 1]!
      const index = reserve(size)
      for (let i = 1; i < size; i++) words.write(index + i, number)
      ring.commit(index, size)
      if (givesUpAfter.includes(number)) reserve(2)
      if (number % publishEvery === 0) publish()
    }
    if (ring.hasUnpublished) publish()
  }
}

function reader(setup: RingSetup, isHeir: boolean, bell = 'frames'): Program {
  const { module, capacityWords, unparksMax = 0, mistake } = setup
  return (words, host) => {
    const ring = new module.RingReader(words, capacityWords)
    if (isHeir) {
      ring.unpark()
      if (mistake !== 'heir is not announced') host.ring('space')
    }
    let unparks = 0
    for (;;) {
      while (take(setup, ring, words, host, 'space', ''));
      if (!ring.park()) continue
      if (unparks < unparksMax && host.choose(2) === 1) {
        unparks += 1
        ring.unpark()
      } else {
        host.wait(bell)
        if (setup.unparksWhenWoken === true) ring.unpark()
      }
    }
  }
}

function readerOfTwo(setup: RingSetup): Program {
  const { module, capacityWords } = setup
  return (words, host) => {
    const memory0 = new WordsFrom(words, 0)
    const memory1 = new WordsFrom(words, RING_STRIDE)
    const ring0 = new module.RingReader(memory0, capacityWords)
    const ring1 = new module.RingReader(memory1, capacityWords)
    for (;;) {
      const some0 = take(setup, ring0, memory0, host, 'space', '0:')
      const some1 = take(setup, ring1, memory1, host, 'space 1', '1:')
      if (some0 || some1 || !ring0.park()) continue
      if (!ring1.park()) {
        ring0.unpark()
        continue
      }
      host.wait('frames')
      if (setup.unparksWhenWoken === true) {
        ring0.unpark()
        ring1.unpark()
      }
    }
  }
}

/** Takes up to `takeMax` frames and delivers them. False: there were none. */
function take(
  setup: RingSetup,
  ring: ring.RingReader,
  words: Words,
  host: Host,
  space: string,
  prefix: string,
): boolean {
  const { takeMax = TAKE_MAX, mistake } = setup
  const taken: number[] = []
  const deliver = () => {
    for (const number of taken) host.note(`${prefix}got ${number}`)
  }
  while (taken.length < takeMax) {
    const index = ring.next()
    if (index === -1) break
    ring.skip(index)
    if (mistake === 'releases before reading') ring.release()
    const number = readFrame(words, index)
    host.note(`${prefix}read ${number}`)
    taken.push(number)
  }
  if (taken.length === 0) return false
  if (mistake === 'delivers before releasing') deliver()
  if (ring.release()) host.ring(space)
  if (mistake !== 'delivers before releasing') deliver()
  return true
}

function readFrame(words: Words, index: number): number {
  const size = words.read(index)
  assert.ok(size >= 2 && size <= 8, `a frame has a size that none was written with: ${size}`)
  const number = words.read(index + 1)
  for (let i = 2; i < size; i++) assert.equal(words.read(index + i), number, 'a frame is mixed')
  return number
}

/** A ring at `start` that holds the first `framesBefore` frames. */
function initialMemory({ module, capacityWords, frames, framesBefore = 0, start = 0 }: RingSetup) {
  const memory = new Map<number, number>()
  let tail = start
  for (let number = 1; number <= framesBefore; number++) {
    const size = frames[number - 1]!
    const index = tail & (capacityWords - 1)
    const toEnd = capacityWords - index
    if (size > toEnd) {
      memory.set(module.RING_DATA + index, -1)
      tail += toEnd
    }
    const first = module.RING_DATA + (tail & (capacityWords - 1))
    memory.set(first, size)
    for (let i = 1; i < size; i++) memory.set(first + i, number)
    tail += size
  }
  memory.set(TAIL, tail | 0)
  memory.set(HEAD, start | 0)
  return memory
}

interface Sleep {
  /** Index of the state word. */
  readonly word: number
  /** Names of the threads that park. */
  readonly sleeper: RegExp
  /** Names of the threads that wake them, and the bell they ring. */
  readonly waker: RegExp
  readonly bell: string
}

/**
 * Each park (PARKED stored where it was not) ends once: by a doorbell of the other side, or by the side that
 * parked; likewise each wait for space. One counter per word: parks that have not ended. Then one per heir:
 * whether it has announced itself to the writer, by its first signal, which ends no wait.
 */
function parkMonitor(sleeps: readonly Sleep[], heirs = 0): Monitor {
  const counters = Array.from({ length: sleeps.length + heirs }, () => 0)
  return {
    counters,
    step(counters, { thread, kind, index, before, value, bell }) {
      if (kind === 'ring' && thread.startsWith('heir')) {
        const life = Number(thread.slice('heir '.length) || 1)
        const news = sleeps.length + life - 1
        if (counters[news] === 0) {
          counters[news] = 1
          return undefined
        }
      }
      for (const [i, sleep] of sleeps.entries()) {
        if (kind === 'ring') {
          if (bell !== sleep.bell || !sleep.waker.test(thread)) continue
          counters[i]! -= 1
          if (counters[i]! < 0) return `two doorbells for one park: ${thread} rings ${bell}`
        } else if (kind === 'store' && index === sleep.word && sleep.sleeper.test(thread)) {
          if (before !== ASLEEP && value === ASLEEP) counters[i]! += 1
          if (before === ASLEEP && value !== ASLEEP) counters[i]! -= 1
          if (counters[i]! < 0) return `a park ends twice: by a doorbell, then by ${thread}`
        }
      }
      return undefined
    },
  }
}

/** Each park that ended has an end; with the monitor's check, exactly one. */
function checkParks(state: StateView, sleeps: readonly Sleep[]): string | undefined {
  for (const [i, sleep] of sleeps.entries()) {
    const open = state.word(sleep.word) === ASLEEP ? 1 : 0
    if (state.counter(i) !== open) return `a park has ended without a doorbell: ${nameWord(sleep.word)}`
  }
  return undefined
}

function withinCapacity(state: StateView, start: number, capacityWords: number): string | undefined {
  const used = (state.word(start + TAIL) - state.word(start + HEAD)) | 0
  return used >= 0 && used <= capacityWords ? undefined : `${used} of ${capacityWords} words are used`
}

function checkWriter(state: StateView, name: string): string | undefined {
  return state.status(name) === 'ended' ? undefined : `lost wake-up: ${name} waits for space for ever`
}

/**
 * All frames in order, none twice, and none lost but what a dead reader had taken: at most `takeMax` in a
 * row, as the next reader that reads any will show by where it begins.
 */
function checkDelivery(
  state: StateView,
  setup: RingSetup,
  readers: readonly string[],
  prefix = '',
): string | undefined {
  const start = prefix === '1:' ? RING_STRIDE : 0
  const unread = (state.word(start + TAIL) - state.word(start + HEAD)) | 0
  // A frame given up after its reservation may stay there until the next frame is released.
  if (unread > 0 && setup.givesUpAfter === undefined) {
    return `lost wake-up: ${unread} words are published, and the reader is parked for ever`
  }
  let next = 1
  for (const [life, name] of readers.entries()) {
    for (const number of numbersOf(state.notes(name), `${prefix}got `)) {
      if (number !== next) return `frame ${number} is delivered in place of ${next}`
      next += 1
    }
    if (state.status(name) !== 'dead') break
    const readHere = numbersOf(state.notes(name), `${prefix}read `)
    const readLater = readers.slice(life + 1).flatMap(heir => numbersOf(state.notes(heir), `${prefix}read `))
    const after = readLater.at(0) ?? setup.frames.length + 1
    if (after - next > (setup.takeMax ?? TAKE_MAX)) return `${after - next} frames are lost by one death`
    for (; next < after; next++) {
      if (!readHere.includes(next)) return `frame ${next} is lost, though no reader had taken it`
    }
  }
  if (next <= setup.frames.length) return `frame ${next} is lost`
  return undefined
}

function numbersOf(notes: readonly string[], prefix: string): number[] {
  return notes.filter(note => note.startsWith(prefix)).map(note => Number(note.slice(prefix.length)))
}

function nameWord(index: number): string {
  if (index === LIFE) return 'life'
  const ring = index < RING_STRIDE ? '' : ` of ring ${Math.floor(index / RING_STRIDE)}`
  const word = index % RING_STRIDE
  const names = new Map([
    [TAIL, 'tail'],
    [HEAD, 'head'],
    [READER, 'reader state'],
    [WRITER, 'writer state'],
  ])
  return (names.get(word) ?? `frame word ${word - 64}`) + ring
}
