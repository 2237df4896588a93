/** The definition of the queue with plain lists: everything is computed from scratch at every question. */

import type { Admission, PolicyClass, PolicyProfile, QueueRequest } from '../src/index.ts'

interface Waiter {
  readonly request: QueueRequest
  readonly sequence: number
  state: 'waiting' | 'asked'
  hasWaited: boolean
  /** In order of the first wait. */
  parked: number
}

interface Flow {
  tag: number
  sequence: number
}

/** What is shared out in one strict priority. */
interface Level {
  readonly deficits: Record<string, number>
  readonly flows: Record<string, Record<string, Flow>>
  readonly virtualTime: Record<string, number>
  readonly flowCount: Record<string, number>
  /** By class: changes whenever its flows are forgotten. */
  readonly busyPeriod: Record<string, number>
  cursor: number
  carry: string | undefined
  /** Placements of higher strict priorities since one of this. */
  passedOver: number
}

interface NaiveOptions {
  readonly profile: PolicyProfile
  readonly workers: number
  readonly weights: ReadonlyMap<string, number>
  readonly stepTokens: number
  readonly contentionMs: number
  readonly agingMs: number
  readonly passedOverMax: number
}

export class NaiveQueue {
  readonly #options: NaiveOptions
  #waiters: Waiter[] = []
  #levels = new Map<number, Level>()
  #before: { readonly id: string; readonly level: Level } | undefined
  readonly #closed = new Set<string>()
  readonly #servedMs = new Map<string, number>()
  readonly #charges = new Map<
    string,
    { readonly request: QueueRequest; readonly busyPeriod: number | undefined }
  >()
  #busyPeriods = 0
  readonly #longPrompts = new Map<string, { readonly tenant: string; readonly worker: string }>()
  #sequence = 0
  #parkings = 0
  /** When each tenant's account in the limited class was opened, by class and tenant. */
  readonly #accounts = new Map<string, number>()
  readonly displaced: string[] = []

  constructor(options: NaiveOptions) {
    this.#options = options
  }

  get ids(): string[] {
    return this.#waiters.map(({ request }) => request.id)
  }

  admit(request: QueueRequest, nowMs: number): Admission {
    if (this.ids.includes(request.id)) return { reason: 'duplicate' }
    const waiter: Waiter = {
      request,
      sequence: this.#sequence++,
      state: 'asked',
      hasWaited: false,
      parked: 0,
    }
    const mustWait =
      this.#closed.has(this.#laneOf(request)) ||
      this.#isHeld(waiter, nowMs) ||
      this.#candidates(nowMs).length > 0
    if (!mustWait) {
      this.#waiters.push(waiter)
      return 'ask'
    }
    const refusal = this.#park(waiter, nowMs)
    if (refusal === undefined) this.#waiters.push(waiter)
    return refusal ?? 'waiting'
  }

