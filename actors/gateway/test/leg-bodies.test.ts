/** The bodies of both legs, byte for byte as vLLM's and SGLang's own proxies send them. */

import { editBody, scanRequest, usageEdit } from '@homing/openai'
import t from 'tap'
import { LegBodies, readPrefillAnswer } from '../src/leg-bodies.ts'

const TEXT =
  '{"model":"m","prompt":[1,2,3,4],"max_tokens":64,"stream":true,"stream_options":{"include_usage":true}}'
const PARAMS =
  '{"do_remote_prefill":true,"do_remote_decode":false,"remote_block_ids":[[12]],"remote_engine_id":"e-1",' +
  '"remote_request_id":"cmpl-r1-0","remote_host":"10.0.0.1","remote_port":5600,"tp_size":1}'

const textOf = (body: Uint8Array): string => Buffer.from(body).toString()

t.test('NIXL: the prefill leg asks for one token and a hand-over, the decode leg brings it', async t => {
  t.equal(
    textOf(new LegBodies(Buffer.from(TEXT)).prefill('completions')),
    '{"model":"m","prompt":[1,2,3,4],"max_tokens":1,"stream":false,"kv_transfer_params":{"do_remote_decode":true,' +
      '"do_remote_prefill":false,"remote_engine_id":null,"remote_block_ids":null,"remote_host":null,"remote_port":null}}',
  )
  const answer = `{"id":"cmpl-r1","choices":[{"index":0,"text":" a","finish_reason":"length"}],"kv_transfer_params":${PARAMS}}`
  const read = readPrefillAnswer(Buffer.from(answer))
  t.equal(
    textOf(new LegBodies(Buffer.from(TEXT)).decode(read!.params!)),
    `${TEXT.slice(0, -1)},"kv_transfer_params":${PARAMS}}`,
  )
})

t.test('bootstrap: both legs have the same room, whose digits are beyond what a number keeps', async t => {
  const body = '{"model":"m","messages":[{"role":"user","content":"x"}],"stream":true}'
  const room = 4611686018427387905n
  t.not(BigInt(Number(room)), room)
  t.equal(
    textOf(new LegBodies(Buffer.from(body)).meeting({ host: '10.0.0.1', port: 8998, room: String(room) })),
    `${body.slice(0, -1)},"bootstrap_host":"10.0.0.1","bootstrap_port":8998,"bootstrap_room":${room}}`,
  )
})

t.test('an edit of the body that asks for usage holds for that of the decode leg', async t => {
  const point = { host: '::1', port: 1, room: '7' }
  for (const members of [
    '"stream":true,"prompt":"\u00e9"',
    ' "stream_options" : { "x" : 1 } , "stream":true ',
    '"stream":true,"stream_options":{"include_usage":false}',
    '"stream_options":null, "stream":true',
  ]) {
    const body = Buffer.from(`{"model":"m",${members}\n}`)
    const edit = usageEdit(body, scanRequest(body))!
    const bodies = new LegBodies(body)
    const added = { kv_transfer_params: JSON.parse(PARAMS) as unknown }
    const asked = JSON.parse(textOf(editBody(body, edit))) as { readonly stream_options: object }
    t.match(asked, { stream_options: { include_usage: true } })
    t.strictSame(JSON.parse(textOf(editBody(bodies.decode(PARAMS), edit))), { ...asked, ...added })
    const meets = { bootstrap_host: '::1', bootstrap_port: 1, bootstrap_room: 7 }
    t.strictSame(JSON.parse(textOf(editBody(bodies.meeting(point), edit))), { ...asked, ...meets })
  }
})
