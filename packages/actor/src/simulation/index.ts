import '../values/node-version.ts'

export {
  asksSettleOnce,
  type Checker,
  childrenWithinParents,
  fifoPerPair,
  lossesHaveCauses,
  noDuplicates,
  restartsWithinBudget,
  servesAgain,
  stoppedReceiveNothing,
  watchesFireOnce,
} from './checkers.ts'
export { RealWorldError, SeedFailedError, SimulatedFailure, SimulationError } from './errors.ts'
export {
  CRASH_POINTS,
  type CrashPoint,
  type FaultName,
  type LossCause,
  type SimulatedFaults,
} from './faults.ts'
export { History, type HistoryEntry, type HistoryEvent, type TellTag } from './history.ts'
export { runSeeds, type SeedOutcome, type SeedsOptions, type SeedsReport } from './seeds.ts'
export {
  createSimulation,
  type RunLimits,
  type RunOutcome,
  type SimulatedThread,
  type Simulation,
  type SimulationOptions,
} from './simulation.ts'
export type { SimulationObserver } from './simulation-host.ts'