  take(nowMs: number): string | undefined {
    const priorities = [...this.#levels.keys()].sort((a, b) => b - a)
    const starving = priorities.slice(1).filter(priority => this.#isStarving(priority, nowMs))
    for (const priority of [...starving.reverse(), ...priorities]) {
      const level = this.#levels.get(priority)!
      const before = structuredClone(level)
      const next = this.#next(priority, level, nowMs)
      if (next === undefined) continue
      const { request } = next
      const { name } = this.#class(request)
      level.deficits[name]! -= cost(request)
      level.cursor = (this.#index(name) + 1) % this.#options.profile.classes.length
      level.carry = level.deficits[name]! > 0 ? name : undefined
      const flow = level.flows[name]![request.tenant]!
      level.virtualTime[name] = Math.max(level.virtualTime[name]!, flow.tag)
      flow.tag = level.virtualTime[name]! + cost(request) / this.#weight(request.tenant)
      next.state = 'asked'
      this.#before = { id: request.id, level: before }
      return request.id
    }
    return undefined
  }

  placed(id: string, worker: string, nowMs: number): void {
    const { request, hasWaited } = this.#find(id)
    if (hasWaited) {
      for (const [priority, level] of this.#levels) {
        if (priority === request.strictPriority) level.passedOver = 0
        else if (priority < request.strictPriority) level.passedOver++
      }
    }
    if (hasWaited) this.#forgetFlows(this.#levels.get(request.strictPriority)!, request.policyClass)
    this.#servedMs.set(request.tenant, nowMs)
    if (request.uncachedTokens > this.#options.stepTokens) {
      this.#longPrompts.set(id, { tenant: request.tenant, worker })
    }
    const level = hasWaited ? this.#levels.get(request.strictPriority) : undefined
    const busyPeriod = level?.busyPeriod[request.policyClass]
    if (request.estimate !== undefined) this.#charges.set(id, { request, busyPeriod })
    this.#remove(id)
  }

  /** `tokens`: uncached, as the engine counts. */
  settled(id: string, tokens: number): void {
    const charge = this.#charges.get(id)
    if (charge === undefined) return
    this.#charges.delete(id)
    const { request, busyPeriod } = charge
    const { policyClass, tenant } = request
    const level = this.#levels.get(request.strictPriority)
    if (busyPeriod === undefined || level?.busyPeriod[policyClass] !== busyPeriod) return
    const more = Math.max(1, tokens) - cost(request)
    const { quantum } = this.#class(request)
    const deficit = level.deficits[policyClass]!
    level.deficits[policyClass] =
      more > 0 ? deficit - more : Math.max(deficit, Math.min(deficit - more, quantum))
    const virtualTime = level.virtualTime[policyClass]!
    const flows = level.flows[policyClass]!
    flows[tenant] ??= { tag: virtualTime, sequence: more > 0 ? level.flowCount[policyClass]!++ : 0 }
    const flow = flows[tenant]
    const tag = Math.max(flow.tag, virtualTime) + more / this.#weight(tenant)
    flow.tag = more > 0 ? tag : Math.min(flow.tag, Math.max(tag, virtualTime))
    this.#forgetFlow(level, policyClass, tenant)
  }

  busy(id: string, nowMs: number): unknown {
    const waiter = this.#find(id)
    const { request } = waiter
    if (waiter.hasWaited) this.#levels.set(request.strictPriority, this.#before!.level)
    if ((request.deadlineMs ?? Number.POSITIVE_INFINITY) <= nowMs) {
      this.#remove(id)
      return { reason: 'deadline' }
    }
    if (!waiter.hasWaited) {
      const refusal = this.#park(waiter, nowMs)
      if (refusal !== undefined) {
        this.#remove(id)
        return refusal
      }
    }
    waiter.state = 'waiting'
    this.#closed.add(this.#laneOf(request))
    return 'waiting'
  }

  cancel(id: string): boolean {
    if (!this.ids.includes(id)) return false
    this.#remove(id)
    return true
  }

  expire(nowMs: number): string[] {
    const expired = this.#waiters
      .filter(({ state, request }) => state === 'waiting' && (request.deadlineMs ?? nowMs + 1) <= nowMs)
      .sort((a, b) => a.request.deadlineMs! - b.request.deadlineMs! || a.sequence - b.sequence)
      .map(({ request }) => request.id)
    for (const id of expired) this.#remove(id)
    return expired
  }

  reopen(lane: string | undefined): void {
    for (const key of this.#closed) {
      if (lane === undefined || key.endsWith(`/${lane}`)) this.#closed.delete(key)
    }
  }

  prefillComplete(id: string): void {
    this.#longPrompts.delete(id)
  }

  #park(waiter: Waiter, nowMs: number): Admission | undefined {
    const { request } = waiter
    if ((request.deadlineMs ?? Number.POSITIVE_INFINITY) <= nowMs) return { reason: 'deadline' }
    if (request.doNotQueue) return { reason: 'do_not_queue' }
    const { name, requestsPerWorker } = this.#class(request)
    const account = `${name} ${request.tenant}`
    const isNew = !this.#accounts.has(account)
    if (isNew) this.#accounts.set(account, this.#parkings++)
    const waitingNow = () =>
      this.#waiters.filter(other => other.state === 'waiting' && other.request.policyClass === name).length
    const limit = (requestsPerWorker ?? Number.POSITIVE_INFINITY) * this.#options.workers
    for (let next: Waiter | undefined; waitingNow() >= limit; ) {
      next = this.#whoMakesRoom(request)
      if (next === undefined) break
      this.displaced.push(next.request.id)
      this.#remove(next.request.id)
    }
    const waiting = waitingNow()
    if (waiting >= limit) {
      if (isNew) this.#accounts.delete(account)
      return { reason: 'class_limit', policyClass: name, limitKind: 'requests', current: waiting, limit }
    }
    let level = this.#levels.get(request.strictPriority)
    if (level === undefined) {
      level = {
        deficits: {},
        flows: {},
        virtualTime: {},
        flowCount: {},
        busyPeriod: {},
        cursor: 0,
        carry: undefined,
        passedOver: 0,
      }
      for (const { name } of this.#options.profile.classes) this.#clear(level, name)
      this.#levels.set(request.strictPriority, level)
    }
    const flows = level.flows[name]!
    flows[request.tenant] ??= { tag: level.virtualTime[name]!, sequence: level.flowCount[name]!++ }
    waiter.state = 'waiting'
    waiter.hasWaited = true
    waiter.parked = this.#parkings++
    return undefined
  }

  /** The newest request of the tenant that holds most of the class for its weight, if it holds too much. */
  #whoMakesRoom({ policyClass, tenant }: QueueRequest): Waiter | undefined {
    const held = this.#waiters.filter(
      ({ hasWaited, request }) => hasWaited && request.policyClass === policyClass,
    )
    const count = (name: string) => held.filter(({ request }) => request.tenant === name).length
    const perWeight = (name: string) => count(name) / this.#weight(name)
    const opened = (name: string) => this.#accounts.get(`${policyClass} ${name}`)!
    const names = [...new Set([tenant, ...held.map(({ request }) => request.tenant)])]
    const weights = names.reduce((sum, name) => sum + this.#weight(name), 0)
    const [most] = names
      .filter(name => count(name) > (name === tenant ? 0 : 1))
      .sort((a, b) => perWeight(b) - perWeight(a) || opened(a) - opened(b))
    if (most === undefined || perWeight(most) <= perWeight(tenant)) return undefined
    if (perWeight(most) <= held.length / weights) return undefined
    return held.filter(({ request }) => request.tenant === most).sort((a, b) => b.parked - a.parked)[0]
  }

  /** One of it has aged, and it was passed over too often. */
  #isStarving(priority: number, nowMs: number): boolean {
    if (this.#levels.get(priority)!.passedOver < this.#options.passedOverMax) return false
    return this.#waiters.some(
      ({ hasWaited, request }) =>
        hasWaited && request.strictPriority === priority && this.#isAged(request, nowMs),
    )
  }

  /** Deficit round robin between the first requests of the classes. */
  #next(priority: number, level: Level, nowMs: number): Waiter | undefined {
    const candidates = this.#candidates(nowMs).filter(({ request }) => request.strictPriority === priority)
    const { classes } = this.#options.profile
    const heads = new Map<string, Waiter>()
    for (const { name } of classes) {
      const head = this.#first(level, name, candidates, nowMs)
      if (head !== undefined) heads.set(name, head)
    }
    if (heads.size === 0) return undefined
    const affordable = (name: string) => {
      const head = heads.get(name)
      return head !== undefined && cost(head.request) <= level.deficits[name]! ? head : undefined
    }
    const again = level.carry === undefined ? undefined : affordable(level.carry)
    if (again !== undefined) return again
    for (let i = level.cursor; ; i++) {
      const { name, quantum } = classes[i % classes.length]!
      if (!heads.has(name)) continue
      const head = affordable(name)
      if (head !== undefined) return head
      level.deficits[name]! += quantum
      const after = affordable(name)
      if (after !== undefined) return after
    }
  }

