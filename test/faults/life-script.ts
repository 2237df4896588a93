/**
 * Scripts of histories of lives: the kind of the engine, its observers, and the events, step by step. A
 * script is plain data drawn from a seed, so that a step can be taken out of it and the rest stays as it was.
 */

import { type Random, seededRandom } from '@homing/base'
import { type EventForm, PLAIN_MANNERS } from '@homing/engine'
import type { EngineKind, FirstSequence } from './life-engine.ts'

/**
 * False settings.
 *
 *   neighbour's replay     the replay port belongs to another engine
 *   ranks on one socket    two engines publish on one socket
 *   one port, two workers  a second worker is given the events port of the first
 *   one endpoint, two      the same for two instances of `homing indexer`
 *   renumbered             the peer knows another engine by the number of this one
 */
export const LIES = [
  'neighbour replay',
  'ranks on one socket',
  'one port, two workers',
  'one endpoint, two instances',
  'renumbered',
] as const
export type Lie = (typeof LIES)[number]

export const OBSERVERS = ['router', 'sidecar', 'service', 'peer'] as const
export type ObserverName = (typeof OBSERVERS)[number]

export type Step =
  | { readonly do: 'work'; readonly seed: number; readonly requests: number; readonly salted: boolean }
  | { readonly do: 'burst'; readonly batches: number }
  | { readonly do: 'wait'; readonly ms: number }
  | { readonly do: 'join' | 'leave' | 'rejoin'; readonly who: ObserverName; readonly isGraceful: boolean }
  | {
      readonly do: 'restart in place'
      readonly first: FirstSequence
      readonly isOtherProcess: boolean
      readonly blockTokens: number
      /** Live batches of the new life that are lost. */
      readonly unheard: number
    }
  | { readonly do: 'restart'; readonly downMs: number }
  | { readonly do: 'cut'; readonly who: ObserverName | 'all'; readonly ms: number }
  | { readonly do: 'lose' | 'repeat'; readonly who: ObserverName | 'all'; readonly batches: number }
  | {
      readonly do: 'delay'
      readonly who: ObserverName | 'all'
      readonly batches: number
      readonly ms: number
    }
  | { readonly do: 'lossy replay'; readonly every: number; readonly repliesMax: number }
  | { readonly do: 'silent replay' | 'clear' | 'calm' }
  /**
   * A removal is not reported, and answers show it; `isSaving`: while a checkpoint from before is written.
   */
  | { readonly do: 'contradict'; readonly isSaving: boolean }
  /**
   * The router leaves, and joins another process that says the same as the last batch under its number, and
   * not the same before.
   */
  | { readonly do: 'double' }
  | { readonly do: 'unknown removals'; readonly batches: number }
  | {
      readonly do: 'regroup'
      readonly group: 'none' | number
      readonly removalGroup: 'same' | 'none' | number
    }

export interface Script {
  readonly seed: number
  readonly kind: EngineKind
  readonly lie: Lie | undefined
  /** Those that are there from the start. */
  readonly present: readonly ObserverName[]
  readonly checkpoints: boolean
  /** How long a checkpoint takes to be written. */
  readonly writeMs: number
  readonly sidecarBatches: number
  readonly steps: readonly Step[]
}

/** Ways to deceive that can be left out, by name. */
export const DECEITS = [
  ...LIES,
  'last removal',
  'reports',
  'removal group',
  'regroup',
  'unknown removals',
  'untold salts',
  'in place',
  'in place, another sequence',
  'in place, another process',
  'block size',
  'checkpoints',
  'contradiction',
  'still clock',
  'empty buffer',
  'sliding group',
  'late batches',
  'long before',
] as const
export type Deceit = (typeof DECEITS)[number]

/** What the router does not see through yet. */
export const NOT_YET: readonly Deceit[] = []

