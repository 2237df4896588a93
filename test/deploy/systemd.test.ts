/**
 * The part of docs/deploy.md about systemd, typed in its order, with folders of this test in place of those
 * of the machine. Users and services are the machine's: where the page starts the service, the test runs what
 * its unit says.
 */

import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, mkdirSync, readFileSync, renameSync, statSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import process from 'node:process'
import { createInterface } from 'node:readline'
import { freePorts, isInstalled } from '@homing/transport/testing'
import t from 'tap'
import { parse } from 'yaml'
import { REGISTRY_AWAY } from '../registry.ts'
import { MAIN, send, startEngines, until } from '../system/fleet.ts'

const ROOT = join(import.meta.dirname, '../..')
const PAGE = readFileSync(join(ROOT, 'docs/deploy.md'), 'utf8')
const SECTION = PAGE.slice(PAGE.indexOf('\n## systemd\n'), PAGE.indexOf('\n## Container\n'))
const UNIT = join(ROOT, 'deploy/systemd/homing.service')
const WORKER = 'http://10.0.0.1:8001?events=5557&replay=6557'
const NOT_UNDERSTOOD = 2

t.setTimeout(300_000)

/** The value of a directive; the last one counts. */
const directive = (unit: string, name: string): string | undefined =>
  [...unit.matchAll(new RegExp(`^${name}=(.*)$`, 'gm'))].at(-1)?.[1]

const noOpenssl = isInstalled('openssl') ? false : 'openssl is not installed'

t.test('the lines of the page, in their order, make a service that answers', { skip: noOpenssl }, async t => {
  const root = t.testdir({ etc: { systemd: { system: {} }, 'logrotate.d': {} }, var: { lib: {}, log: {} } })
  const here = (text: string): string =>
    text.replaceAll(/(?<![\w.])\/(etc|opt|var\/lib|var\/log|tmp\/packs)\b/g, `${root}/$1`)
  const mine = (line: string): string =>
    line.replace(/-o homing\b/, `-o ${process.getuid!()}`).replace(/-g homing\b/, `-g ${process.getgid!()}`)
  const { engines, stop } = await startEngines([{}])
  t.teardown(stop)
  const { url, model, ranks } = engines[0]!.description
  const { eventsPort, replayPort } = ranks[0]!
  const [port, adminPort] = await freePorts(2)

  const lines = SECTION.match(/```sh\n([\s\S]*?)```/)![1]!
    .trim()
    .split('\n')
  let isUp = false
  for (const line of lines) {
    if (/^(useradd|systemctl daemon-reload|systemd-analyze)\b/.test(line)) continue
    if (!line.startsWith('systemctl enable --now homing')) {
      const { status, stdout, stderr } = spawnSync('sh', ['-c', here(mine(line))], {
        cwd: ROOT,
        encoding: 'utf8',
      })
      if (status !== 0 && REGISTRY_AWAY.test(`${stdout}${stderr}`)) {
        t.pass(line, { skip: 'the npm registry cannot be reached' })
        return
      }
      t.equal(status, 0, `${line}\n${stderr}`)
      continue
    }
    // As systemd does it: the directories of the unit, then its program.
    const unit = readFileSync(join(root, 'etc/systemd/system/homing.service'), 'utf8')
    for (const [name, under] of [
      ['StateDirectory', 'var/lib'],
      ['LogsDirectory', 'var/log'],
      ['ConfigurationDirectory', 'etc'],
    ] as const)
      mkdirSync(join(root, under, directive(unit, name)!), { recursive: true })
    const config = join(root, 'etc/homing/router.yaml')
    t.ok(existsSync(config), 'the unit names a file that a line has made')
    const settings = here(readFileSync(config, 'utf8'))
    writeFileSync(
      config,
      settings.replace('port: 8000', `port: ${port}`).replace('admin-port: 9000', `admin-port: ${adminPort}`),
    )
    const { 'workers-file': workersFile, 'admin-key-file': keyFile } = parse(settings)
    const workers = readFileSync(workersFile, 'utf8')
    t.match(workers, WORKER)
    writeFileSync(workersFile, `${url}?events=${eventsPort}&replay=${replayPort}\n`)
    t.equal(statSync(keyFile).mode & 0o077, 0, 'no other user reads the key')

    const [program, ...argv] = here(directive(unit, 'ExecStart')!).split(' ')
    const child = spawn(program!, argv, {
      stdio: ['ignore', 'pipe', 'pipe'],
      cwd: '/',
      // The `node` that pnpm puts on the path is a shell around it, which passes no signal on.
      env: { PATH: `${dirname(process.execPath)}:/usr/bin:/bin` },
    })
    t.teardown(() => child.kill('SIGKILL'))
    let said = ''
    child.stderr.setEncoding('utf8').on('data', text => (said += text))
    const ended = once(child, 'exit')
    const ready = (async () => {
      for await (const text of createInterface({ input: child.stdout })) if (/ ready on /.test(text)) return
      throw new Error(`it has ended: ${said}`)
    })()
    await ready
    const routerUrl = `http://127.0.0.1:${port}`
    await until('a worker is up', async () => (await send(routerUrl, '/ready')).status === 200 || undefined)
    const body = { model, prompt: 'one two', max_tokens: 2 }
    t.equal((await send(routerUrl, '/v1/completions', { body })).status, 200)

    // What logrotate finds, and the key of operators on other machines.
    const log = join(root, 'var/log/homing/access.jsonl')
    const rotated = join(root, 'etc/logrotate.d/homing')
    t.match(here(readFileSync(rotated, 'utf8')), new RegExp(`^${log} \\{$`, 'm'))
    await until('the request is written', () => (existsSync(log) && statSync(log).size > 0) || undefined)
    renameSync(log, `${log}.1`)
    await until('a new file is begun', async () => {
      await send(routerUrl, '/v1/completions', { body })
      return existsSync(log) || undefined
    })
    const adminUrl = `http://127.0.0.1:${adminPort}`
    const path = `/workers/${new URL(url).host}/drain`
    const elsewhere = { 'x-forwarded-for': '10.0.0.9' }
    t.equal((await send(adminUrl, path, { method: 'POST', headers: elsewhere })).status, 403)
    const headers = { ...elsewhere, authorization: `Bearer ${readFileSync(keyFile, 'utf8').trim()}` }
    t.equal((await send(adminUrl, path, { method: 'POST', headers })).status, 202)
    child.kill('SIGTERM')
    t.strictSame(await ended, [0, null], said)
    isUp = true
  }
  t.ok(isUp, 'the page starts the service')
})

t.test('what the page prints of files is what it installs', async t => {
  for (const name of ['router.yaml', 'logrotate']) {
    const file = readFileSync(join(ROOT, 'deploy/systemd', name), 'utf8')
    t.ok(SECTION.includes(`\`\`\`\n${file}\`\`\``) || SECTION.includes(`\`\`\`yaml\n${file}\`\`\``), name)
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
