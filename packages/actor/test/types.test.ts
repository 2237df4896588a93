/**
 * What the compiler refuses. Nothing here runs: `tsc` in `pnpm check` fails when a line under
 * `@ts-expect-error` has no error, or another line has one.
 */

import {
  type ActorRef,
  type ActorSystemOptions,
  createActorSystem,
  defineActor,
  type Reply,
  signal,
} from '@homing/actor'
import { createTestSystem } from '@homing/actor/testing'
import t from 'tap'

type ShopMessage =
  | { readonly type: 'order'; readonly item: string; readonly reply: Reply<number> }
  | { readonly type: 'price'; readonly of: string; readonly reply: Reply<bigint | undefined> }
  | { readonly type: 'open' }
  | { readonly type: 'meet'; readonly other: ActorRef<ShopMessage>; readonly at: Date }

interface ShopArgs {
  readonly stock: number
}

const shop = defineActor<ShopMessage, ShopArgs>(
  import.meta.url,
  'shop',
)({
  control: ['open'],
  setup(ctx, { stock }) {
    return {
      order: ({ item, reply }) => reply(item.length + stock),
      async price({ of, reply }) {
        reply(BigInt(of))
      },
      open() {},
      meet: ({ other }) => ctx.watch(other),
      [signal]() {},
    }
  },
})
const plain = defineActor<{ readonly type: 'go' }>(import.meta.url, 'plain')({ setup: () => ({ go() {} }) })
const unchecked = defineActor(
  import.meta.url,
  'unchecked',
)<{ readonly type: 'run'; readonly work: () => void }>({
  setup: () => ({ run: ({ work }) => work() }),
})

async function asks(ref: ActorRef<ShopMessage>): Promise<void> {
  const soon = { timeout: '1s' } as const
  const ordered: number = await ref.ask({ type: 'order', item: 'tea' }, soon)
  const price: bigint | undefined = await ref.ask({ type: 'price', of: 'tea' }, soon)
  void [ordered, price]
  const either = {} as
    | { readonly type: 'order'; readonly item: string }
    | { readonly type: 'price'; readonly of: string }
  const answer: number | bigint | undefined = await ref.ask(either, soon)
  void answer
  // @ts-expect-error a field that no variant has
  await ref.ask({ type: 'order', item: 'tea', colour: 'green' }, soon)
  // @ts-expect-error a field of another variant
  await ref.ask({ type: 'order', item: 'tea', of: 'tea' }, soon)
  // @ts-expect-error a field is missing
  await ref.ask({ type: 'order' }, soon)
  // @ts-expect-error a field of another type
  await ref.ask({ type: 'order', item: 7 }, soon)
  // @ts-expect-error it is no ask
  await ref.ask({ type: 'open' }, soon)
  // @ts-expect-error there is no such type
  await ref.ask({ type: 'sell' }, soon)
  // @ts-expect-error the answer is a number
  const wrong: string = await ref.ask({ type: 'order', item: 'tea' }, soon)
  void wrong
  // @ts-expect-error a deadline is needed
  await ref.ask({ type: 'order', item: 'tea' })
  // @ts-expect-error a duration has a unit
  await ref.ask({ type: 'order', item: 'tea' }, { timeout: '5 parsecs' })
  // @ts-expect-error no field too many in a tell either
  ref.tell({ type: 'open', item: 'tea' })
  const part: ActorRef<Extract<ShopMessage, { readonly type: 'open' }>> = ref
  part.tell({ type: 'open' })
  // @ts-expect-error it may be told more than that ref takes
  const whole: ActorRef<ShopMessage> = part
  void whole
}

function arms(): void {
  const order = ({ reply }: { readonly reply: Reply<number> }) => reply(1)
  const price = ({ reply }: { readonly reply: Reply<bigint | undefined> }) => reply(undefined)
  const rest = { open() {}, meet() {} }
  defineActor<ShopMessage>(import.meta.url, 'x')({ setup: async () => ({ order, price, ...rest }) })
  // @ts-expect-error an arm is missing
  defineActor<ShopMessage>(import.meta.url, 'x')({ setup: () => ({ order, ...rest }) })
  // @ts-expect-error there is no such message type
  defineActor<ShopMessage>(import.meta.url, 'x')({ setup: () => ({ order, price, ...rest, close() {} }) })
  // @ts-expect-error the arm of an ask takes no message, so it never replies
  defineActor<ShopMessage>(import.meta.url, 'x')({ setup: () => ({ order() {}, price, ...rest }) })
  defineActor<ShopMessage>(
    import.meta.url,
    'x',
  )({
    // @ts-expect-error the answer is a number
    setup: () => ({ order: ({ reply }) => reply('one'), price, ...rest }),
  })
  defineActor<ShopMessage>(
    import.meta.url,
    'x',
  )({
    // @ts-expect-error no message has that type
    control: ['close'],
    setup: () => ({ order, price, ...rest }),
  })
}

