/** `GET /workers/ID/diagnosis`: findings of a new look at a worker, and the router's facts about it. */

import { BadParameterError, type HttpAnswer, jsonAnswer, NotFoundError, queryOf } from '@homing/http'
import type { ConsoleArgs } from '../console-args.ts'
import { DiagnosesBusyError } from '../errors.ts'
import type { OperatorRequest } from '../messages.ts'
import { diagnosisView } from './diagnosis-view.ts'

const DIAGNOSIS = '/diagnosis'

export async function diagnosis(
  request: OperatorRequest,
  parameter: string,
  { directory, readMsMax }: Pick<ConsoleArgs, 'directory' | 'readMsMax'>,
): Promise<HttpAnswer> {
  queryOf(request)
  if (!parameter.endsWith(DIAGNOSIS)) {
    throw new BadParameterError('path', request.path, 'use GET /workers/ID/diagnosis, or GET /workers')
  }
  const workerId = parameter.slice(0, -DIAGNOSIS.length)
  const found = await directory.ask({ type: 'diagnoseWorker', workerId }, { timeout: readMsMax })
  if (found === 'unknown') throw new NotFoundError('worker', workerId, 'GET /workers lists them')
  if (found === 'busy') throw new DiagnosesBusyError(workerId)
  const { state, stateReason, keys } = found.known
  return jsonAnswer(200, {
    ...diagnosisView(found),
    router: {
      state,
      state_reason: stateReason,
      worker_keys: keys.map(({ key, trust, trustReason, trustSinceMs }) => ({
        worker: key,
        trust,
        trust_reason: trustReason,
        trust_since: new Date(trustSinceMs).toISOString(),
      })),
    },
  })
}
