export {
  type ErrorDetails,
  type ErrorRecord,
  fromErrorRecord,
  HomingError,
  RemoteError,
  toErrorRecord,
  UNEXPECTED_CODE,
} from './homing-error.ts'
export { isLocalFault } from './local-faults.ts'
