/**
 * The model table: what the threads are told about each model, from the fleet and from the operator's
 * settings.
 */

import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { WorkerModel } from '@homing/fleet'
import t from 'tap'
import { modelTable, readGivenTokenizers } from '../src/model-table.ts'
import { adapter, fleetOf, model } from './fleet.ts'

const NOTHING_GIVEN = readGivenTokenizers([])

t.test('a directory is given for a model, for its base, or for all that have none of their own', async t => {
  const fleet = fleetOf({ models: [model('a'), adapter('a-lora', 'a'), model('b'), adapter('b-lora', 'b')] })
  const given = readGivenTokenizers(['/all', 'a=/for-a', 'b-lora=/for=b-lora'])
  const table = modelTable(fleet, given)
  t.strictSame(
    [...table.values()].map(({ name, tokenizerDirectory }) => [name, tokenizerDirectory]),
    [
      ['a', '/for-a'],
      ['a-lora', '/for-a'],
      ['b', '/all'],
      ['b-lora', '/for=b-lora'],
    ],
  )
})

t.test('of two directories for one model the last counts', async t => {
  t.strictSame(
    [...readGivenTokenizers(['m=/first', '/x', 'm=/second', '/y'])],
    [
      ['m', '/second'],
      ['', '/y'],
    ],
  )
})

t.test('without a given one, the root of the engine counts where it is on this machine', async t => {
  const here = await mkdtemp(join(tmpdir(), 'homing-model-'))
  t.teardown(() => rm(here, { recursive: true }))
  await writeFile(join(here, 'tokenizer.json'), '{}')
  const fleet = fleetOf({
    models: [model('here', here), adapter('lora', 'here'), model('hub', 'meta-llama/Llama'), model('none')],
  })
  const directoryOf = (name: string, given = NOTHING_GIVEN) =>
    modelTable(fleet, given).get(name)?.tokenizerDirectory
  t.equal(directoryOf('here'), here)
  t.equal(directoryOf('lora'), here)
  t.equal(directoryOf('hub'), undefined)
  t.equal(directoryOf('none'), undefined)
  t.equal(directoryOf('here', readGivenTokenizers(['/given'])), '/given')
})

t.test('an adapter hashes under its name, a base model under none', async t => {
  const table = modelTable(fleetOf({ models: [model('m'), adapter('poet', 'm')] }), NOTHING_GIVEN)
  t.match(table.get('m'), { loraName: undefined, base: 'm' })
  t.match(table.get('poet'), { loraName: 'poet', base: 'm' })
})

t.test('without a name, the one model is meant, under whatever names it is served', async t => {
  const defaultOf = (...models: (readonly WorkerModel[])[]) => {
    const table = modelTable(fleetOf(...models.map((models, n) => ({ id: `w${n}`, models }))), NOTHING_GIVEN)
    return [...table.values()].filter(({ isDefault }) => isDefault).map(({ name }) => name)
  }
  t.strictSame(defaultOf([model('a')], [model('a'), adapter('poet', 'a')]), ['a'])
  t.strictSame(defaultOf([model('a', '/m'), model('b', '/m')]), ['a'])
  t.strictSame(defaultOf([model('a', '/m'), model('b', '/m')], [model('b', '/m')]), ['b'], 'what most serve')
  t.strictSame(defaultOf([model('a', '/m'), model('b', '/n')]), [])
  t.strictSame(defaultOf([model('a', '/m')], [model('b', '/n')]), [])
  t.strictSame(defaultOf([model('a'), model('b')]), [], 'of no known root')
  t.strictSame(defaultOf([model('a', '/m'), model('b')]), [])
  t.strictSame(defaultOf(), [])
})

t.test('the block size is that of the first worker of the model that has said one', async t => {
  const fleet = fleetOf(
    { id: 'silent', blockSizeTokens: undefined },
    { id: 'first', blockSizeTokens: 32 },
    { id: 'second', blockSizeTokens: 16 },
    { id: 'other', models: [model('other')], blockSizeTokens: 64 },
  )
  const table = modelTable(fleet, NOTHING_GIVEN)
  t.equal(table.get('m')?.blockSizeTokens, 32)
  t.equal(table.get('other')?.blockSizeTokens, 64)
})

t.test('a block size that was only probed gives way to one that events have shown', async t => {
  const { workers, ...fleet } = fleetOf(
    { blockSizeTokens: 16 },
    { blockSizeTokens: 32 },
    { blockSizeTokens: 64 },
  )
  const learned = workers.map((worker, i) =>
    i === 0
      ? worker
      : { ...worker, blockSizeTokens: { ...worker.blockSizeTokens!, source: 'learned' as const } },
  )
  t.equal(modelTable({ ...fleet, workers: learned }, NOTHING_GIVEN).get('m')?.blockSizeTokens, 32)
})

t.test('the dialect is that of the first worker of the model whose engine is known', async t => {
  const dialect = (...engines: ('vllm' | 'sglang' | 'unknown' | 'homing')[]) =>
    modelTable(fleetOf(...engines.map((engine, n) => ({ id: `w${n}`, engine }))), NOTHING_GIVEN).get('m')
      ?.dialect
  t.equal(dialect('sglang', 'vllm'), 'sglang')
  t.equal(dialect('unknown', 'sglang'), 'sglang')
  t.equal(dialect('unknown', 'vllm', 'sglang'), 'vllm')
  t.equal(dialect('unknown'), 'vllm')
})

t.test('only workers that are up and can tokenize are asked to', async t => {
  const fleet = fleetOf(
    { id: 'up', canTokenize: true },
    { id: 'down', canTokenize: true, state: 'down' },
    { id: 'probing', canTokenize: true, state: 'probing' },
    { id: 'cannot', canTokenize: false },
    { id: 'also', canTokenize: true },
    { id: 'other', canTokenize: true, models: [model('other')] },
  )
  t.strictSame(modelTable(fleet, NOTHING_GIVEN).get('m')?.tokenizeOrigins, ['http://up', 'http://also'])
})

t.test('a model may have any name', async t => {
  const table = modelTable(fleetOf({ models: [model('__proto__'), model('constructor')] }), NOTHING_GIVEN)
  t.strictSame([...table.keys()], ['__proto__', 'constructor'])
  t.equal(modelTable(fleetOf({}), NOTHING_GIVEN).get('toString'), undefined)
})
