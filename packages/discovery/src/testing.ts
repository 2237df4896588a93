export { type ApiKind, type ApiObject, ApiServer, type ApiServerOptions } from './testing-api-server.ts'
export { type DnsMood, type DnsRecord, DnsServer } from './testing-dns-server.ts'
export { podObject, sliceObject, type TestPod } from './testing-objects.ts'
