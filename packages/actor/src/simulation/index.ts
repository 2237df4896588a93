export { RealWorldError, SeedFailedError, SimulationError } from './errors.ts'
export {
  CRASH_POINTS,
  type CrashPoint,
  type FaultName,
  type LossCause,
  type SimulatedFaults,
} from './faults.ts'
export {
  createSimulation,
  type RunLimits,
  type RunOutcome,
  type SimulatedThread,
  type Simulation,
  type SimulationOptions,
} from './simulation.ts'
export type { SimulationObserver } from './simulation-host.ts'
