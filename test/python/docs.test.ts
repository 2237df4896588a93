/**
 * docs/python.md and the README of the package, as a stranger types them: the package is installed by the
 * printed line into a new environment, from a copy of its folder, and the printed programs run with what
 * was installed.
 */

import { execFile } from 'node:child_process'
import { cpSync, existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import process from 'node:process'
import { startDemoFleet, startRouter } from 'homing'
import t from 'tap'
import { REGISTRY_AWAY } from '../registry.ts'
import { CLIENT, found, plainPython, skipOf } from './interpreter.ts'

const DOCS = join(CLIENT, '../../docs')
const page = readFileSync(join(DOCS, 'python.md'), 'utf8')
const readme = readFileSync(join(CLIENT, 'README.md'), 'utf8')
const COMMAND_MS_MAX = 200_000
const { NODE_OPTIONS: _, PYTHONPATH: __, ...ENV } = process.env
t.setTimeout(600_000)

const skip = skipOf(plainPython())

function run(
  command: string,
  args: readonly string[],
  cwd: string,
): Promise<{ readonly exitCode: number; readonly output: string }> {
  return new Promise(resolve => {
    execFile(command, args, { cwd, env: ENV, timeout: COMMAND_MS_MAX }, (error, stdout, stderr) => {
      const exitCode = error === null ? 0 : typeof error.code === 'number' ? error.code : 1
      resolve({ exitCode, output: stdout + stderr })
    })
  })
}

const blocksOf = (text: string, form: string): readonly string[] =>
  [...text.matchAll(new RegExp(`\`\`\`${form}\n(.*?)\`\`\``, 'gs'))].map(([, block]) => block!)

t.test('the Python package is installed and used as printed', { skip }, async t => {
  const folder = mkdtempSync(join(tmpdir(), 'homing-python-'))
  t.teardown(() => rmSync(folder, { recursive: true, force: true }))
  cpSync(CLIENT, join(folder, 'clients/python'), { recursive: true })
  const environment = join(folder, 'environment')
  t.equal((await run(found(plainPython()).path, ['-m', 'venv', environment], folder)).exitCode, 0)
  const python = join(environment, 'bin/python')

  const [plain, withPublisher, withPlanes] = blocksOf(page, 'sh')[0]!.trim().split('\n')
  for (const line of [plain, withPublisher, withPlanes]) t.match(readme, line!)
  const install = (line: string, retries: number) => {
    const flags = `--quiet --disable-pip-version-check --retries ${retries} --timeout 20`
    const typed = line.replace('pip install', `pip install ${flags}`)
    return run('bash', ['-c', `${environment}/bin/${typed}`], folder)
  }
  const installed = await install(plain!, 1)
  if (installed.exitCode !== 0 && REGISTRY_AWAY.test(installed.output)) {
    t.pass('the Python package is installed', { skip: 'the registry of Python cannot be reached' })
    return
  }
  t.equal(installed.exitCode, 0, installed.output)
  const missing = await run(
    python,
    ['-c', 'from homing import KvEventPublisher; KvEventPublisher(16)'],
    folder,
  )
  t.match(missing.output, /HomingError: .*pyzmq is missing; type: pip install "homing\[publisher\]"/)
  const listed = await run(python, ['-m', 'pip', 'list', '--format', 'freeze'], folder)
  t.notMatch(listed.output, /msgpack|aiohttp|requests/, 'it brings nothing with it')

  const fleet = await startDemoFleet({ demoEngines: 1, demoSpeed: 100, logLevel: 'warn' })
  t.teardown(() => fleet.stop())
  const router = await startRouter({ workers: fleet.workers, port: 0, logLevel: 'error' })
  t.teardown(() => router.stop(0))
  const program = async (text: string) => {
    writeFileSync(join(folder, 'program.py'), text.replace('http://127.0.0.1:8000', router.url))
    return run(python, ['program.py'], folder)
  }
  const [client, publisher, worker] = blocksOf(page, 'python')
  const generated = await program(client!)
  t.equal(generated.exitCode, 0, generated.output)
  t.match(generated.output, /^(\[[\d, ]*\]\n)+\S+ 0\n$/)
  t.equal([...generated.output.matchAll(/\d+(?=[,\]])/g)].length, 20)
  t.match(await program(blocksOf(readme, 'python')[0]!), { exitCode: 0, output: /^0 0 0\n$/ })

  const again = await install(withPublisher!, 5)
  t.equal(again.exitCode, 0, again.output)
  // Its ports may be taken on this machine.
  const anywhere = publisher!.replace(
    'dp_rank=0',
    "zmq_endpoint='tcp://127.0.0.1:*', replay_endpoint='tcp://127.0.0.1:*'",
  )
  t.strictSame(await program(anywhere), { exitCode: 0, output: '' })
  const planes = await install(withPlanes!, 5)
  t.equal(planes.exitCode, 0, planes.output)
  const door =
    /^homing router --worker 'http:\/\/(\S+)\?block_size=16&requests=tcp:\/\/\1' --request-plane tcp\n$/
  t.match(await program(worker!), { exitCode: 0, output: door })
  t.equal((await run(python, ['-c', 'import nats'], folder)).exitCode, 0)
  const library = (await run(python, ['-c', 'import homing; print(homing.__file__)'], folder)).output
  t.ok(existsSync(join(library.trim(), '../py.typed')), 'with its type hints')
  t.ok(library.startsWith(environment), library)
})

t.test('the pages name every example and every name of the package', async t => {
  for (const name of readdirSync(join(CLIENT, 'examples'))) t.match(page, `${name}`)
  const names = /__all__ = \[(.*?)\]/s.exec(readFileSync(join(CLIENT, 'src/homing/__init__.py'), 'utf8'))![1]!
  const told = ['HomingError', 'KvRouter', 'KvRouterConfig', 'KvEventPublisher', 'ZmqKvEventPublisher']
  for (const name of told) {
    t.match(page, name)
    t.match(names, `"${name}"`)
  }
})
