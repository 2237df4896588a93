export { BadRegistrationError } from './errors.ts'
export { type Registered, type RegisterOptions, registerWorker } from './register-worker.ts'
export { encodeRegistration, readRegistration, registrationEndpoint } from './registration.ts'