/** The same script without some of what happens in it. */
export function without(script: Script, left: ReadonlySet<string>): Script {
  if (left.size === 0) return script
  const { kind } = script
  const { manners } = kind
  const isLeft = (deceit: Deceit): boolean => left.has(deceit)
  return {
    ...script,
    lie: script.lie !== undefined && isLeft(script.lie) ? undefined : script.lie,
    checkpoints: script.checkpoints && !isLeft('checkpoints'),
    kind: {
      ...kind,
      copies: kind.copies === 'last removal' && isLeft('last removal') ? 'each' : kind.copies,
      reportsAgain: kind.reportsAgain && !isLeft('reports'),
      hasStillClock: kind.hasStillClock && !isLeft('still clock'),
      keptBatches: kind.keptBatches === 0 && isLeft('empty buffer') ? 2 : kind.keptBatches,
      manners: {
        ...manners,
        removalGroup: isLeft('removal group') ? 'same' : manners.removalGroup,
        slidingGroup: isLeft('sliding group') ? -1 : manners.slidingGroup,
      },
    },
    steps: script.steps.flatMap((step): readonly Step[] => {
      if (step.do === 'regroup' && isLeft('regroup')) return []
      if (step.do === 'unknown removals' && isLeft('unknown removals')) return []
      if (step.do === 'contradict' && isLeft('contradiction')) return []
      if (step.do === 'double' && isLeft('still clock')) return []
      if (step.do === 'delay' && isLeft('late batches')) return []
      if (step.do === 'burst' && isLeft('long before')) return []
      if (step.do === 'work' && !manners.namesSalts && isLeft('untold salts'))
        return [{ ...step, salted: false }]
      if (step.do !== 'restart in place') return [step]
      if (isLeft('in place')) return []
      return [
        {
          ...step,
          first: isLeft('in place, another sequence') ? 'zero' : step.first,
          isOtherProcess: step.isOtherProcess && !isLeft('in place, another process'),
          blockTokens: isLeft('block size') ? 4 : step.blockTokens,
        },
      ]
    }),
  }
}

/** The least surprising engine. */
export const PLAIN_KIND: EngineKind = {
  isPolled: false,
  form: 'vllm-map',
  copies: 'each',
  manners: PLAIN_MANNERS,
  reportsAgain: false,
  offersReplay: true,
  keptBatches: 10_000,
  tellsStart: true,
  isClearLate: true,
  hasNewHashes: true,
  hasStillClock: false,
  blocks: 12,
}

export function drawScript(seed: number): Script {
  const random = seededRandom(seed)
  const one = <T>(...of: readonly T[]): T => of[random.below(of.length)]!
  const chance = (part: number): boolean => random.next() < part
  const lie = chance(0.2) ? one(...LIES) : undefined
  const checkpoints = chance(0.3)
  const kind = drawKind(random, one, chance)
  const present = OBSERVERS.filter(who => chance(who === 'router' ? 0.6 : 0.3))
  const work = (requestsMax: number): Step => ({
    do: 'work',
    seed: random.below(1e9),
    requests: 1 + random.below(requestsMax),
    salted: chance(0.1),
  })
  const join = (who: ObserverName): Step => ({ do: 'join', who, isGraceful: false })
  const steps: Step[] = [
    { do: 'work', seed: random.below(1e9), requests: 3 + random.below(6), salted: false },
  ]
  const count = 4 + random.below(9)
  for (let i = 0; i < count; i++) {
    steps.push(drawStep(random, one, chance, kind))
    if (chance(0.5)) steps.push(work(4))
  }
  const script = {
    seed,
    kind,
    lie,
    present,
    checkpoints,
    writeMs: one(0, 0, 300),
    sidecarBatches: one(1024, 1024, 4),
    steps,
  }
  if (chance(0.08)) return polled(script)
  // What takes several steps, in a row, is drawn too seldom by chance.
  switch (lie === 'renumbered' ? 'inherit' : one(undefined, ...SCENES)) {
    case 'long before': {
      const scene: readonly Step[] = [
        { do: 'burst', batches: one(60, 300, 1100, 1500) },
        work(6),
        join(one('router', 'service')),
        restartInPlace(random, one, chance),
        work(4),
      ]
      return { ...script, present: [], steps: [...scene, ...steps] }
    }
    case 'inherit': {
      const scene: readonly Step[] = [
        { do: 'wait', ms: 60 },
        join('service'),
        work(8),
        join('peer'),
        { do: 'wait', ms: 300 },
      ]
      return {
        ...script,
        kind: { ...kind, keptBatches: one(2, 6, 40) },
        steps: [...scene, work(4), ...steps],
      }
    }
    case 'checkpoint': {
      const scene: readonly Step[] = [
        join('router'),
        work(4),
        { do: 'wait', ms: one(200, 4500) },
        one<Step>({ do: 'contradict', isSaving: true }, drawStep(random, one, chance, kind)),
        { do: 'wait', ms: one(0, 400) },
        { do: 'rejoin', who: 'router', isGraceful: chance(0.3) },
        { do: 'wait', ms: 600 },
      ]
      return { ...script, checkpoints: true, writeMs: one(0, 300), steps: [...scene, ...steps] }
    }
    case 'double': {
      const scene: readonly Step[] = [join('router'), work(3), { do: 'double' }, { do: 'wait', ms: 600 }]
      return {
        ...script,
        kind: { ...kind, hasStillClock: true, hasNewHashes: false, blocks: 40 },
        checkpoints: true,
        present: [],
        steps: [...scene, ...steps.slice(2)],
      }
    }
  }
  return script
}

