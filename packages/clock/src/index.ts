export { type Clock, type Duration, durationMs, type Random, type Timer } from './clock.ts'
export { seededRandom } from './seeded-random.ts'
export { SimulatedClock } from './simulated-clock.ts'
export { systemClock, systemRandom } from './system-clock.ts'
