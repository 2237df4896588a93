/**
 * `TEST_GROUP='["FILE", …]' pnpm exec node test/group.ts`: several test files in one process, one after the
 * other, for files that take less time than a process with node-tap and our modules in it takes to start (0.3
 * to 1.5 s of CPU).
 *
 * Each file is a test of the root, named after it, and what it imports as 'tap' is that test: so its cases,
 * its plan, its teardowns and its failures stand in a block of their own in the output, which group-output.ts
 * cuts out as the output of the file. Only the file itself gets its test that way; a module beside it gets
 * the root.
 *
 * The names come in a variable because node-tap makes the names of folders from arguments.
 */

import { registerHooks } from 'node:module'
import { resolve } from 'node:path'
import process from 'node:process'
import { pathToFileURL } from 'node:url'
import { isMainThread } from 'node:worker_threads'
import t from 'tap'
import { openTests } from './group-tap.ts'

if (isMainThread) {
  const files = JSON.parse(process.env['TEST_GROUP'] ?? '[]') as readonly string[]
  delete process.env['TEST_GROUP']
  await runGroup(files)
}

async function runGroup(files: readonly string[]): Promise<void> {
  const urls = files.map(file => pathToFileURL(resolve(file)).href)
  registerHooks({
    resolve(specifier, context, next) {
      const position = specifier === 'tap' ? urls.indexOf(context.parentURL ?? '') : -1
      if (position < 0) return next(specifier, context)
      return { url: new URL(`group-tap.ts?file=${position}`, import.meta.url).href, shortCircuit: true }
    },
  })
  for (const [position, file] of files.entries()) {
    await t.test(file, async own => {
      openTests.set(position, own)
      await import(urls[position]!)
    })
  }
}
