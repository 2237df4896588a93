/** For tests: pods and endpoint slices with all members that Kubernetes 1.33 writes into them. */

import type { ApiObject } from './api-server.ts'

export interface TestPod {
  readonly name: string
  readonly address: string
  readonly uid?: string
  readonly annotations?: Readonly<Record<string, string>>
  /** Default: true. */
  readonly isReady?: boolean
  readonly isServing?: boolean
  readonly isTerminating?: boolean
}

export const uidOf = ({ name, uid }: TestPod): string => uid ?? `uid-of-${name}`

export function podObject(pod: TestPod): ApiObject {
  const { name, address, annotations = {}, isReady = true } = pod
  return {
    metadata: {
      name,
      generateName: 'vllm-7d5c8f9b6-',
      namespace: 'default',
      uid: uidOf(pod),
      creationTimestamp: '2026-11-20T08:15:30Z',
      labels: { app: 'vllm', 'pod-template-hash': '7d5c8f9b6' },
      annotations: { 'kubernetes.io/config.source': 'api', ...annotations },
      ownerReferences: [
        {
          apiVersion: 'apps/v1',
          kind: 'ReplicaSet',
          name: 'vllm-7d5c8f9b6',
          uid: 'e0f3',
          controller: true,
          blockOwnerDeletion: true,
        },
      ],
      managedFields: [
        {
          manager: 'kubelet',
          operation: 'Update',
          apiVersion: 'v1',
          fieldsType: 'FieldsV1',
          fieldsV1: { 'f:status': {} },
          subresource: 'status',
        },
      ],
    },
    spec: {
      containers: [
        {
          name: 'vllm',
          image: 'vllm/vllm-openai:v0.32.0',
          ports: [{ name: 'http', containerPort: 8000, protocol: 'TCP' }],
        },
      ],
      nodeName: 'gpu-1',
    },
    status: {
      phase: 'Running',
      podIP: address,
      podIPs: [{ ip: address }],
      conditions: [
        {
          type: 'Ready',
          status: isReady ? 'True' : 'False',
          lastProbeTime: null,
          lastTransitionTime: '2026-11-20T08:16:10Z',
        },
      ],
    },
  }
}

/** One slice of a Service, with its endpoints in this order. */
export function sliceObject(
  service: string,
  pods: readonly TestPod[],
  {
    name = `${service}-abc12`,
    ports = [{ name: 'http', port: 8000 }],
    addressType = 'IPv4',
    labels = {},
  }: {
    readonly name?: string
    readonly ports?: readonly { readonly name?: string; readonly port: number }[]
    readonly addressType?: string
    readonly labels?: Readonly<Record<string, string>>
  } = {},
): ApiObject {
  return {
    metadata: {
      name,
      generateName: `${service}-`,
      namespace: 'default',
      uid: `uid-of-${name}`,
      generation: 1,
      creationTimestamp: '2026-11-20T08:15:28Z',
      labels: {
        'endpointslice.kubernetes.io/managed-by': 'endpointslice-controller.k8s.io',
        'kubernetes.io/service-name': service,
        ...labels,
      },
      annotations: { 'endpoints.kubernetes.io/last-change-trigger-time': '2026-11-20T08:16:10Z' },
      ownerReferences: [
        {
          apiVersion: 'v1',
          kind: 'Service',
          name: service,
          uid: 'a1b2',
          controller: true,
          blockOwnerDeletion: true,
        },
      ],
    },
    addressType,
    endpoints: pods.map(pod => ({
      addresses: [pod.address],
      conditions: {
        ready: pod.isReady ?? true,
        serving: pod.isServing ?? pod.isReady ?? true,
        terminating: pod.isTerminating ?? false,
      },
      nodeName: 'gpu-1',
      targetRef: { kind: 'Pod', namespace: 'default', name: pod.name, uid: uidOf(pod) },
      zone: 'zone-a',
    })),
    ports: ports.map(({ name: portName, port }) => ({ name: portName ?? '', port, protocol: 'TCP' })),
  }
}
