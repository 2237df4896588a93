import t from 'tap'
import { editBody, scanRequest, usageEdit } from '../src/index.ts'

function asked(text: string): string | undefined {
  const bytes = Buffer.from(text)
  const edit = usageEdit(bytes, scanRequest(bytes))
  return edit === undefined ? undefined : Buffer.from(editBody(bytes, edit)).toString()
}

t.test('asks for usage and changes no other byte', async t => {
  t.equal(
    asked('{ "stream" :true, "x":1.0 , "é":[ ] }'),
    '{ "stream" :true, "x":1.0 , "é":[ ],"stream_options":{"include_usage":true} }',
  )
  t.equal(
    asked('{"stream":true,"stream_options": null ,"n":1}'),
    '{"stream":true,"stream_options": {"include_usage":true} ,"n":1}',
  )
  t.equal(
    asked('{"stream_options":{ },"stream":true}'),
    '{"stream_options":{"include_usage":true },"stream":true}',
  )
  t.equal(
    asked('{"stream_options":{"x":[1,{"include_usage":true}] },"stream":true}'),
    '{"stream_options":{"x":[1,{"include_usage":true}],"include_usage":true },"stream":true}',
  )
  t.equal(
    asked('{"stream_options":{"include_usage" : false,"x":1},"stream":true}'),
    '{"stream_options":{"include_usage" : true,"x":1},"stream":true}',
  )
  t.equal(
    asked('{"stream":true,"stream_options":{"include_usage":null,"continuous_usage_stats":false}}'),
    '{"stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":false}}',
  )
})

t.test('of repeated names the last one is asked, as engines read them', async t => {
  t.equal(
    asked('{"stream_options":{"include_usage":true},"stream":true,"stream_options":{}}'),
    '{"stream_options":{"include_usage":true},"stream":true,"stream_options":{"include_usage":true}}',
  )
})

t.test('a client that asked itself, or wants usage in every chunk, is left alone', async t => {
  t.equal(asked('{"stream":true,"stream_options":{"include_usage":true}}'), undefined)
  t.equal(asked('{"stream":true,"stream_options":{"continuous_usage_stats":true}}'), undefined)
})
