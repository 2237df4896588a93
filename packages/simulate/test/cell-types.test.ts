import t from 'tap'
import { CUSTOM_RULES } from '../src/index.ts'

t.test("the simulator has rules of its own beside the product's", async t => {
  t.strictSame([...CUSTOM_RULES], ['session', 'overlap', 'threshold-received', 'logged'])
})
