/**
 * Diagnosis: what was found at one worker URL, the trust that a router can reach with it, and what to change.
 *
 *   verdict    well       exact trust can be reached
 *              inexact    it takes requests, but its cache will not be known exactly
 *              unusable   a router cannot send it requests
 *   level      ok         as it should be
 *              note       worth a look; costs no trust
 *              warning    costs trust
 *              fault      makes it unusable
 *
 * The worst level decides the verdict: a fault makes it unusable, a warning inexact.
 */

import type { EngineFamily } from '@homing/fleet'
import { TRUSTS, type Trust } from '@homing/index'

export type FindingLevel = 'ok' | 'note' | 'warning' | 'fault'
export type Verdict = 'well' | 'inexact' | 'unusable'

/** The subject of a finding; stable, for tools. */
export type FindingSubject =
  | 'answers'
  | 'clock'
  | 'model'
  | 'blocks'
  | 'budget'
  | 'ranks'
  | 'role'
  | 'tokens'
  | 'events'
  | 'replay'
  | 'topic'
  | 'ports'
  | 'request'
  | 'usage'
  | 'router'

/** One line for people. */
export interface Finding {
  readonly level: FindingLevel
  readonly about: FindingSubject
  readonly text: string
  /** What to do; undefined: no action needed. */
  readonly remedy: string | undefined
  /** The best trust that can be reached with it; undefined: it does not bound the trust. */
  readonly trustMax: Trust | undefined
  /** The remedy is to start the engine with the options of the diagnosis. */
  readonly needsFlags: boolean
}

/** One question to the worker, and its answer. */
export interface DiagnosisStep {
  /** 'GET /metrics', 'SUB tcp://10.0.0.1:5557'. */
  readonly asked: string
  /** '200', 'connected', 'no answer'. */
  readonly answered: string
  readonly durationMs: number
  /** The answer, cut to one line; '' if there was none. */
  readonly told: string
}

/** A port that the router must reach. */
export interface Door {
  /** 'host:port', or the whole endpoint where it is no TCP port. */
  readonly at: string
  readonly use: 'requests' | 'events' | 'replay'
  /** Undefined: of the whole worker. */
  readonly dpRank: number | undefined
}

export interface Diagnosis {
  /** `host:port` of its URL. */
  readonly worker: string
  readonly origin: string
  readonly engine: EngineFamily
  readonly engineVersion: string
  readonly verdict: Verdict
  /** The highest trust that a router can have in this worker's cache, and why not more. */
  readonly trust: { readonly reachable: Trust; readonly reason: string }
  readonly steps: readonly DiagnosisStep[]
  readonly findings: readonly Finding[]
  /** Options to add when the engine is started; undefined: none. */
  readonly engineFlags: string | undefined
  readonly doors: readonly Door[]
}

export function verdictOf(findings: readonly Pick<Finding, 'level'>[]): Verdict {
  if (findings.some(({ level }) => level === 'fault')) return 'unusable'
  return findings.some(({ level }) => level === 'warning') ? 'inexact' : 'well'
}

export function isLess(trust: Trust, than: Trust): boolean {
  return TRUSTS.indexOf(trust) > TRUSTS.indexOf(than)
}

/** The least of what the findings allow, and the finding that allows no more. */
export function trustOf(findings: readonly Finding[]): Diagnosis['trust'] {
  let reachable: Trust = 'exact'
  let reason = 'nothing that was found stands against it'
  for (const { trustMax, text } of findings) {
    if (trustMax === undefined || !isLess(trustMax, reachable)) continue
    reachable = trustMax
    reason = text
  }
  return { reachable, reason }
}

export function ok(about: FindingSubject, text: string): Finding {
  return { level: 'ok', about, text, remedy: undefined, trustMax: undefined, needsFlags: false }
}

export function note(about: FindingSubject, text: string, remedy?: string): Finding {
  return { level: 'note', about, text, remedy, trustMax: undefined, needsFlags: false }
}

/** `trustMax` undefined: it costs something else. */
export function warning(
  about: FindingSubject,
  trustMax: Trust | undefined,
  text: string,
  remedy?: string,
): Finding {
  return { level: 'warning', about, text, remedy, trustMax, needsFlags: false }
}

export function fault(about: FindingSubject, text: string, remedy?: string): Finding {
  return { level: 'fault', about, text, remedy, trustMax: 'none', needsFlags: false }
}

/**
 * A warning whose remedy is to start the engine with the options of the diagnosis; `otherwise`: another
 * remedy.
 */
export function flagsMissing(
  about: FindingSubject,
  trustMax: Trust,
  text: string,
  otherwise: string,
): Finding {
  const remedy = `start the engine with the options of this diagnosis${otherwise}`
  return { ...warning(about, trustMax, text, remedy), needsFlags: true }
}
