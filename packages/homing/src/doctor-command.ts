/**
 * `homing doctor`: looks at workers as a router would, says what it found and what to change, and ends.
 *
 * Standard output: a paragraph per worker, and a line per worker at the end if there are several; with --json
 * one object. Exit code: 0 all is well, 1 some cache cannot be known exactly, 2 bad usage, 3 some worker
 * cannot be used.
 */

import { diagnosisView } from '@homing/actors/console'
import { type Clock, type Random, silentLog, systemClock, systemRandom } from '@homing/base'
import { asksForHelp, type DoctorSettings, doctorCommand, parseSettings, renderHelp } from '@homing/config'
import { type Diagnosis, diagnoseWorkers, type Verdict } from '@homing/doctor'
import { parseWorkerSpec } from '@homing/fleet'
import { systemTransport, type Transport } from '@homing/transport'
import type { CommandEntry } from './command-entry.ts'
import { diagnosisText, summaryLine } from './doctor-text.ts'
import { givenTokenizer, tokenizerOf } from './doctor-tokenizers.ts'
import { givenEngineKey, readCertificates } from './engine-access.ts'
import { faultsOfUrls } from './worker-specs.ts'

export const doctorCommandEntry: CommandEntry = {
  summary: 'Looks at engines as a router would: what it finds, the trust it can have, what to change.',

  async run(argv) {
    if (asksForHelp(doctorCommand, argv)) {
      console.log(renderHelp(doctorCommand))
      return 0
    }
    const { settings, warnings } = parseSettings(doctorCommand, argv, process.env, {
      listChecks: { workers: faultsOfUrls },
    })
    for (const warning of warnings) console.error(`homing: ${warning}`)
    // The findings have all that it would log.
    const transport = systemTransport({
      clock: systemClock,
      log: silentLog,
      connectTimeoutMs: settings.timeoutMs,
    })
    try {
      const world = { transport, clock: systemClock, random: systemRandom }
      const { text, exitCode } = await examine(settings, world)
      console.log(text)
      return exitCode
    } finally {
      transport.close()
    }
  },
}

export interface DoctorWorld {
  readonly transport: Pick<Transport, 'http' | 'messages'>
  readonly clock: Clock
  readonly random: Random
}

/**
 * What is printed, and the exit code. Throws SettingsError for a tokenizer, key or certificate that cannot be
 * used.
 */
export async function examine(
  settings: DoctorSettings,
  world: DoctorWorld,
): Promise<{ readonly text: string; readonly exitCode: number }> {
  const { workers, timeoutMs, listenMs, sends, asksHistory, blockSizeTokens, json } = settings
  const engineKey = givenEngineKey(settings.engineKeyFile, 'doctor')
  if (settings.engineCaFile !== undefined) {
    world.transport.http.trust(await readCertificates(settings.engineCaFile, 'doctor'))
  }
  const given = settings.tokenizer === undefined ? undefined : await givenTokenizer(settings.tokenizer)
  const diagnoses = await diagnoseWorkers(workers.map(parseWorkerSpec), {
    tellsKeyFaults: true,
    ...world,
    timeoutMs,
    listenMs,
    sends,
    replayDepth: asksHistory ? 'whole' : 'end',
    defaults: { blockSizeTokens },
    engineKey,
    tokenizerOf: async outcome => given ?? tokenizerOf(outcome),
  })
  const exitCode = Math.max(...diagnoses.map(({ verdict }) => EXIT_CODES[verdict]))
  return { text: json ? jsonOf(diagnoses, exitCode) : textOf(diagnoses), exitCode }
}

const EXIT_CODES: Readonly<Record<Verdict, number>> = { well: 0, inexact: 1, unusable: 3 }

function jsonOf(diagnoses: readonly Diagnosis[], exitCode: number): string {
  return JSON.stringify({ exit_code: exitCode, workers: diagnoses.map(diagnosisView) }, undefined, 2)
}

function textOf(diagnoses: readonly Diagnosis[]): string {
  const paragraphs = diagnoses.map(diagnosisText)
  if (diagnoses.length > 1) paragraphs.push(diagnoses.map(summaryLine).join('\n'))
  return paragraphs.join('\n\n')
}
