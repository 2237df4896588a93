/**
 * The part of docs/deploy.md about systemd, typed as it is printed, in its order, as root on a machine whose
 * first process is systemd: its users, units, journal and sandbox are real. Where there can be no such
 * machine, the tests are skipped by name.
 */

import { spawnSync } from 'node:child_process'
import { existsSync, readFileSync, renameSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import process from 'node:process'
import { freePorts } from '@homing/transport/testing'
import t, { type Test } from 'tap'
import { parse } from 'yaml'
import { REGISTRY_AWAY } from '../registry.ts'
import { MAIN, send, startEngines, type ThreadEngine, until } from '../system/fleet.ts'
import { Machine, noMachine, type Typed } from './machine.ts'
import { fencesOf, pageOf } from './page-fences.ts'

const ROOT = join(import.meta.dirname, '../..')
const FENCES = fencesOf('deploy.md').filter(({ section }) => section === 'systemd')
const LINES = FENCES.filter(({ language }) => language === 'sh').flatMap(({ text }) =>
  text.trim().split('\n'),
)
const ENABLE = 'systemctl enable --now homing'
const UNIT = join(ROOT, 'deploy/systemd/homing.service')
const WORKER = 'http://10.0.0.1:8001?events=5557&replay=6557'
const NOT_UNDERSTOOD = 2
const START_MS_MAX = 60_000
/** Of systemd-analyze security: 0 is best, 10 is a service without a sandbox. */
const EXPOSURE_MAX = 2

t.setTimeout(600_000)

const skip = await noMachine()

/** The value of a directive; the last one counts. */
const directive = (unit: string, name: string): string | undefined =>
  [...unit.matchAll(new RegExp(`^${name}=(.*)$`, 'gm'))].at(-1)?.[1]

/** Writes the worker that there is, and ports that are free, where the page has users write theirs. */
async function configure(
  t: Test,
  machine: Machine,
  engine: ThreadEngine,
): Promise<{ readonly url: string; readonly adminUrl: string; readonly keyFile: string }> {
  const config = join(machine.folder, 'etc/homing/router.yaml')
  const text = readFileSync(config, 'utf8')
  const [port, adminPort] = await freePorts(2)
  writeFileSync(
    config,
    text.replace('port: 8000', `port: ${port}`).replace('admin-port: 9000', `admin-port: ${adminPort}`),
  )
  const { 'workers-file': workers, 'admin-key-file': keyFile } = parse(text)
  t.match(readFileSync(join(machine.folder, workers), 'utf8'), WORKER)
  const { url, ranks } = engine.description
  const { eventsPort, replayPort } = ranks[0]!
  writeFileSync(join(machine.folder, workers), `${url}?events=${eventsPort}&replay=${replayPort}\n`)
  return {
    url: `http://127.0.0.1:${port}`,
    adminUrl: `http://127.0.0.1:${adminPort}`,
    keyFile: join(machine.folder, keyFile),
  }
}

t.test('the lines of the page, in their order, make a service that answers', { skip }, async t => {
  const machine = await Machine.start(t)
  const { engines, stop } = await startEngines([{}])
  t.teardown(stop)
  const engine = engines[0]!
  const { url: engineUrl, model } = engine.description
  const typed = new Map<string, Typed>()
  let written: Awaited<ReturnType<typeof configure>> | undefined
  for (const line of LINES) {
    if (line === ENABLE) written = await configure(t, machine, engine)
    const { status, stdout, stderr } = machine.type(line)
    typed.set(line, { status, stdout, stderr })
    if (status !== 0 && /^np[mx] /.test(line) && REGISTRY_AWAY.test(`${stdout}${stderr}`)) {
      t.pass(line, { skip: 'the npm registry cannot be reached' })
      return
    }
    if (!t.equal(status, 0, `${line}\n${stdout}${stderr}`)) return
  }
  t.ok(written, 'the page starts the service')
  const { url, adminUrl, keyFile } = written!
  const said = () => machine.type('journalctl --no-pager -n 20 -u homing').stdout

  const up = async () => (await send(url, '/ready').catch(() => undefined))?.status === 200 || undefined
  await until('a worker is up', up, { seen: said, msMax: START_MS_MAX })
  const body = { model, prompt: 'one two', max_tokens: 2 }
  t.equal((await send(url, '/v1/completions', { body })).status, 200)

  await t.test('it runs as its own user, with its own files, in its sandbox', async t => {
    const passwd = readFileSync(join(machine.folder, 'etc/passwd'), 'utf8')
    const [, uid] = /^homing:x:(\d+):\d+::\/var\/lib\/homing:/m.exec(passwd) ?? []
    t.ok(Number(uid) > 0 && Number(uid) < 1000, 'a user of the system')
    const key = statSync(keyFile)
    t.strictSame([key.uid, key.mode & 0o777], [Number(uid), 0o400], 'no other user reads the key')
    const main = machine.show('homing', 'MainPID')
    const state = machine.type(`cat /proc/${main}/status`).stdout
    t.match(state, new RegExp(`^Uid:\\t${uid}\\t`, 'm'))
    t.match(state, /^CapEff:\t0+$/m)
    t.match(state, /^NoNewPrivs:\t1$/m)
    t.match(state, /^Seccomp:\t2$/m)
    const limits = machine.type(`cat /proc/${main}/limits`).stdout
    const files = Math.min(Number(directive(readFileSync(UNIT, 'utf8'), 'LimitNOFILE')), filesMax(machine))
    t.match(limits, new RegExp(`^Max open files +${files} `, 'm'))
    t.equal(machine.show('homing', 'UnitFileState'), 'enabled')
  })

  await t.test('systemd finds no fault in the unit, and calls it well shut in', async t => {
    const { stdout } = typed.get('systemd-analyze security homing')!
    const [, exposure, word] = /Overall exposure level for homing\.service: ([\d.]+) (\w+)/.exec(stdout) ?? []
    t.ok(Number(exposure) <= EXPOSURE_MAX, `${exposure} ${word}`)
    t.equal(word, 'OK')
    const { status, stderr } = machine.type('systemd-analyze verify --man=no homing.service')
    t.strictSame([status, stderr], [0, ''])
  })

  await t.test('what logrotate moves away is begun anew', async t => {
    const log = join(machine.folder, 'var/log/homing/access.jsonl')
    const rotated = readFileSync(join(machine.folder, 'etc/logrotate.d/homing'), 'utf8')
    t.match(rotated, /^\/var\/log\/homing\/access\.jsonl \{$/m)
    await until('the request is written', () => (existsSync(log) && statSync(log).size > 0) || undefined)
    renameSync(log, `${log}.1`)
    await until('a new file is begun', async () => {
      await send(url, '/v1/completions', { body })
      return existsSync(log) || undefined
    })
  })

  await t.test('its key lets operators in from other machines', async t => {
    const path = `/workers/${new URL(engineUrl).host}/drain`
    const elsewhere = { 'x-forwarded-for': '10.0.0.9' }
    t.equal((await send(adminUrl, path, { method: 'POST', headers: elsewhere })).status, 403)
    const headers = { ...elsewhere, authorization: `Bearer ${readFileSync(keyFile, 'utf8').trim()}` }
    t.equal((await send(adminUrl, path, { method: 'POST', headers })).status, 202)
  })

  await t.test(
    'it starts again by itself when it is killed, and ends in order when it is stopped',
    async t => {
      t.equal(machine.type('systemctl kill --kill-whom=main --signal=KILL homing').status, 0)
      await until('it has started again', () => machine.show('homing', 'NRestarts') === '1' || undefined)
      await until('it takes requests again', up, { seen: said })
      t.equal(machine.type('systemctl stop homing').status, 0)
      const end = (property: string) => machine.show('homing', property)
      t.strictSame([end('ActiveState'), end('Result'), end('ExecMainStatus')], ['inactive', 'success', '0'])
    },
  )

  await t.test('settings that cannot be used end it once, and the journal names each fault', async t => {
    writeFileSync(join(machine.folder, 'etc/homing/router.yaml'), 'prot: 1\nlog-level: loud\n')
    machine.type('systemctl reset-failed homing; systemctl start homing')
    await until('it has failed', () => machine.show('homing', 'ActiveState') === 'failed' || undefined)
    t.equal(machine.show('homing', 'ExecMainStatus'), String(NOT_UNDERSTOOD))
    t.equal(machine.show('homing', 'NRestarts'), '0')
    const journal = inlineOf(/^journalctl /)
    const { status, stdout } = machine.type(`${journal} --no-pager`)
    t.equal(status, 0)
    t.match(stdout, /prot\b/)
    t.match(stdout, /log-level/)
  })

  await t.test('the other commands in the text of the page are some', async t => {
    const [ulimit, , files] = inlineOf(/^ulimit -n \d+$/).split(' ') as [string, string, string]
    t.equal(files, directive(readFileSync(UNIT, 'utf8'), 'LimitNOFILE'), 'the unit sets the same')
    const allowed = String(Math.min(Number(files), filesMax(machine)))
    t.equal(machine.type(`${ulimit} -n ${allowed} && ulimit -n`).stdout.trim(), allowed)
    const help = machine.type(`PATH=/opt/node:/opt/homing/node_modules/.bin:$PATH homing router --help`)
    t.equal(help.status, 0, help.stderr)
    for (const name of Object.keys(parse(readFileSync(join(ROOT, 'deploy/systemd/router.yaml'), 'utf8'))))
      t.match(help.stdout, `--${name} `)
  })
})

/** Sandboxes may let even root have no more. */
function filesMax(machine: Machine): number {
  const hard = machine.type('ulimit -Hn').stdout.trim()
  return hard === 'unlimited' ? Number.POSITIVE_INFINITY : Number(hard)
}

/** The command in the text of the page, between fences. */
function inlineOf(pattern: RegExp): string {
  const found = pageOf('deploy.md').inline.filter(text => pattern.test(text))
  if (found.length !== 1) throw new Error(`docs/deploy.md has ${found.length} times ${pattern}`)
  return found[0]!
}

t.test('what the page prints of files is what it installs', async t => {
  for (const [language, name] of [
    ['yaml', 'router.yaml'],
    ['', 'logrotate'],
  ] as const) {
    const file = readFileSync(join(ROOT, 'deploy/systemd', name), 'utf8')
    t.ok(
      FENCES.some(fence => fence.language === language && fence.text === file),
      name,
    )
  }
})

t.test('settings that cannot be used end the service; it is not started again and again', async t => {
  const { status, stderr } = spawnSync(
    process.execPath,
    [MAIN, 'router', '--config', join(t.testdir({}), 'router.yaml')],
    { encoding: 'utf8' },
  )
  t.equal(status, NOT_UNDERSTOOD, stderr)
  const unit = readFileSync(UNIT, 'utf8')
  t.equal(directive(unit, 'Restart'), 'always')
  t.equal(directive(unit, 'RestartPreventExitStatus'), String(status))
})
