/**
 * One seed of a crowd: members on all threads throw numbered balls at each other, ask and fail, while threads
 * die, hang and are slow. A ledger counts what becomes of every ball, so that a run may be of any length.
 */

import { type ActorRef, defineActor, defineCapability, type Reply, type Supervision } from '@homing/actor'
import { createSimulation, type SeedOutcome, type SimulatedFaults } from '@homing/actor/simulation'
import { seededRandom } from '@homing/base'
import { Ledger } from './ledger.ts'

/** Balls that are thrown into the crowd in each round, for each member. */
const SERVED = 40
/** How often a ball is thrown on. */
const THROWS = 100
const ROUND_MS = 20
const REST_MS_MAX = 5000
const ASK_MS_MAX = 60
/** One ball in this many comes with an ask; one breaks its catcher. */
const BALLS_PER_ASK = 64
const BALLS_PER_FAILURE = 8192
const MEMBERS_PER_THREAD = 2

interface Stand {
  readonly ledger: Ledger
  /** The life of the thread. */
  readonly uid: number
}

const stand = defineCapability<Stand>({
  name: 'stand',
  create: () => {
    throw new Error('cannot make a stand: the simulation provides it')
  },
})

interface Ball {
  readonly from: number
  readonly to: number
  /** The life that threw it. */
  readonly uid: number
  readonly number: number
  /** Times that it is thrown on. */
  readonly left: number
}

type MemberMessage =
  | ({ readonly type: 'ball' } & Ball)
  | { readonly type: 'meet'; readonly members: readonly ActorRef<MemberMessage>[] }
  | { readonly type: 'question'; readonly how: number; readonly reply: Reply<number> }

const SUPERVISION: Supervision = {
  directive: 'restart',
  max: 1_000_000,
  within: '1m',
  backoff: { min: '1ms', max: '5ms' },
}

const member = defineActor(
  import.meta.url,
  'member',
)<MemberMessage, { readonly index: number }>({
  setup(ctx, { index }) {
    const { ledger, uid } = ctx.use(stand)
    const { random } = ctx
    let members: readonly ActorRef<MemberMessage>[] = []
    ledger.runs(index)

    const settle = (): void => ledger.settled(uid)
    const ask = (): void => {
      const to = members[random.below(members.length)]!
      const how = random.below(8)
      ledger.asked(uid)
      to.ask({ type: 'question', how }, { timeout: 1 + random.below(ASK_MS_MAX) }).then(answer => {
        settle()
        if (answer !== how + 1) ledger.violate(`an ask was answered ${answer}, not ${how + 1}`)
      }, settle)
    }
    const caught = (ball: Ball): void => {
      ledger.handled(ball.from, index, ball.number)
      const { length } = members
      if (ball.left > 0 && length > 0) {
        const to = random.below(length)
        throwBall(ledger, index, to, uid, ball.left - 1, members[to]!)
      }
      const roll = random.below(BALLS_PER_FAILURE)
      if (roll % BALLS_PER_ASK === 0 && length > 0) ask()
      if (roll === BALLS_PER_FAILURE - 1) {
        ledger.fails(index)
        throw new Error('a ball was too fast')
      }
    }
    return {
      ball: caught,
      meet(message) {
        members = message.members
      },
      question({ how, reply }) {
        // Some are never answered.
        if (how > 0) reply(how + 1)
      },
    }
  },
})

function throwBall(
  ledger: Ledger,
  from: number,
  to: number,
  uid: number,
  left: number,
  target: ActorRef<MemberMessage>,
): void {
  const number = ledger.next(from, to)
  if (target.tell({ type: 'ball', from, to, uid, number, left }) === 'ok') ledger.sent(from, to)
}

/**
 * The faults of a seed. A link that loses or doubles what it carries breaks what is checked here: these have
 * none.
 */
