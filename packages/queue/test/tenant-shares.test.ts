import assert from 'node:assert/strict'
import fc from 'fast-check'
import t from 'tap'
import { type Claim, OTHER_TENANTS, TenantNames, TenantShares } from '../src/index.ts'

const WEIGHTS = new Map([
  ['b', 3],
  ['c', 0.1],
  ['d', 10],
])

/** A request, as the naive model sees it. */
interface Held {
  readonly tenant: string
  readonly came: number
  readonly claim: Claim<Held>
  isWaiting: boolean
}

/** Places of requests that wait or are served. Plain lists; every share is computed at each arrival. */
class Places {
  readonly shares: TenantShares<Held>
  readonly held: Held[] = []
  readonly #max: number
  #came = 0

  constructor(max: number) {
    this.#max = max
    this.shares = new TenantShares(new TenantNames(WEIGHTS, 'own'))
  }

  arrive(tenant: string): void {
    const before = this.held.map(held => ({ ...held, held }))
    const weights = [...new Set([tenant, ...this.held.map(held => held.tenant)])]
    const weightSum = weights.reduce((sum, name) => sum + weight(name), 0)
    const share = (name: string) => Math.max(1, (this.#max * weight(name)) / weightSum)
    const count = (name: string) => before.filter(one => one.tenant === name).length

    const one: Held = {
      tenant,
      came: this.#came++,
      isWaiting: true,
      get claim() {
        return claim
      },
    }
    const claim = this.shares.open(tenant, one)
    const displaced: Held[] = []
    const isIn = this.shares.makeRoom(claim, this.held.length + 1 - this.#max, ({ owner }) => {
      displaced.push(owner)
      this.end(owner)
    })
    if (isIn) {
      this.shares.add(claim, 1)
      this.shares.setMovable(claim, true)
      this.held.push(one)
    } else this.shares.close(claim)

    const over = before.filter(({ tenant: name, isWaiting }) => isWaiting && count(name) > share(name))
    if (before.length < this.#max) assert.deepEqual([isIn, displaced.length], [true, 0])
    else if (count(tenant) < share(tenant) && over.some(other => other.tenant !== tenant)) assert(isIn)
    if (!isIn) assert.deepEqual(displaced, [])
    for (const gone of displaced) {
      const ofTenant = before.filter(other => other.tenant === gone.tenant)
      const perWeight = (name: string) => count(name) / weight(name)
      assert.notEqual(gone.tenant, tenant)
      assert(perWeight(gone.tenant) > perWeight(tenant))
      assert(count(gone.tenant) > (this.#max * weight(gone.tenant)) / weightSum - 1e-9, 'more than its share')
      assert(ofTenant.length > 1, 'never the only one')
      assert(gone.isWaiting, 'never one that is served')
      assert.equal(gone.came, Math.max(...ofTenant.filter(other => other.isWaiting).map(({ came }) => came)))
      const others = before.filter(one => one.isWaiting && count(one.tenant) > 1)
      assert.equal(perWeight(gone.tenant), Math.max(...others.map(other => perWeight(other.tenant))))
    }
  }

  serve(nth: number): void {
    const waiting = this.held.filter(({ isWaiting }) => isWaiting)
    const one = waiting[nth % waiting.length]
    if (one === undefined) return
    one.isWaiting = false
    this.shares.setMovable(one.claim, false)
  }

  end(one: Held | undefined): void {
    if (one === undefined) return
    this.held.splice(this.held.indexOf(one), 1)
    this.shares.close(one.claim)
  }
}

function weight(tenant: string): number {
  return WEIGHTS.get(tenant) ?? 1
}

t.test('with less than its share none is refused while another waits with more, whatever comes', async t => {
  const tenant = fc.constantFrom('a', 'a', 'a', 'b', 'c', 'd', 'e')
  const step = fc.oneof(
    { weight: 6, arbitrary: fc.record({ do: fc.constant('arrive' as const), tenant }) },
    { weight: 1, arbitrary: fc.record({ do: fc.constant('serve' as const), nth: fc.nat(100) }) },
    { weight: 1, arbitrary: fc.record({ do: fc.constant('end' as const), nth: fc.nat(100) }) },
  )
  const holds = fc.property(
    fc.integer({ min: 1, max: 12 }),
    fc.array(step, { maxLength: 80 }),
    (max, steps) => {
      const places = new Places(max)
      for (const one of steps) {
        if (one.do === 'arrive') places.arrive(one.tenant)
        else if (one.do === 'serve') places.serve(one.nth)
        else places.end(places.held[one.nth % places.held.length])
        assert(places.held.length <= max)
      }
    },
  )
  // Throws, so that fast-check can shrink; a tap assertion would only record.
  t.doesNotThrow(() => fc.assert(holds, { numRuns: 1000 }))
})

t.test('amounts count, and who holds most for its weight makes room first', async t => {
  const shares = new TenantShares<string>(new TenantNames(new Map([['heavy', 4]]), 'own'))
  let bytes = 0
  const hold = (tenant: string, name: string, amount: number) => {
    const claim = shares.open(tenant, name)
    shares.add(claim, amount)
    shares.setMovable(claim, true)
    bytes += amount
    return claim
  }
  hold('heavy', 'heavy 1', 100)
  hold('heavy', 'heavy 2', 100)
  hold('light', 'light 1', 60)
  hold('light', 'light 2', 50)
  const displaced: string[] = []
  const needs = (tenant: string, amount: number) => {
    const claim = shares.open(tenant, 'new')
    const isIn = shares.makeRoom(claim, bytes + amount - 310, one => {
      displaced.push(one.owner)
      bytes -= one.amount
      shares.close(one)
    })
    shares.close(claim)
    return isIn
  }
  t.equal(needs('light', 10), false, 'its own tenant holds most for its weight')
  t.equal(needs('third', 10), true)
  t.strictSame(displaced, ['light 2'])
  t.equal(needs('third', 100), true)
  t.strictSame(displaced, ['light 2', 'heavy 2'], 'light has one left, which it keeps')
  t.equal(needs('third', 300), false, 'each has one left')
})

t.test('what cannot be freed displaces no request, and changes nothing of who goes first', async t => {
  const shares = new TenantShares<string>(new TenantNames(new Map(), 'own'))
  const held = Array.from({ length: 4 }, (_, i) => {
    const claim = shares.open('flood', `flood ${i}`)
    shares.add(claim, 10)
    shares.setMovable(claim, true)
    return claim
  })
  const other = shares.open('other', 'new')
  const displaced: string[] = []
  const ask = (missing: number) => shares.makeRoom(other, missing, ({ owner }) => void displaced.push(owner))
  t.equal(shares.canMakeRoom(other, 1000), false)
  t.equal(ask(1000), false)
  t.equal(ask(0), true)
  t.strictSame(displaced, [])
  t.equal(shares.canMakeRoom(other, 15), true)
  t.equal(ask(15), true)
  t.strictSame(displaced, ['flood 3', 'flood 2'], 'the newest first')
  t.strictSame(
    held.map(({ amount }) => amount),
    [10, 10, 10, 10],
    'their owners give it back',
  )
})

t.test('names beyond the most accounts, and names without a weight beside some with one, share', async t => {
  const few = new TenantShares<string>(new TenantNames(new Map(), 'shared'), 2)
  t.strictSame(
    ['a', 'b', 'c', 'd', 'a', 'x'.repeat(257)].map(name => few.open(name, '').account),
    ['a', 'b', OTHER_TENANTS, OTHER_TENANTS, 'a', OTHER_TENANTS],
  )
  const weighted = new TenantShares<string>(new TenantNames(WEIGHTS, 'shared'))
  t.strictSame(
    ['b', 'made up', ''].map(name => weighted.open(name, '').account),
    ['b', OTHER_TENANTS, OTHER_TENANTS],
  )
})