class Basket {
  readonly items: string[] = []
  add(item: string): void {
    this.items.push(item)
  }
}

interface Tree {
  readonly name: string & { readonly brand?: 'name' }
  readonly branches: readonly Tree[]
  readonly ages: ReadonlyMap<string, { readonly born: Date }>
  readonly bytes?: Uint8Array | SharedArrayBuffer
  readonly any: unknown
}

function messages(): void {
  const url = import.meta.url
  defineActor<{ readonly type: 'm'; readonly tree: Tree; readonly to: readonly ActorRef<ShopMessage>[] }>(
    url,
    'x',
  )
  defineActor<{ readonly type: 'm'; readonly answer: { readonly to: Reply<string> } }>(url, 'x')
  defineActor<{
    readonly type: 'm'
    readonly error: Error
    readonly how: RegExp
    readonly seen: Set<number>
  }>(url, 'x')
  // @ts-expect-error a function
  defineActor<{ readonly type: 'm'; readonly work: () => void }>(url, 'x')
  // @ts-expect-error a function that is no Reply, whatever it looks like
  defineActor<{ readonly type: 'm'; readonly work: (n: number) => void }>(url, 'x')
  // @ts-expect-error a function further inside
  defineActor<{ readonly type: 'm'; readonly list: readonly { readonly work: () => void }[] }>(url, 'x')
  // @ts-expect-error an instance of a class
  defineActor<{ readonly type: 'm'; readonly basket: Basket }>(url, 'x')
  // @ts-expect-error a symbol
  defineActor<{ readonly type: 'm'; readonly key: symbol }>(url, 'x')
  // @ts-expect-error a promise
  defineActor<{ readonly type: 'm'; readonly later: Promise<number> }>(url, 'x')
  // @ts-expect-error a ref in a Map
  defineActor<{ readonly type: 'm'; readonly refs: ReadonlyMap<string, ActorRef<ShopMessage>> }>(url, 'x')
  // @ts-expect-error one variant of several
  defineActor<ShopMessage | { readonly type: 'm'; readonly work: () => void }>(url, 'x')
}

async function spawns(options: ActorSystemOptions, name: string, index: number): Promise<void> {
  const system = await createActorSystem({ pools: { core: { count: 2 }, 'far-off': { count: index } } })
  const args = { stock: 1 }
  for (const thread of ['here', 'main', 'dedicated', 'core-0', 'core-1', 'far-off-7'] as const) {
    system.spawn(shop, { name: 'shop', args, thread })
  }
  system.spawn(shop, { name: 'shop', args, thread: name })
  system.spawn(shop, { name: 'shop', args, thread: `core-${index}` })
  system.spawn(shop, { name: 'shop', args, thread: { pool: 'core', key: name } })
  system.spawn(shop, { name: 'shop', args, ...(index > 1 ? { thread: 'main' } : {}) })
  // @ts-expect-error the pool has two threads
  system.spawn(shop, { name: 'shop', args, thread: 'core-2' })
  // @ts-expect-error there is no such pool
  system.spawn(shop, { name: 'shop', args, thread: 'cor-0' })
  // @ts-expect-error it is misspelt
  system.spawn(shop, { name: 'shop', args, thread: 'dedicate' })
  // @ts-expect-error there is no such pool
  system.spawn(shop, { name: 'shop', args, thread: { pool: 'cor', key: 1 } })
  // @ts-expect-error args are missing
  system.spawn(shop, { name: 'shop' })
  // @ts-expect-error args are of another type
  system.spawn(shop, { name: 'shop', args: { stock: 'much' } })
  // @ts-expect-error there is no such option
  system.spawn(shop, { name: 'shop', args, threads: 'core-0' })
  // @ts-expect-error within bounds a drain only
  void system.stop(system.spawn(plain, { name: 'plain' }), { within: '1s' })

  system.spawn(plain, { name: 'plain' })
  system.spawn(plain, { name: 'plain', args: undefined, thread: 'core-0' })
  system.spawn(unchecked, { name: 'unchecked' })

  // Without knowing the pools, the compiler knows what the name of a thread looks like.
  const other = await createActorSystem(options)
  other.spawn(plain, { name: 'plain', thread: 'core-7' })
  // @ts-expect-error it is misspelt
  other.spawn(plain, { name: 'plain', thread: 'Main' })
  createTestSystem().spawn(plain, { name: 'plain', thread: 'core-7' })
  defineActor<{ readonly type: 'go' }>(
    import.meta.url,
    'x',
  )({
    setup(ctx) {
      ctx.spawn(shop, { name: 'shop', args, thread: 'core-0' })
      ctx.spawn(plain, { name: 'plain' })
      // @ts-expect-error it is misspelt
      ctx.spawn(plain, { name: 'plain', thread: 'dedicate' })
      return { go() {} }
    },
  })
}

t.test('the compiler has the last word on all of this', t => {
  t.ok([asks, arms, messages, spawns].every(cases => typeof cases === 'function'))
  t.end()
})
