/** Who may reach which port of a pod, by the NetworkPolicies of some manifests. */

import type { Manifest } from './helm-cluster.ts'

type Labels = Readonly<Record<string, string>>

/** A pod that asks. `namespace`: labels of its namespace; undefined: that of the pod that it asks. */
export interface Asking {
  readonly labels?: Labels
  readonly namespace?: Labels
}

interface Selector {
  readonly matchLabels?: Labels
  readonly matchExpressions?: readonly { readonly key: string; readonly operator: string }[]
}

interface Peer {
  readonly podSelector?: Selector
  readonly namespaceSelector?: Selector
}

interface IngressRule {
  readonly from?: readonly Peer[]
  readonly ports?: readonly { readonly port: number | string }[]
}

/** `namespace`: labels of the namespace of all of them. */
export function mayReach(
  manifests: readonly Manifest[],
  asking: Asking,
  deployment: Manifest,
  port: number,
  namespace: Labels = {},
): boolean {
  const { metadata, spec } = deployment.spec.template
  const policies = manifests.filter(
    one => one.kind === 'NetworkPolicy' && fits(one.spec.podSelector, metadata.labels),
  )
  if (policies.length === 0) return true
  const named = (name: string): number | undefined =>
    spec.containers[0].ports.find((one: { name: string }) => one.name === name)?.containerPort
  const isFrom = ({ podSelector, namespaceSelector }: Peer): boolean => {
    if (namespaceSelector === undefined && asking.namespace !== undefined) return false
    const { labels = {}, namespace: home = namespace } = asking
    return fits(namespaceSelector ?? {}, home) && fits(podSelector ?? {}, labels)
  }
  return policies
    .flatMap(({ spec: { ingress } }) => ingress as readonly IngressRule[])
    .some(
      ({ from, ports }) =>
        (from === undefined || from.some(isFrom)) &&
        (ports === undefined ||
          ports.some(one => (typeof one.port === 'number' ? one.port : named(one.port)) === port)),
    )
}

function fits({ matchLabels = {}, matchExpressions = [] }: Selector, labels: Labels): boolean {
  return (
    Object.entries(matchLabels).every(([key, value]) => labels[key] === value) &&
    matchExpressions.every(({ key, operator }) => {
      if (operator !== 'Exists') throw new Error(`${operator} is not done here`)
      return key in labels
    })
  )
}
