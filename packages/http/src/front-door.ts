/**
 * Front door: a listener that an actor opens in its setup. If it cannot be opened at the first start, the
 * caller that asks for the address gets the error and may choose another port. Once the service
 * has started, the actor fails instead and is restarted.
 */

import { type ErrorRecord, fromErrorRecord, toErrorRecord } from '@homing/base'
import type { HttpExchange, HttpListener, HttpTransport, ListenOptions, TlsIdentity } from '@homing/transport'
import { errorAnswer } from './answers.ts'

export interface HttpAddress {
  readonly host: string
  readonly port: number
}

export class FrontDoor {
  readonly #opened: HttpListener | ErrorRecord

  private constructor(opened: HttpListener | ErrorRecord) {
    this.#opened = opened
  }

  /** Requests that are no HTTP are answered in OpenAI's form. `refused` gets the status of such an answer. */
  static async open(
    http: HttpTransport,
    options: Omit<ListenOptions, 'errorAnswer'>,
    refused: (status: number) => void,
    onExchange: (exchange: HttpExchange) => void,
  ): Promise<FrontDoor> {
    const answered: NonNullable<ListenOptions['errorAnswer']> = error => {
      const answer = errorAnswer(error)
      refused(answer.status)
      return answer
    }
    return new FrontDoor(
      await http.listen({ ...options, errorAnswer: answered }, onExchange).catch(toErrorRecord),
    )
  }

  get address(): HttpAddress | ErrorRecord {
    const opened = this.#opened
    return 'code' in opened ? opened : { host: opened.host, port: opened.port }
  }

  /** Throws why it could not be opened. */
  assertOpen(): void {
    if ('code' in this.#opened) throw fromErrorRecord(this.#opened)
  }

  /** Connections that are open now. */
  get connections(): number {
    return 'code' in this.#opened ? 0 : this.#opened.connections
  }

  /** From now on connections begin with this certificate. */
  setIdentity(identity: TlsIdentity): void {
    if (!('code' in this.#opened)) this.#opened.setIdentity(identity)
  }

  /** Answers from now on end their connections; everything else is served as before. */
  endConnections(): void {
    if (!('code' in this.#opened)) this.#opened.endConnections()
  }

  /** Takes nothing new; resolves when what is open has ended, or was cut after `graceMs`. */
  async close(graceMs: number): Promise<void> {
    if (!('code' in this.#opened)) await this.#opened.close(graceMs)
  }
}
