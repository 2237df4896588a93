/**
 * A plain relay: what it costs in Node alone to pass a request on and its answer back.
 * `relay.ts pipe|parse [port=PORT] URL …` takes the engines in turn, prints one line when it serves, and ends
 * when its standard input ends. Without a port the system picks one.
 *
 *   pipe    the body goes on as it comes
 *   parse   the body is read whole and given to JSON.parse, as any program that looks into it must, and sent
 *           on unchanged
 */

import { Agent, createServer, type IncomingMessage, request, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { buffer } from 'node:stream/consumers'
import { pipeline } from 'node:stream/promises'

const [mode, ...words] = process.argv.slice(2) as [string, ...string[]]
const engines = words.filter(word => !word.startsWith('port='))
const givenPort = Number(words.find(word => word.startsWith('port='))?.slice('port='.length) ?? 0)
const agent = new Agent({ keepAlive: true })
let turn = 0

async function relay(asked: IncomingMessage, answer: ServerResponse): Promise<void> {
  const { method, url, headers } = asked
  const target = new URL(url!, engines[turn++ % engines.length])
  const call = request(target, { agent, method, headers: { ...headers, host: target.host } })
  const replied = new Promise<IncomingMessage>((resolve, reject) => {
    call.once('response', resolve).once('error', reject)
  })
  if (mode === 'parse') {
    const body = await buffer(asked)
    JSON.parse(body.toString())
    call.end(body)
  } else {
    asked.pipe(call)
  }
  const reply = await replied
  answer.writeHead(reply.statusCode!, reply.headers)
  await pipeline(reply, answer)
}

const server = createServer((asked, answer) => {
  relay(asked, answer).catch((error: Error) => {
    process.stderr.write(`cannot relay ${asked.url}: ${error.message}\n`)
    answer.destroy()
  })
})
server.listen(givenPort, '127.0.0.1', () => {
  const { port } = server.address() as AddressInfo
  process.stdout.write(`relay ready on http://127.0.0.1:${port} (pid ${process.pid})\n`)
})
process.stdin.resume().on('end', () => process.exit())
