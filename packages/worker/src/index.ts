export { BadRegistrationError } from './errors.ts'
export { type Registered, type RegisterOptions, registerWorker } from './register-worker.ts'
export {
  encodeRegistration,
  readRegistration,
  registrationEndpoint,
  requestSubjectOf,
} from './registration.ts'
export {
  type RequestHandler,
  type RequestLimits,
  type ServeRequests,
  serveRequests,
  type WorkerAnswer,
  type WorkerRequest,
} from './serve-requests.ts'
