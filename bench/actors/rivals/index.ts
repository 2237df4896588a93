/**
 * Rivals: the same loads on other libraries, each in the way its own documents show. Deadlines are used where
 * a rival has them. Imports are late: a rival that is not installed is skipped by name.
 */

import { comedy } from './comedy.ts'
import { comlink } from './comlink.ts'
import { nact } from './nact.ts'
import { piscina } from './piscina.ts'
import type { Rival } from './rival.ts'
import { xstate } from './xstate.ts'

export const rivals: Readonly<Record<string, Rival>> = { nact, comedy, xstate, comlink, piscina }