  /** The first request of a class: the tenant with the lowest tag, then by the order. */
  #first(level: Level, name: string, candidates: readonly Waiter[], nowMs: number): Waiter | undefined {
    const own = candidates.filter(({ request }) => request.policyClass === name)
    const flowOf = ({ request }: Waiter) => level.flows[name]![request.tenant]!
    const [lowest] = own.map(flowOf).sort((a, b) => a.tag - b.tag || a.sequence - b.sequence)
    const ofFlow = own.filter(waiter => flowOf(waiter) === lowest)
    const bands = Map.groupBy(ofFlow, ({ request }) => this.#bandOf(request))
    const heads = [...bands.values()].map(band => band.sort((a, b) => this.#compare(a, b, nowMs))[0]!)
    return heads.sort((a, b) => this.#compareRatio(a, b, nowMs))[0]
  }

  #bandOf(request: QueueRequest): string {
    if (this.#class(request).order !== 'response-ratio') return ''
    const isLong = request.uncachedTokens > this.#options.stepTokens
    return `${request.lane} ${isLong} ${Math.floor(2 * Math.log2(cost(request)))}`
  }

  #compare(a: Waiter, b: Waiter, nowMs: number): number {
    const { order } = this.#class(a.request)
    const rankOf = ({ request }: Waiter) => (this.#isAged(request, nowMs) ? 0 : 1)
    const keyOf = ({ request }: Waiter) => {
      const { arrivedMs, promptTokens } = request
      const jumpSeconds = Math.max(0, request.priorityJumpSeconds)
      if (this.#isAged(request, nowMs)) return arrivedMs
      if (order === 'lcfs') return -(arrivedMs + 1000 * jumpSeconds)
      if (order === 'wspt') return -(1 + jumpSeconds) / cost(request)
      if (order === 'wspt-total') return -(1 + jumpSeconds) / Math.max(1, promptTokens)
      return arrivedMs - 1000 * jumpSeconds
    }
    return rankOf(a) - rankOf(b) || keyOf(a) - keyOf(b) || a.sequence - b.sequence
  }

  #compareRatio(a: Waiter, b: Waiter, nowMs: number): number {
    const isPlain =
      this.#class(a.request).order !== 'response-ratio' ||
      this.#isAged(a.request, nowMs) ||
      this.#isAged(b.request, nowMs)
    if (isPlain) return this.#compare(a, b, nowMs)
    const waited = ({ request }: Waiter) =>
      nowMs - request.arrivedMs + 1000 * Math.max(0, request.priorityJumpSeconds)
    // a's ratio above b's, without a division.
    return waited(b) * cost(a.request) - waited(a) * cost(b.request) || a.sequence - b.sequence
  }

  #isAged({ arrivedMs, policyClass }: QueueRequest, nowMs: number): boolean {
    const { order } = this.#options.profile.classes.find(({ name }) => name === policyClass)!
    return order !== 'lcfs' && nowMs - arrivedMs >= this.#options.agingMs
  }

  /** All that could go now. */
  #candidates(nowMs: number): Waiter[] {
    return this.#waiters.filter(
      waiter =>
        waiter.state === 'waiting' &&
        !this.#closed.has(this.#laneOf(waiter.request)) &&
        !this.#isHeld(waiter, nowMs),
    )
  }

