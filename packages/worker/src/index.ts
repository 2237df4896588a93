export { BadRegistrationError } from './errors.ts'
export type { RequestHandler, WorkerAnswer, WorkerRequest } from './handle-request.ts'
export {
  type Registered,
  type RegisterOptions,
  registerWorker,
  registerWorker as register,
} from './register-worker.ts'
export {
  encodeRegistration,
  readRegistration,
  registrationEndpoint,
  requestSubjectOf,
} from './registration.ts'
export type { RequestLimits, ServeRequests } from './request-settings.ts'
export { type ServedRequests, serveRequests } from './serve-requests.ts'
