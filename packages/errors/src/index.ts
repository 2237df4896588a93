export {
  type ErrorDetails,
  type ErrorRecord,
  fromErrorRecord,
  RemoteError,
  RouterError,
  toErrorRecord,
  UNEXPECTED_CODE,
} from './router-error.ts'
