/**
 * Makes a script that breaks a rule as short and as plain as it can be made with the same rule broken for the
 * same observer.
 */

import { runLife } from './life-history.ts'
import type { Violation } from './life-rules.ts'
import { PLAIN_KIND, type Script } from './life-script.ts'

export interface Shrunk {
  readonly script: Script
  readonly violation: Violation
}

export async function shrink(script: Script, violation: Violation): Promise<Shrunk> {
  let best: Shrunk = { script, violation }
  const attempt = async (changed: Script): Promise<boolean> => {
    const { violations } = await runLife(changed)
    const same = violations.find(({ rule, who }) => rule === violation.rule && who === violation.who)
    if (same !== undefined) best = { script: changed, violation: same }
    return same !== undefined
  }
  for (let hasShrunk = true; hasShrunk; ) {
    hasShrunk = false
    for (const simpler of simplerScripts(best.script)) {
      if (!(await attempt(simpler))) continue
      hasShrunk = true
      break
    }
  }
  return best
}

function* simplerScripts(script: Script): Generator<Script> {
  const { steps, kind, present } = script
  const { length } = steps
  for (let size = length >> 1; size >= 1; size >>= 1) {
    for (let at = 0; at + size <= length; at += size) {
      yield { ...script, steps: [...steps.slice(0, at), ...steps.slice(at + size)] }
    }
  }
  for (const who of present) yield { ...script, present: present.filter(one => one !== who) }
  if (script.lie !== undefined) yield { ...script, lie: undefined }
  if (script.checkpoints) yield { ...script, checkpoints: false }
  if (script.writeMs > 0) yield { ...script, writeMs: 0 }
  if (script.sidecarBatches !== 1024) yield { ...script, sidecarBatches: 1024 }
  for (const [name, value] of Object.entries(PLAIN_KIND)) {
    if (name === 'manners' || kind[name as keyof typeof kind] === value) continue
    yield { ...script, kind: { ...kind, [name]: value } }
  }
  for (const [name, value] of Object.entries(PLAIN_KIND.manners)) {
    if (kind.manners[name as keyof typeof kind.manners] === value) continue
    yield { ...script, kind: { ...kind, manners: { ...kind.manners, [name]: value } } }
  }
  for (const [i, step] of steps.entries()) {
    const replaced = (other: typeof step): Script => ({ ...script, steps: steps.with(i, other) })
    if (step.do === 'work' && step.requests > 1) yield replaced({ ...step, requests: step.requests - 1 })
    if (step.do === 'work' && step.salted) yield replaced({ ...step, salted: false })
    if ('batches' in step && step.do !== 'burst' && step.batches > 1)
      yield replaced({ ...step, batches: step.batches - 1 })
    if (step.do === 'burst' && step.batches > 60) yield replaced({ ...step, batches: 60 })
    if (step.do === 'restart in place') {
      if (step.unheard > 0) yield replaced({ ...step, unheard: step.unheard - 1 })
      if (step.isOtherProcess) yield replaced({ ...step, isOtherProcess: false })
      if (step.blockTokens !== 4) yield replaced({ ...step, blockTokens: 4 })
      if (step.first !== 'zero') yield replaced({ ...step, first: 'zero' })
    }
  }
}