  #isHeld({ request }: Waiter, nowMs: number): boolean {
    const { stepTokens, workers, contentionMs } = this.#options
    if (request.uncachedTokens <= stepTokens) return false
    const occupied = new Set(
      [...this.#longPrompts.values()]
        .filter(({ tenant }) => tenant === request.tenant)
        .map(({ worker }) => worker),
    )
    const asked = this.#waiters.filter(
      ({ state, request: other }) =>
        state === 'asked' && other.tenant === request.tenant && other.uncachedTokens > stepTokens,
    )
    const isContended = [...this.#servedMs].some(
      ([tenant, atMs]) => tenant !== request.tenant && nowMs - atMs < contentionMs,
    )
    return occupied.size + asked.length >= Math.max(1, workers - 1) && isContended
  }

  #remove(id: string): void {
    const { request, hasWaited } = this.#find(id)
    this.#waiters = this.#waiters.filter(waiter => waiter.request.id !== id)
    const lane = this.#laneOf(request)
    if (!this.#waiters.some(waiter => waiter.state === 'waiting' && this.#laneOf(waiter.request) === lane)) {
      this.#closed.delete(lane)
    }
    if (!hasWaited) return
    const { strictPriority, policyClass, tenant } = request
    const isLast = !this.#waiters.some(
      other =>
        other.hasWaited && other.request.policyClass === policyClass && other.request.tenant === tenant,
    )
    if (isLast) this.#accounts.delete(`${policyClass} ${tenant}`)
    const level = this.#levels.get(strictPriority)!
    const ofLevel = this.#waiters.filter(w => w.hasWaited && w.request.strictPriority === strictPriority)
    const ofClass = ofLevel.filter(waiter => waiter.request.policyClass === policyClass)
    if (ofLevel.length === 0) this.#levels.delete(strictPriority)
    else if (ofClass.length === 0) this.#clear(level, policyClass)
    else if (!ofClass.some(waiter => waiter.request.tenant === tenant)) {
      const flows = level.flows[policyClass]!
      if (flows[tenant]!.tag <= level.virtualTime[policyClass]!) delete flows[tenant]
    }
  }

  /** Tenants without a request whose tag is not ahead start afresh. */
  #forgetFlows(level: Level, name: string): void {
    for (const tenant of Object.keys(level.flows[name]!)) this.#forgetFlow(level, name, tenant)
  }

  #forgetFlow(level: Level, name: string, tenant: string): void {
    const isUsed = this.#waiters.some(
      ({ hasWaited, request }) =>
        hasWaited &&
        this.#levels.get(request.strictPriority) === level &&
        request.policyClass === name &&
        request.tenant === tenant,
    )
    const flows = level.flows[name]!
    if (!isUsed && flows[tenant]!.tag <= level.virtualTime[name]!) delete flows[tenant]
  }

  #clear(level: Level, name: string): void {
    level.deficits[name] = 0
    level.flows[name] = {}
    level.virtualTime[name] = 0
    level.flowCount[name] = 0
    level.busyPeriod[name] = this.#busyPeriods++
    if (level.carry === name) level.carry = undefined
  }

  #find(id: string): Waiter {
    return this.#waiters.find(({ request }) => request.id === id)!
  }

  #class({ policyClass }: QueueRequest): PolicyClass {
    return this.#options.profile.classes[this.#index(policyClass)]!
  }

  #index(className: string): number {
    return this.#options.profile.classes.findIndex(({ name }) => name === className)
  }

  /** Classes with the same threshold find the same room. */
  #laneOf(request: QueueRequest): string {
    return `${this.#class(request).busyFraction}/${request.lane}`
  }

  #weight(tenant: string): number {
    return this.#options.weights.get(tenant) ?? 1
  }
}

function cost({ uncachedTokens }: QueueRequest): number {
  return Math.max(1, uncachedTokens)
}
