/**
 * The Containerfile, without a container engine: its form, and each of its steps with the folders of this
 * test in place of those of the image. What only a container engine can show (the base images, their size) is
 * not tested here.
 */

import { execFile, spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { mkdirSync, readFileSync, statSync } from 'node:fs'
import { join, matchesGlob } from 'node:path'
import process from 'node:process'
import { promisify } from 'node:util'
import { freePort } from '@homing/transport/testing'
import t from 'tap'
import { REGISTRY_AWAY } from './registry.ts'
import { until } from './system/fleet.ts'

const ROOT = join(import.meta.dirname, '..')
const START_MS_MAX = 120_000
const APP_MIB_MAX = 100
/** Of the second base, debian:bookworm-slim, unpacked: 75 MB. */
const BASE_MB = 75
const IMAGE_MB_MAX = 300

interface Instruction {
  readonly name: string
  readonly value: string
}

function instructionsOf(text: string): readonly Instruction[] {
  return text
    .replace(/\\\n/g, ' ')
    .split('\n')
    .filter(line => line.trim() !== '' && !line.startsWith('#'))
    .map(line => {
      const [, name, value] = /^([A-Z]+) +(.*)$/.exec(line) ?? []
      if (name === undefined) throw new Error(`not an instruction: ${line}`)
      return { name, value: value! }
    })
}

const all = instructionsOf(readFileSync(join(ROOT, 'Containerfile'), 'utf8'))
const second = all.findLastIndex(({ name }) => name === 'FROM')
const given = (name: string): string => all.slice(second).find(each => each.name === name)!.value

t.setTimeout(600_000)

t.test(
  'two stages with fixed bases; the second is not root, has a health check, and runs nothing at build time',
  async t => {
    const bases = all.filter(({ name }) => name === 'FROM').map(({ value }) => value.split(' ')[0]!)
    t.equal(bases.length, 2)
    for (const base of bases) t.match(base, /^docker\.io\/library\/\w+:[\w.-]+$/, 'a registry and a version')
    const names = all.slice(second).map(({ name }) => name)
    for (const name of ['USER', 'HEALTHCHECK', 'EXPOSE', 'ENTRYPOINT']) t.ok(names.includes(name), name)
    t.notOk(names.includes('RUN'), 'no layer with leftovers')
    t.match(given('USER'), /^[1-9]\d*:[1-9]\d*$/, 'a number, which needs no passwd')
    for (const name of ['ENTRYPOINT', 'CMD'])
      t.ok(Array.isArray(JSON.parse(given(name))), `${name} needs no shell`)
    for (const { name } of all) t.not(name, 'ADD')
    // The files copied into the build must not include local installations.
    const ignored = readFileSync(join(ROOT, '.containerignore'), 'utf8')
    t.match(ignored, /^\*\*\/node_modules$/m)
    t.equal(readFileSync(join(ROOT, '.dockerignore'), 'utf8'), ignored, 'docker reads a file of its own')
  },
)

t.test('the optional packages of a picker are those that this repository tests with', t => {
  const { devDependencies } = JSON.parse(
    readFileSync(join(ROOT, 'packages/transport/package.json'), 'utf8'),
  ) as { devDependencies: Readonly<Record<string, string>> }
  const install = all.find(({ name, value }) => name === 'RUN' && value.startsWith('npm install '))!.value
  for (const name of ['@grpc/grpc-js', 'protobufjs'])
    t.ok(install.split(' ').includes(`${name}@${devDependencies[name]}`), `${name} ${devDependencies[name]}`)
  t.end()
})

t.test('what is left out of the build is nothing of the repository', t => {
  const tracked = spawnSync('git', ['ls-files'], { cwd: ROOT, encoding: 'utf8' })
  if (tracked.status !== 0) {
    t.pass('files', { skip: 'this is no git checkout' })
    t.end()
    return
  }
  const files = tracked.stdout.trim().split('\n')
  const patterns = readFileSync(join(ROOT, '.containerignore'), 'utf8').trim().split('\n')
  // So that a build from a clean checkout, as CI has one, is a build from what the container gets.
  for (const pattern of patterns)
    t.strictSame(
      files.filter(file => matchesGlob(file, pattern) || matchesGlob(file, `${pattern}/**`)),
      [],
      pattern,
    )
  t.ok(patterns.includes('**/node_modules') && matchesGlob('packages/a/node_modules/b', '**/node_modules/**'))
  t.ok(files.includes('Containerfile'))
  t.end()
})

t.test('its steps build, install and run a router that is healthy, and ends on its stop signal', async t => {
  const folder = t.testdir()
  const [packs, app] = [join(folder, 'packs'), join(folder, 'app')]
  for (const path of [packs, app]) mkdirSync(path)
  const here = (text: string): string => text.replaceAll('/packs', packs).replaceAll('/app', app)
  const steps = all.slice(0, second).filter(({ name }) => name === 'RUN')
  t.match(steps[0]!.value, /pnpm@10 install --frozen-lockfile$/, 'which whoever runs this test has done')
  for (const { value } of steps.slice(1)) {
    const { status, stdout, stderr } = spawnSync('sh', ['-c', here(value)], { cwd: ROOT, encoding: 'utf8' })
    if (status !== 0 && REGISTRY_AWAY.test(`${stdout}${stderr}`)) {
      t.pass(value, { skip: 'the npm registry cannot be reached' })
      return
    }
    t.equal(status, 0, `${value}\n${stderr}`)
  }
  const { stdout } = await promisify(execFile)('du', ['-sm', app])
  const appMib = Number.parseInt(stdout, 10)
  t.ok(appMib < APP_MIB_MAX, `the packages have ${appMib} MiB`)
  // The image has the same release line of Node, from its own base.
  const imageMb = BASE_MB + statSync(process.execPath).size / 1e6 + appMib * 1.048_576
  t.ok(imageMb < IMAGE_MB_MAX, `base, Node and packages have ${imageMb.toFixed(0)} MB`)

  const port = await freePort()
  const [, ...entry] = JSON.parse(here(given('ENTRYPOINT'))) as string[]
  const options = (JSON.parse(given('CMD')) as string[]).map(word => word.replace('8000', String(port)))
  // A picker needs the optional packages, and ends without them.
  const more = ['--host', '127.0.0.1', '--demo-engines', '1', '--log-level', 'error', '--picker-port', '0']
  const child = spawn(process.execPath, [...entry, ...options, ...more], { stdio: 'ignore', cwd: '/' })
  t.teardown(() => child.kill('SIGKILL'))
  const ended = once(child, 'exit')
  const [, check] = /CMD (\[.*\])$/.exec(given('HEALTHCHECK'))!
  const [, ...argv] = (JSON.parse(check!) as string[]).map(word => word.replace(':8000', `:${port}`))
  await until('it is healthy', () => (spawnSync(process.execPath, argv).status === 0 ? true : undefined), {
    msMax: START_MS_MAX,
  })
  child.kill(given('STOPSIGNAL') as NodeJS.Signals)
  t.strictSame(await ended, [0, null])
  t.not(spawnSync(process.execPath, argv).status, 0, 'the check fails where nothing answers')
})
