/** Node's own options: every way to start the command line has the same ones. */

import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'

const ROOT = join(import.meta.dirname, '../../..')
const textOf = (path: string): string => readFileSync(join(ROOT, path), 'utf8')

t.test('pnpm start, an installed homing and the container run Node with the same options', async t => {
  const [first] = textOf('packages/homing/src/main.ts').split('\n')
  const { scripts } = JSON.parse(textOf('package.json')) as { scripts: { start: string } }
  const [, entry] = /^ENTRYPOINT (.*)$/m.exec(textOf('Containerfile'))!
  const ways = {
    installed: first!.replace('#!/usr/bin/env -S node ', ''),
    start: /bin\/node (.*) packages\/homing\/src\/main\.ts$/.exec(scripts.start)?.[1],
    container: (JSON.parse(entry!) as string[]).filter(word => word.startsWith('--')).join(' '),
  }
  t.strictSame(ways, {
    installed: '--max-semi-space-size=8',
    start: '--max-semi-space-size=8',
    container: '--max-semi-space-size=8',
  })
})
