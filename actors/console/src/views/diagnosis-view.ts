/** The JSON of a diagnosis: wire names, for `GET /workers/:id/diagnosis` and `homing doctor --json`. */

import type { Diagnosis } from '@homing/doctor'

export function diagnosisView(diagnosis: Diagnosis): Readonly<Record<string, unknown>> {
  const { worker, origin, engine, engineVersion, verdict, trust, steps, findings, engineFlags, doors } =
    diagnosis
  return {
    worker,
    url: origin,
    engine,
    engine_version: engineVersion,
    verdict,
    reachable_trust: trust.reachable,
    reachable_trust_reason: trust.reason,
    findings: findings.map(({ level, about, text, remedy, trustMax }) => ({
      level,
      about,
      text,
      remedy: remedy ?? null,
      trust_max: trustMax ?? null,
    })),
    engine_flags: engineFlags ?? null,
    open_ports: doors.map(({ at, use, dpRank }) => ({ at, use, dp_rank: dpRank ?? null })),
    steps: steps.map(({ asked, answered, durationMs, told }) => ({
      asked,
      answered,
      duration_ms: Math.round(durationMs * 1000) / 1000,
      told,
    })),
  }
}
