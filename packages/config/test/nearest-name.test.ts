import t from 'tap'
import { nearestName } from '../src/nearest-name.ts'

t.test('the nearest name is the one that takes the fewest edits', async t => {
  t.equal(nearestName('prot', ['port', 'host', 'seed']), 'port')
  t.equal(nearestName('router-moed', ['router-mode', 'router-node']), 'router-mode')
  t.equal(nearestName('portt', ['port']), 'port')
})

t.test('no name is suggested when none is near', async t => {
  t.equal(nearestName('banana', ['port', 'host']), undefined)
  t.equal(nearestName('x', []), undefined)
})
