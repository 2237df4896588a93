export { type PageFile, PageFiles } from './page-files.ts'
export {
  type BeatSection,
  CANDIDATES_SHOWN,
  DECISIONS_SHOWN,
  type DecisionBar,
  type DecisionRow,
  type DecisionsSection,
  type FleetKey,
  type FleetSection,
  type HouseActor,
  type HouseSection,
  type HouseThread,
  KEYS_SHOWN,
  type PageSections,
  type PageWaitingRow,
  type PageWaitingTenant,
  type WaitingSection,
} from './sections.ts'
