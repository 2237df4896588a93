/** The model of a form, found among its parts. */

import t from 'tap'
import { isForm, readFormModel } from '../src/index.ts'

const TYPE = 'multipart/form-data; boundary=b'

/** Line ends are written as LF. */
function modelOf(form: string | Buffer, type = TYPE): string | undefined {
  const body = typeof form === 'string' ? Buffer.from(form.replaceAll('\n', '\r\n')) : form
  return readFormModel(body, type)?.model
}

const part = (headers: string, value: string) => `--b\n${headers}\n\n${value}\n`
const field = (name: string, value: string) => part(`Content-Disposition: form-data; name="${name}"`, value)

t.test('the field is found wherever it is', async t => {
  const file = part(
    'Content-Disposition: form-data; name="file"; filename="a.wav"\nContent-Type: x/y',
    'RIFF',
  )
  t.equal(modelOf(`${field('model', 'm')}${file}--b--\n`), 'm')
  t.equal(modelOf(`${file}${field('model', 'm')}--b--\n`), 'm')
  t.equal(modelOf(`a preamble\n${file}${field('model', 'm')}--b--\n`), 'm')
  t.equal(modelOf(`${part('content-disposition:form-data;name=model', 'org/m é')}--b--`), 'org/m é')
  t.equal(modelOf(`${part('X: y\nContent-Disposition: form-data; name="model"\nY: z', 'm')}--b--`), 'm')
  t.equal(modelOf(`${field('model', 'a')}${field('model', 'b')}--b--`), 'b', 'the last counts')
  t.equal(modelOf(`${field('model', '')}--b--`), '')
})

t.test('whether all of it was seen is told', async t => {
  const form = field('model', 'm')
  const isWhole = (text: string) => readFormModel(Buffer.from(text.replaceAll('\n', '\r\n')), TYPE)?.isWhole
  t.equal(isWhole(`${form}--b--`), true)
  t.equal(isWhole(`${form}--b`), false)
  t.equal(isWhole(`${form}${field('x', 'y').repeat(256)}${field('model', 'n')}--b--`), false)
  t.equal(isWhole(`${form}${part(`X: ${'y'.repeat(9000)}`, '')}${field('model', 'n')}--b--`), false)
})

t.test('nothing else is taken for it', async t => {
  t.equal(modelOf(`${field('models', 'm')}${field('xmodel', 'm')}--b--`), undefined)
  t.equal(
    modelOf(`${part('Content-Disposition: form-data; name="model"; filename="m"', 'm')}--b--`),
    undefined,
  )
  t.equal(modelOf(`${part('Content-Disposition: form-data; filename="name=model"', 'm')}--b--`), undefined)
  t.equal(
    modelOf(`${field('text', `--c\n${field('model', 'm').slice(4)}`)}--b--`),
    undefined,
    'of another form',
  )
  t.equal(modelOf(`--b--\n${field('model', 'm')}`), undefined, 'behind the end')
  t.equal(modelOf(`--b\nContent-Disposition: form-data; name="model"\n\nm`), undefined, 'without its end')
  t.equal(modelOf(`--b\nno headers`), undefined)
  t.equal(modelOf(`${field('model', 'm'.repeat(1025))}--b--`), undefined)
  t.equal(modelOf(`${part(`X: ${'y'.repeat(9000)}`, '')}${field('model', 'm')}--b--`), undefined)
  t.equal(modelOf(`${field('x', 'y').repeat(256)}${field('model', 'm')}--b--`), undefined)
  t.equal(modelOf(''), undefined)
  t.equal(modelOf(`${field('model', 'm')}--b--`, 'multipart/form-data'), undefined)
})

t.test('content types of forms, and their boundaries', async t => {
  for (const type of [
    TYPE,
    'Multipart/Form-Data ; boundary="b"',
    'multipart/form-data; charset=x; boundary=b; y=z',
  ]) {
    t.ok(isForm(type), type)
    t.equal(modelOf(`${field('model', 'm')}--b--`, type), 'm', type)
  }
  for (const type of ['', 'application/json', 'multipart/mixed; boundary=b', 'multipart/form-database'])
    t.notOk(isForm(type), type)
})

t.test('bytes that are no text do not get in the way', async t => {
  const bytes = Buffer.from(Array.from({ length: 70_000 }, (_, i) => (i * 7919) & 0xff))
  const [before, behind] = [field('file', '@'), `${field('model', 'm')}--b--`].map(text =>
    Buffer.from(text.replaceAll('\n', '\r\n')),
  )
  const [head, tail] = [before!.subarray(0, before!.indexOf('@')), before!.subarray(before!.indexOf('@') + 1)]
  const form = Buffer.concat([head, bytes, tail, behind!])
  const { range } = readFormModel(form, TYPE)!
  t.equal(form.toString('utf8', range.start, range.end), 'm')
})
