/**
 * Engines that write prompts otherwise than the tokenizer directory of the router does: what is predicted,
 * and what is said about it.
 */

import { cp, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { type Fleet, startFleet, TINY_TOKENIZER, until, type WorkerView } from './fleet.ts'

const MODEL = 'tiny'
const SYSTEM = 'You are a careful assistant who answers in one short sentence and never guesses. '.repeat(6)

/** The tiny tokenizer with another template. */
async function otherTokenizer(t: Test, change: (template: string) => string): Promise<string> {
  const directory = await mkdtemp(join(tmpdir(), 'homing-other-template-'))
  t.teardown(() => rm(directory, { recursive: true }))
  await cp(TINY_TOKENIZER, directory, { recursive: true })
  const template = join(directory, 'chat_template.jinja')
  await writeFile(template, change(await readFile(template, 'utf8')))
  return directory
}

async function startWith(
  t: Test,
  tokenizer: string,
  engines = 1,
  options: readonly string[] = [],
): Promise<Fleet> {
  const fleet = await startFleet({
    engines: Array.from({ length: engines }, () => ({ model: MODEL, tokenizer })),
    router: ['--tokenizer', TINY_TOKENIZER, '--router-policy', 'linear', ...options],
  })
  t.teardown(() => fleet.stop())
  return fleet
}

/** Predicted and delivered tokens of a chat. */
async function chat(
  fleet: Fleet,
  question: string,
): Promise<readonly [predicted: number, delivered: number]> {
  const messages = [
    { role: 'system', content: SYSTEM },
    { role: 'user', content: question },
  ]
  const answer = await fleet.send('/v1/chat/completions', { body: { model: MODEL, messages, max_tokens: 4 } })
  const { predicted_cached_tokens: predicted, delivered } = await until(
    'the receipt is complete',
    async () => {
      const { json } = await fleet.send(`/decisions/${answer.headers['x-homing-decision']}`)
      return json.delivered === null ? undefined : json
    },
  )
  return [predicted, delivered.cached_tokens]
}

/** A first chat, until the router has heard what is cached of it. */
async function begin(fleet: Fleet): Promise<void> {
  await chat(fleet, 'Where do pigeons fly?')
  await until('its blocks are known', async () => {
    const { json } = await fleet.send('/workers')
    const held = json.workers.map((worker: WorkerView) => worker.worker_keys[0]!.blocks_held)
    return held.some((blocks: number) => blocks > 0) ? true : undefined
  })
}

async function tokenizerOf(
  fleet: Fleet,
): Promise<{ readonly path: string; readonly reason: string | null } | null> {
  const { json } = await fleet.send('/workers')
  return json.workers[0].models[0].tokenizer
}

t.test('a template that differs for every chat shows at the start, and nothing is lost', async t => {
  const other = await otherTokenizer(t, template => `<s>Cutting knowledge date: 2023\n${template}`)
  const fleet = await startWith(t, other, 2)
  const { reason } = await until('engines are asked', async () => {
    const tokenizer = await tokenizerOf(fleet)
    return tokenizer?.path === 'engine' ? tokenizer : undefined
  })
  t.match(reason, /prompts of chat: engines make other tokens/)
  await begin(fleet)
  for (const question of ['Why do they?', 'And how?', 'How far?']) {
    const [predicted, delivered] = await chat(fleet, question)
    t.ok(predicted > 0)
    t.equal(predicted, delivered)
  }
  const { json } = await fleet.send('/workers')
  t.equal(json.workers[0].worker_keys[0].trust, 'exact')
  const { text } = await fleet.send('/metrics')
  t.match(text, /homing_tokenizer_path_state\{model="tiny",path="engine"\} 1/)
})

t.test('a template that is given is that of the engine, and prompts stay here', async t => {
  const other = await otherTokenizer(t, template => `<s>Cutting knowledge date: 2023\n${template}`)
  const template = `${MODEL}=${join(other, 'chat_template.jinja')}`
  const fleet = await startWith(t, other, 1, ['--chat-template', template])
  await begin(fleet)
  for (let i = 0; i < 5; i++) {
    const [predicted, delivered] = await chat(fleet, `Why ${i}?`)
    t.ok(predicted > 0)
    t.equal(predicted, delivered)
  }
  t.not((await tokenizerOf(fleet))?.path, 'engine')
})

t.test('a template that differs for some chats shows in their answers', async t => {
  const other = await otherTokenizer(t, template =>
    template.replace("messages[0].content + '<|im_end|>", "'Be brief. ' + messages[0].content + '<|im_end|>"),
  )
  const fleet = await startWith(t, other)
  const areAsked = async () => ((await tokenizerOf(fleet))?.path === 'engine' ? true : undefined)
  let answers = 0
  while (answers < 6 && (await areAsked()) === undefined) {
    await chat(fleet, `Question ${answers++}`)
    // Its receipt may be there before the difference has counted.
    await until('its difference counts', async () => {
      const { text } = await fleet.send('/metrics')
      const [, count] = /^homing_audit_prompt_differences_total\{worker="[^"]+"\} (\d+)$/m.exec(text) ?? []
      return Number(count) === answers ? true : undefined
    })
  }
  await until(`engines are asked after ${answers} answers`, areAsked)
  const [predicted, delivered] = await chat(fleet, 'And now?')
  t.ok(predicted > 0)
  t.equal(predicted, delivered)
  const { text } = await fleet.send('/metrics')
  t.match(text, /homing_audit_prompt_differences_total\{worker="[^"]+"\} [4-6]/)
})
