/**
 * Schema of the messages that Envoy and an external processor exchange, and of gRPC's health service: the
 * fields that are read or written here, by their numbers. What else Envoy sends is skipped.
 *
 * Source   envoy.service.ext_proc.v3 and envoy.config.core.v3 of Envoy 1.40, google.protobuf.Struct,
 *          grpc.health.v1. Names and numbers are Envoy's; the text is ours.
 */

const ENVOY = `
syntax = "proto3";
package envoy;

message Value {
  oneof kind {
    int32 null_value = 1;
    double number_value = 2;
    string string_value = 3;
    bool bool_value = 4;
    Struct struct_value = 5;
    ListValue list_value = 6;
  }
}
message Struct { map<string, Value> fields = 1; }
message ListValue { repeated Value values = 1; }

message Metadata { map<string, Struct> filter_metadata = 1; }
message HeaderValue { string key = 1; string value = 2; bytes raw_value = 3; }
message HeaderMap { repeated HeaderValue headers = 1; }
message HeaderValueOption { HeaderValue header = 1; int32 append_action = 3; }
message HeaderMutation { repeated HeaderValueOption set_headers = 1; repeated string remove_headers = 2; }

message HttpHeaders { HeaderMap headers = 1; bool end_of_stream = 3; }
message HttpBody { bytes body = 1; bool end_of_stream = 2; }
message HttpTrailers { HeaderMap trailers = 1; }
message ProtocolConfiguration {
  int32 request_body_mode = 1;
  int32 response_body_mode = 2;
  bool send_body_without_waiting_for_header_response = 3;
}
message ProcessingRequest {
  oneof request {
    HttpHeaders request_headers = 2;
    HttpHeaders response_headers = 3;
    HttpBody request_body = 4;
    HttpBody response_body = 5;
    HttpTrailers request_trailers = 6;
    HttpTrailers response_trailers = 7;
  }
  Metadata metadata_context = 8;
  bool observability_mode = 10;
  ProtocolConfiguration protocol_config = 11;
}

message StreamedBodyResponse { bytes body = 1; bool end_of_stream = 2; }
message BodyMutation {
  oneof mutation {
    bytes body = 1;
    bool clear_body = 2;
    StreamedBodyResponse streamed_response = 3;
  }
}
message CommonResponse {
  HeaderMutation header_mutation = 2;
  BodyMutation body_mutation = 3;
  bool clear_route_cache = 5;
}
message HeadersResponse { CommonResponse response = 1; }
message BodyResponse { CommonResponse response = 1; }
message TrailersResponse { HeaderMutation header_mutation = 1; }
message HttpStatus { int32 code = 1; }
message ImmediateResponse {
  HttpStatus status = 1;
  HeaderMutation headers = 2;
  bytes body = 3;
  string details = 5;
}
message ProcessingResponse {
  oneof response {
    HeadersResponse request_headers = 1;
    HeadersResponse response_headers = 2;
    BodyResponse request_body = 3;
    BodyResponse response_body = 4;
    TrailersResponse request_trailers = 5;
    TrailersResponse response_trailers = 6;
    ImmediateResponse immediate_response = 7;
  }
  Struct dynamic_metadata = 8;
}

message HealthCheckRequest { string service = 1; }
message HealthCheckResponse { int32 status = 1; }
`

/** A message type of this schema, read from and written to bytes. */
export interface WireType<M> {
  /** Throws an Error for bytes that are no such message. */
  decode(bytes: Uint8Array): M
  encode(message: M): Buffer
}

export interface HeaderValue {
  readonly key: string
  readonly value?: string
  readonly raw_value?: Uint8Array
}

export interface StructValue {
  readonly string_value?: string
  readonly struct_value?: Struct
  readonly list_value?: { readonly values: readonly StructValue[] }
}

export interface Struct {
  readonly fields: Readonly<Record<string, StructValue>>
}

export interface HeaderList {
  readonly headers?: readonly HeaderValue[]
}

export interface HeadersFrame {
  readonly headers?: HeaderList | null
  readonly end_of_stream?: boolean
}

export interface BodyFrame {
  readonly body?: Uint8Array
  readonly end_of_stream?: boolean
}

/** One of the first six is there. */
export interface ProcessingRequest {
  readonly request_headers?: HeadersFrame | null
  readonly response_headers?: HeadersFrame | null
  readonly request_body?: BodyFrame | null
  readonly response_body?: BodyFrame | null
  readonly request_trailers?: object | null
  readonly response_trailers?: object | null
  readonly metadata_context?: { readonly filter_metadata?: Readonly<Record<string, Struct>> } | null
  readonly observability_mode?: boolean
  readonly protocol_config?: {
    readonly request_body_mode?: number
    readonly response_body_mode?: number
    readonly send_body_without_waiting_for_header_response?: boolean
  } | null
}

export interface HeaderMutation {
  readonly set_headers?: readonly {
    readonly header: HeaderValue
    readonly append_action: number
  }[]
  readonly remove_headers?: readonly string[]
}

export interface CommonResponse {
  readonly header_mutation?: HeaderMutation
  readonly body_mutation?: {
    readonly body?: Uint8Array
    readonly streamed_response?: { readonly body?: Uint8Array; readonly end_of_stream: boolean }
  }
  readonly clear_route_cache?: boolean
}

interface Answer {
  readonly response: CommonResponse
}

export interface ProcessingResponse {
  readonly request_headers?: Answer
  readonly response_headers?: Answer
  readonly request_body?: Answer
  readonly response_body?: Answer
  readonly request_trailers?: object
  readonly response_trailers?: object
  readonly immediate_response?: {
    readonly status: { readonly code: number }
    readonly headers: HeaderMutation
    readonly body: Uint8Array
    readonly details: string
  }
  readonly dynamic_metadata?: Struct
}

export interface ExtProcSchema {
  readonly request: WireType<ProcessingRequest>
  readonly response: WireType<ProcessingResponse>
  readonly healthRequest: WireType<{ readonly service?: string }>
  readonly healthResponse: WireType<{ readonly status: number }>
}

/** How Envoy sends bodies: its numbers. */
export const BODY_MODE = {
  none: 0,
  streamed: 1,
  buffered: 2,
  bufferedPartial: 3,
  fullDuplex: 4,
  grpc: 5,
} as const

type Protobuf = typeof import('protobufjs')

/** Rejects where the library is not installed. */
export async function loadSchema(): Promise<ExtProcSchema> {
  const protobuf: Protobuf = (await import('protobufjs')).default
  const { root } = protobuf.parse(ENVOY, { keepCase: true })
  const type = <M>(name: string): WireType<M> => {
    const found = root.lookupType(`envoy.${name}`)
    return {
      decode: bytes => found.decode(bytes) as M,
      // Where Buffer is, the library's writer makes one.
      encode: message => found.encode(message as object).finish() as Buffer,
    }
  }
  return {
    request: type('ProcessingRequest'),
    response: type('ProcessingResponse'),
    healthRequest: type('HealthCheckRequest'),
    healthResponse: type('HealthCheckResponse'),
  }
}
