/**
 * Question   How much CPU time does the router take for a request, compared with a plain relay, with other
 *            routers and with itself before a change?
 * Workload   Chats of `promptTokens` tokens, three quarters of which were seen before: `conversations`
 *            beginnings, each prompt with an end of its own. Answers of `outputTokens` tokens, streamed (part
 *            stream) and in one piece (part whole), from simulated engines, `engines` for each arm, that make
 *            a token in 6.5 ms ÷ `speed`. Parts new-1k … new-100k: chats of new text, prose with some code,
 *            answers of 8 tokens in one piece. Parts next-1k … next-100k: conversations of that length that
 *            go on by a turn of 128 tokens with each request. `parts=` takes some of them. `tokenizer=` is
 *            the directory of a tokenizer for routers and engines.
 *            Parts plane-stream and plane-whole: stream and whole once more, through routers that differ in
 *            their request plane (`--request-plane`) alone; KV events come over ZeroMQ to all of them.
 *            Parts legs-1k, legs-12k, legs-100k: stream with prompts of that length, in two legs: one engine
 *            computes prompts, one answers.
 *            Parts open-…: one server at a time between a load and mock engines that answer at once, in an
 *            open loop. open-seen-N: three quarters of each prompt came before; open-new-N: new text;
 *            open-next-N: the next turn of a conversation; 1k at 200/s, 12k at 25/s, 100k at 3/s, one token
 *            back. open-stream: 1k at 50/s, 50 chunks, one every 20 ms. open-rate: the highest rate of 1k
 *            with p99 < `rateP99MsMax` and nothing lost. With -events behind it the engines publish the
 *            blocks of each prompt (frames made before the load), without it nothing. --vs runs these
 *            parts, with others in turn; `against=` makes `before` one of them.
 * Arms       direct       client → engine; of legs-…: client → the one engine, client → the other
 *            relay        a Node program that takes the engines in turn and pipes both bodies
 *            relay parse  the same, with the body read whole and given to JSON.parse
 *            homing       the router of this checkout, with KV events and a tokenizer of its own
 *            before       the router of another checkout (installed), with `against=PATH`
 *            whole, apart of legs-…: the router of this checkout before two engines that take whole
 *                         requests, or one leg each
 *            http, tcp, nats   of plane-…: the router of this checkout, by how it calls its engines; nats
 *                         where nats-server is installed: there the engines' process also relays to itself
 *            The engines of these parts are ten times as fast, which changes how long a part takes.
 * Warm-up    A router runs for days, so code that is not compiled yet is no part of the question: relays and
 *            router first get `warmUp` requests each, 64 at a time: four fifths new text of 1,000 tokens, one
 *            fifth turns of conversations of 4,000, which another thread of the router reads. Then come
 *            requests of the part itself.
 *            Open parts: load and engines are warmed before what is sent directly; the server's first
 *            `firstS` seconds are figures of their own (not those of open-next, which begin with its
 *            conversations), then come `openWarmUp` requests of that kind, then `measureS` seconds.
 * Loop       closed, `concurrency` requests at a time: `requests` on each arm (fewer of 12k and 100k tokens),
 *            in slices of `slice`: the arms take turns, forwards and backwards. Client, engines and each
 *            router are processes.
 *            Open parts: requests are due at instants that were fixed before, the same for all, whatever
 *            became of those before; latency counts from that instant. The server has one core, load and
 *            engines another (taskset, where there is one).
 * Checked    Every answer is what the engine says to that prompt directly; the router's trust is exact when
 *            the clock starts, and its overlap at least a quarter of the prompt.
 *            Open parts: each answer is the engine's to that request, and streams are whole (but of dynamo,
 *            which brings engines of its own); at the end of an -events part trust is exact.
 * Read it    `… homing`: CPU time (user and system) of the router process for a request, with the relays as
 *            raw figures; others on the machine change it less than the clock. `homing ÷ before` is of the
 *            same run, so each run is a round: `--runs 7` for a verdict. `first byte` is the median at the
 *            client, which all else on the machine delays. `pieces`: reads of one answer at the client; fewer
 *            than tokens means that chunks came together, which is cheaper for everybody.
 *            `--pairs 24 against=PATH`: one router at a time, new processes for each, and the ratio of CPU
 *            times with its 95 % interval, beside that of this router to itself. `of V8's`: compiler and
 *            collector, which take between a tenth and a quarter, by process; `of its threads` is all else.
 *            `in most slices` is the median of slices, which leaves out those that V8 compiled in.
 *            `parts=stream slice=64 warmUp=1000 requests=512 concurrency=16` warms with 512 of the part
 *            itself. Answers are the same at all.
 *            plane-…: `tcp ÷ http` is the CPU time of the router process for a request over TCP, by that over
 *            HTTP, of the same run; at most 1.1 is the floor. `--runs 7` for a verdict. Broker and engines
 *            are not in it.
 *            legs-…: `apart ÷ whole` is the CPU time of the router for a request in two legs, by that of a
 *            whole one; at most 1.6 is the floor. `first byte added`: what the router adds to that of the
 *            direct arm, which has prefill, transfer and two calls in it, as a median over requests that are
 *            alone; at most 2 ms is the floor, on a machine where nothing else runs.
 *            Open parts: `CPU` of the server and all its children for a request; `added` is less what the
 *            same load met directly a moment before; `lag` is how late the load was, `other cores` what
 *            else ran: "do not trust" says when one of them, or the core of the load, was the limit.
 *            `first`: of the first seconds. `held`: the highest rate.
 */

import { existsSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import {
  isPaired,
  type Measures,
  type Peer,
  parameter,
  runBench,
  type Skip,
  usage,
  versus,
} from '../harness.ts'
import { answersPin, CLOSED_PARTS, isClosedPart, runAlonePart, runClosedPart } from './closed-parts.ts'
import { isLegsPart, LEGS_PARTS, runLegsPart } from './legs-parts.ts'
import { type Arm, isOpenPart, OPEN_PARTS, runOpenPart } from './open-parts.ts'
import { TINY_TOKENIZER } from './prompts.ts'
import {
  findRival,
  howToInstall,
  type Place,
  RIVALS,
  type Rival,
  relayCommand,
  routerCommand,
  routerFile,
  versionOf,
} from './rivals.ts'

const ALONE_PARTS = CLOSED_PARTS.filter(name => !name.startsWith('plane-'))
const HERE = fileURLToPath(new URL('../..', import.meta.url))

const against = parameter('against', { smoke: '', full: '' })
const tokenizer = parameter('tokenizer', { smoke: TINY_TOKENIZER, full: TINY_TOKENIZER })
const isComparison = versus.length > 0 && !isPaired
const partNames = parameter('parts', {
  smoke: isComparison ? 'open-seen-1k,open-rate' : 'stream,whole,next-1k',
  full: (isComparison ? OPEN_PARTS : isPaired ? ALONE_PARTS : [...CLOSED_PARTS, ...LEGS_PARTS]).join(','),
}).split(',')

if (isPaired && partNames.some(name => name.startsWith('plane-') || isLegsPart(name)))
  usage('--pairs has no plane- or legs- parts')
const unknownPart = partNames.find(name => !isClosedPart(name) && !isLegsPart(name) && !isOpenPart(name))
if (unknownPart !== undefined) {
  usage(
    `parts=${unknownPart.slice(0, 80)}: not stream, whole, plane-stream, plane-whole, legs-Nk, new-Nk, next-Nk, open-seen-Nk, open-new-Nk or open-next-Nk (1k, 12k, 100k), ` +
      'open-stream or open-rate; those of open- also with -events',
  )
}
if (isComparison && !partNames.some(isOpenPart)) usage('--vs compares open- parts, and parts= has none')
if (against !== '' && !existsSync(routerFile(against))) usage(`against=${against}: not a checkout of homing`)

/** What --vs can name. */
const openArms: readonly Arm[] = [
  { name: 'direct', command: undefined, isHoming: false },
  { name: 'relay', command: relayCommand, isHoming: false },
  ...Object.entries(RIVALS).map(([name, rival]) => ({
    name,
    command: (place: Place) => rival.command(findRival(rival)!, place),
    engines: rival.engines && ((place: Place) => rival.engines!(findRival(rival)!, place)),
    isHoming: false,
  })),
  ...(against === ''
    ? []
    : [
        {
          name: 'before',
          command: (place: Place) => routerCommand(against, tokenizer, place),
          isHoming: true,
        },
      ]),
]
const HOMING: Arm = {
  name: 'homing',
  command: place => routerCommand(HERE, tokenizer, place),
  isHoming: true,
}

function toldVersion(rival: Rival): string | undefined {
  try {
    return versionOf(rival)
  } catch (error) {
    return usage((error as Error).message)
  }
}

const peers: Readonly<Record<string, Peer>> = Object.fromEntries(
  openArms.map((arm): [string, Peer] => {
    const rival = RIVALS[arm.name]
    const own = rival === undefined ? {} : { version: () => toldVersion(rival), install: howToInstall(rival) }
    return [
      arm.name,
      { run: part => runOf(arm, part), parts: partNames.filter(part => isPartOf(arm, part)), ...own },
    ]
  }),
)

/** Only routers of a checkout have closed parts, with --pairs. */
function isPartOf({ name }: Arm, part: string): boolean {
  return isOpenPart(part) || (isPaired && name === 'before')
}

function runOf(arm: Arm, part: string): Promise<Measures | Skip> {
  return isOpenPart(part)
    ? runOpenPart(part, arm, tokenizer)
    : runAlonePart(part, { checkout: against, tokenizer })
}

function run(part: string): Promise<Measures | Skip> {
  if (isOpenPart(part)) return runOpenPart(part, HOMING, tokenizer)
  if (isPaired) return runAlonePart(part, { checkout: HERE, tokenizer })
  const options = { checkout: HERE, against, tokenizer }
  return isLegsPart(part) ? runLegsPart(part, options) : runClosedPart(part, options)
}

/** With --pairs: this checkout by the other one. */
const PAIRED = { floor: 1.03, goal: 1, timesPeer: 'before' }
const RATIO = { floor: 1.05, goal: 1 }
const PLANE = { floor: 1.1, goal: 1 }
const LEGS = { floor: 1.6, goal: 1.3 }
const LEGS_ADDED_MS = { floor: 2, goal: 1 }
const SHORT = { floor: 2, goal: 1.5 }
const LONG = { floor: 1.5, goal: 1 }
await runBench(
  {
    name: 'http',
    question: 'What CPU time does the router take for a request?',
    parts: partNames,
    peers,
    targets: {
      'stream CPU': PAIRED,
      'stream CPU in most slices': PAIRED,
      'stream CPU of its threads': PAIRED,
      'whole CPU': PAIRED,
      'whole CPU in most slices': PAIRED,
      'whole CPU of its threads': PAIRED,
      'stream homing ÷ before': RATIO,
      'whole homing ÷ before': RATIO,
      'whole homing ÷ relay parse': SHORT,
      'new-1k homing ÷ relay parse': SHORT,
      'next-1k homing ÷ relay parse': SHORT,
      'next-100k homing ÷ relay parse': LONG,
      'plane-stream tcp ÷ http': PLANE,
      'plane-whole tcp ÷ http': PLANE,
      ...Object.fromEntries(
        LEGS_PARTS.flatMap(part => [
          [`${part} apart ÷ whole`, LEGS],
          [`${part} first byte added apart`, LEGS_ADDED_MS],
        ]),
      ),
    },
    pins: partNames.filter(part => !isLegsPart(part)).map(answersPin),
  },
  run,
)
