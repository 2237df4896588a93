/**
 * `pnpm release FOLDER`: everything that a release consists of, in FOLDER. With `--draft` it is of what the
 * changelog has below `## Unreleased`.
 *
 *   *.tgz                    the packages, as they would be published
 *   homing-VERSION.cdx.json  what an installed `homing` consists of (CycloneDX), by `npm sbom`
 *   THIRD-PARTY.md           its third-party packages with their licences
 *   NOTES.md                 the part of CHANGELOG.md about this version
 *   SHA256SUMS               of all of these
 *
 * It installs the packed `homing` by npm in an empty folder, and lists what is there: not what manifests say.
 * Publishes nothing. Exit code 1: the changelog has nothing about the version, or changes that have none yet;
 * FOLDER is not empty (what lies there would be summed as a part of the release); or a step failed.
 */

import { spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import process from 'node:process'
import { changesOf, refusalOf } from './changes.ts'
import { noticesOf, thirdParties } from './third-party.ts'

const ROOT = join(import.meta.dirname, '..', '..')
const LIMIT_MS = 300_000

const words = process.argv.slice(2)
const isDraft = words.includes('--draft')
const [folder, ...others] = words.filter(word => word !== '--draft')
if (folder === undefined || others.length > 0 || folder.startsWith('-')) {
  console.error('usage: pnpm release [--draft] FOLDER')
  process.exit(2)
}
process.exitCode = release(resolve(folder))

function release(target: string): number {
  const { version } = JSON.parse(readFileSync(join(ROOT, 'packages/homing/package.json'), 'utf8')) as {
    version: string
  }
  const changelog = readFileSync(join(ROOT, 'CHANGELOG.md'), 'utf8')
  const refusal = refusalOf(changelog, version, { isDraft })
  if (refusal !== undefined) {
    console.error(refusal)
    return 1
  }
  const changes = changesOf(changelog, version, { isDraft })!
  mkdirSync(target, { recursive: true })
  const [first] = readdirSync(target)
  if (first !== undefined) {
    console.error(`cannot release into ${target}: it is not empty (${first}); name a new folder, or empty it`)
    return 1
  }
  if (run(process.execPath, [join(ROOT, 'test/build.ts'), '--pack', target], ROOT) === undefined) return 1
  const empty = mkdtempSync(join(tmpdir(), 'homing-release-'))
  try {
    writeFileSync(join(empty, 'package.json'), JSON.stringify({ name: 'installed', version, private: true }))
    const words = ['install', '--no-audit', '--no-fund', join(target, `homing-${version}.tgz`)]
    if (run('npm', words, empty) === undefined) return 1
    const bom = run('npm', ['sbom', '--sbom-format', 'cyclonedx'], empty)
    if (bom === undefined) return 1
    writeFileSync(join(target, `homing-${version}.cdx.json`), bom)
    writeFileSync(join(target, 'THIRD-PARTY.md'), noticesOf(thirdParties(empty)))
  } finally {
    rmSync(empty, { recursive: true, force: true })
  }
  writeFileSync(join(target, 'NOTES.md'), changes)
  const names = readdirSync(target)
  const sums = names.sort().map(name => {
    const sum = createHash('sha256')
      .update(readFileSync(join(target, name)))
      .digest('hex')
    return `${sum}  ${name}\n`
  })
  writeFileSync(join(target, 'SHA256SUMS'), sums.join(''))
  console.log(`${version}: ${names.length} files in ${target}`)
  return 0
}

/** Its standard output; undefined: it failed, and that is told. */
function run(command: string, args: readonly string[], cwd: string): string | undefined {
  const { status, stdout, stderr, error } = spawnSync(command, args, {
    cwd,
    timeout: LIMIT_MS,
    encoding: 'utf8',
    maxBuffer: 64 << 20,
  })
  if (status === 0) return stdout
  console.error(
    `cannot release: ${command} ${args[0]} failed${error === undefined ? '' : `: ${error.message}`}`,
  )
  console.error(`${stdout ?? ''}${stderr ?? ''}`.trimEnd())
  return undefined
}
