/** Which model serves a name, and which workers may still bring one. */

import { readModelAlias } from '@homing/config'
import t from 'tap'
import { type Fleet, loadingWorkers, modelNames, servedModel } from '../src/index.ts'

function fleetOf(models: Readonly<Record<string, 'up' | 'down'>>): Fleet {
  const workers = Object.entries(models).map(([name, state]) => ({ state, models: [{ name }] }))
  return { version: 1, workers: workers as unknown as Fleet['workers'] }
}

function serving(fleet: Fleet, ...aliases: readonly string[]) {
  const names = modelNames(fleet, aliases.map(readModelAlias))
  const isListed = (name: string) =>
    fleet.workers.some(({ models }) => models.some(card => card.name === name))
  return (name: string) => servedModel(name, names, isListed)
}

t.test('of the models of an alias, the first serves that is up, else one that is listed', async t => {
  const alias = 'a=big|small'
  t.equal(serving(fleetOf({ big: 'up', small: 'up' }), alias)('a'), 'big')
  t.equal(serving(fleetOf({ big: 'down', small: 'up' }), alias)('a'), 'small')
  t.equal(serving(fleetOf({ small: 'down' }), alias)('a'), 'small')
  t.equal(serving(fleetOf({}), alias)('a'), 'big')
})

t.test('a model falls back, if it is an alias of itself and another one', async t => {
  const fallback = 'big=big|small'
  t.equal(serving(fleetOf({ big: 'up', small: 'up' }), fallback)('big'), 'big')
  t.equal(serving(fleetOf({ big: 'down', small: 'up' }), fallback)('big'), 'small')
})

t.test('the longest beginning counts, and none for a name that a worker lists', async t => {
  const fleet = fleetOf({ m: 'up', n: 'up', 'claude-own': 'down' })
  const served = serving(fleet, '*=m', 'claude-*=n', 'claude-haiku-*=m', 'claude-opus=m')
  t.strictSame(['gpt-4', 'claude-sonnet', 'claude-haiku-4', 'claude-opus', 'claude-own', 'm'].map(served), [
    'm',
    'n',
    'm',
    'm',
    'claude-own',
    'm',
  ])
  t.equal(serving(fleet)('gpt-4'), 'gpt-4')
  t.equal(serving(fleet, 'a=m')('constructor'), 'constructor')
})

t.test('a worker that does not answer may bring a model for a while, unless it drains', async t => {
  const workers = [
    { id: 'up' },
    { id: 'late', unansweredSinceMs: 100 },
    { id: 'gone', unansweredSinceMs: 0 },
    { id: 'drains', unansweredSinceMs: 100, isDraining: true },
  ]
  const fleet = { version: 1, workers } as unknown as Fleet
  t.strictSame(
    loadingWorkers(fleet, 1000, 1000).map(({ id }) => id),
    ['late'],
  )
  t.strictSame(loadingWorkers(fleet, 1000, 0), [])
})
