export { diagnoseWorker, diagnoseWorkers } from './diagnose.ts'
export type { DiagnoseOptions, DiagnosisTokenizer } from './diagnose-options.ts'
export {
  type Diagnosis,
  type DiagnosisStep,
  type Door,
  type Finding,
  type FindingLevel,
  isLess,
  note,
  type Verdict,
} from './diagnosis.ts'
export type { ModelTwin, RolePeer } from './evidence.ts'