/** In the proportions in which they are drawn. */
const SCENES = [
  ...Array.from({ length: 12 }, () => undefined),
  'long before',
  'inherit',
  'checkpoint',
  'double',
] as const

type One = <T>(...of: readonly T[]) => T
type Chance = (part: number) => boolean

/** Of an engine that is polled there is only what its sidecar hears. */
function polled(script: Script): Script {
  const { kind, steps } = script
  const isOfSidecar = (step: Step): boolean =>
    !('who' in step) || ['all', 'router', 'sidecar'].includes(step.who)
  return {
    ...script,
    lie: undefined,
    present: ['sidecar', 'router'],
    checkpoints: false,
    kind: {
      ...kind,
      isPolled: true,
      form: 'vllm-map',
      copies: 'once',
      manners: PLAIN_MANNERS,
      reportsAgain: false,
      isClearLate: false,
      hasStillClock: false,
    },
    steps: steps.filter(isOfSidecar).flatMap((step): readonly Step[] => {
      if (step.do === 'regroup' || step.do === 'double' || step.do === 'burst') return []
      if (step.do !== 'restart in place') return [step]
      return [{ ...step, first: 'zero', blockTokens: 4 }]
    }),
  }
}

function drawKind(random: Random, one: One, chance: Chance): EngineKind {
  const form = one<EventForm>(
    'vllm-map',
    'vllm-map',
    'vllm-map',
    'vllm-array',
    'vllm-array-8',
    'sglang-map',
    'sglang-array',
  )
  const isSglang = form.startsWith('sglang')
  const group =
    form === 'vllm-map' || form === 'vllm-array'
      ? one<'form' | 'none' | number>('form', 'form', 'none', 3)
      : 'form'
  const slidingGroup = typeof group === 'number' && chance(0.5) ? one(0, 5) : -1
  const copies = isSglang ? 'once' : one<EngineKind['copies']>('each', 'each', 'last removal')
  return {
    isPolled: false,
    form,
    copies,
    manners: {
      ...PLAIN_MANNERS,
      group,
      slidingGroup,
      namesKinds: slidingGroup < 0 ? chance(0.7) : chance(0.8),
      removalGroup:
        group !== 'none' && slidingGroup < 0 && !isSglang && chance(0.1)
          ? one<'none' | number>('none', 5)
          : 'same',
      namesSalts: form !== 'vllm-array-8' && !(form === 'sglang-array' && chance(0.3)),
    },
    reportsAgain: !isSglang && chance(0.25),
    offersReplay: chance(0.8),
    keptBatches: one(10_000, 10_000, 10_000, 40, 6, 2, 0),
    tellsStart: chance(0.7),
    isClearLate: !isSglang,
    hasNewHashes: chance(0.5),
    hasStillClock: false,
    blocks: 6 + random.below(10),
  }
}