function faultsOf(seed: number): SimulatedFaults {
  const random = seededRandom(seed ^ 0xc40d)
  const often = (chance: number): number => (random.below(4) === 0 ? 0 : chance)
  return {
    crash: often(0.0005 * (1 + random.below(4))),
    delay: often(0.02),
    delayMsMax: 10,
    hang: often(0.0001),
    hangMsMax: 40,
    spareNotReady: often(0.3),
    slowStartMsMax: 100,
    pause: often(0.0005),
    pauseMsMax: 5,
    ...(random.below(4) === 0
      ? { linkFrames: 16 + random.below(200), spillFrames: 16 + random.below(200) }
      : {}),
  }
}

export interface CrowdOutcome extends SeedOutcome {
  readonly ledger: Ledger
  /** Threads that died. */
  readonly deaths: number
}

/** Runs a seed until `messages` have been handled under faults, then to rest. */
export async function runCrowd(seed: number, messages: number): Promise<CrowdOutcome> {
  const random = seededRandom(seed)
  const threadCount = 2 + random.below(2)
  const names = ['main', ...Array.from({ length: threadCount }, (_, index) => `core-${index}`)]
  const places = names.flatMap((_, thread) => Array.from({ length: MEMBERS_PER_THREAD }, () => thread))
  const outside = places.length
  const ledger = new Ledger([...places, 0])
  let deaths = 0
  const ballOf = ({ op, body }: { readonly op: number; readonly body: unknown }): Ball | undefined => {
    const { type } = (op === 1 ? body : {}) as { readonly type?: string }
    return type === 'ball' ? (body as Ball) : undefined
  }
  const simulation = await createSimulation({
    seed,
    pools: { core: { count: threadCount } },
    faults: faultsOf(seed),
    threadRestartsMax: 1_000_000,
    threadBackoff: { min: 0, max: '20ms' },
    provide({ name, uid }) {
      ledger.begins(uid, names.indexOf(name))
      return [[stand, { ledger, uid }]]
    },
    observer: {
      taken(frame) {
        const ball = ballOf(frame)
        if (ball !== undefined) ledger.taken(ball.from, ball.to, ball.uid)
      },
      lost(frame, cause) {
        const ball = ballOf(frame)
        if (ball === undefined) return
        const loss =
          cause === 'taken'
            ? 'window'
            : cause === 'unpublished'
              ? 'senderDead'
              : cause === 'orphaned'
                ? 'bothDead'
                : 'other'
        ledger.lostOnTheWay(ball.from, ball.to, loss)
      },
      ended(_thread, uid) {
        deaths++
        ledger.ends(uid)
      },
    },
  })
  const members = places.map((thread, index) =>
    simulation.spawn(member, {
      name: `member-${index}`,
      args: { index },
      thread: names[thread]!,
      supervision: SUPERVISION,
      mailbox: { capacity: 65_536 },
    }),
  )
  while (ledger.messages < messages && ledger.violations.length === 0) {
    for (const one of members) one.tell({ type: 'meet', members })
    for (const [to, one] of members.entries()) {
      for (let ball = 0; ball < SERVED; ball++) throwBall(ledger, outside, to, 1, THROWS, one)
    }
    await simulation.run(undefined, { within: ROUND_MS })
  }
  simulation.setFaults({})
  await simulation.run(() => ledger.isAtRest, { within: REST_MS_MAX, steps: 10_000_000 })
  if (ledger.onTheWay !== 0)
    ledger.violate(`${ledger.onTheWay} messages are neither handled nor lost at rest`)
  if (ledger.openAsks !== 0) ledger.violate(`${ledger.openAsks} asks did not settle`)
  const report = await simulation.settle(simulation.shutdown({ deadline: '5s' }), { within: '20s' })
  if (report.slow.length > 0) ledger.violate(`slow at the end: ${report.slow.join(', ')}`)
  return {
    traceHash: simulation.traceHash,
    steps: simulation.steps,
    violations: [...ledger.violations, ...simulation.violations],
    ledger,
    deaths,
  }
}
