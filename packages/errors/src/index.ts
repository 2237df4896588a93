export {
  CodedError,
  type ErrorDetails,
  type ErrorRecord,
  fromErrorRecord,
  RemoteError,
  toErrorRecord,
  UNEXPECTED_CODE,
} from './coded-error.ts'
export { isLocalFault } from './local-faults.ts'