function drawStep(random: Random, one: One, chance: Chance, kind: EngineKind): Step {
  const who = (): ObserverName => one('router', 'router', ...OBSERVERS)
  const whoever = (): ObserverName | 'all' => one<ObserverName | 'all'>('all', 'router', ...OBSERVERS)
  const steps: readonly (() => Step)[] = [
    () => ({ do: 'work', seed: random.below(1e9), requests: 1 + random.below(8), salted: false }),
    () => ({ do: 'wait', ms: one(20, 200, 1500, 3000, 6000) }),
    () => ({ do: 'join', who: who(), isGraceful: false }),
    () => ({ do: 'join', who: who(), isGraceful: false }),
    () => ({ do: 'rejoin', who: who(), isGraceful: chance(0.5) }),
    () => ({ do: 'leave', who: who(), isGraceful: chance(0.5) }),
    () => restartInPlace(random, one, chance),
    () => restartInPlace(random, one, chance),
    () => restartInPlace(random, one, chance),
    () => ({ do: 'restart', downMs: one(0, 20, 400) }),
    () => ({ do: 'cut', who: whoever(), ms: one(0, 30, 500) }),
    () => ({ do: 'lose', who: whoever(), batches: 1 + random.below(4) }),
    () => ({ do: 'lose', who: whoever(), batches: 1 + random.below(4) }),
    () => ({ do: 'repeat', who: whoever(), batches: 1 + random.below(3) }),
    () => ({ do: 'delay', who: whoever(), batches: 1 + random.below(3), ms: one(5, 40, 150) }),
    () => ({ do: 'lossy replay', every: one(0, 2, 3), repliesMax: one(0, 1, 3, 10) }),
    () => ({ do: 'silent replay' }),
    () => ({ do: 'clear' }),
    () => ({ do: 'calm' }),
    () => ({ do: 'contradict', isSaving: false }),
    () => ({ do: 'unknown removals', batches: 1 + random.below(3) }),
    ...(kind.form.startsWith('vllm-') && kind.form !== 'vllm-array-8' && kind.manners.slidingGroup < 0
      ? [
          (): Step => ({
            do: 'regroup',
            group: one<'none' | number>('none', 0, 3),
            removalGroup: one<'same' | 'none' | number>('same', 'same', 'none', 5),
          }),
        ]
      : []),
  ]
  return steps[random.below(steps.length)]!()
}

function restartInPlace(random: Random, one: One, chance: Chance): Step {
  return {
    do: 'restart in place',
    first: one<FirstSequence>('zero', 'zero', 'zero', 'same', -1 - random.below(4), 1 + random.below(3)),
    isOtherProcess: chance(0.25),
    blockTokens: chance(0.08) ? 8 : 4,
    unheard: one(0, 0, 1, 2, 5),
  }
}

/** For people: a line per step. */
export function scriptText({
  seed,
  kind,
  lie,
  present,
  checkpoints,
  writeMs,
  sidecarBatches,
  steps,
}: Script): string {
  const { manners, ...rest } = kind
  const words = (fields: object): string =>
    Object.entries(fields)
      .filter(([, value]) => value !== undefined)
      .map(([name, value]) => `${name} ${String(value)}`)
      .join(', ')
  return [
    `seed ${seed}`,
    `  engine    ${words(rest)}`,
    `  manners   ${words(manners)}`,
    `  around    ${words({ lie, present: present.join(' ') || 'nobody', checkpoints, writeMs, sidecarBatches })}`,
    ...steps.map((step, i) => {
      const { do: what, ...fields } = step
      return `  ${String(i).padStart(2)}  ${what}${Object.keys(fields).length > 0 ? `: ${words(fields)}` : ''}`
    }),
  ].join('\n')
}
