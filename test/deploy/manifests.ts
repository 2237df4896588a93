/**
 * The manifests of deploy/kubernetes, put together as kustomize does: lists of files, a namespace, names of
 * images. kubectl.test.ts compares it with kustomize itself.
 */

import assert from 'node:assert/strict'
import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { parse, parseAllDocuments } from 'yaml'
import type { Manifest } from './helm-cluster.ts'

export const DEPLOY = join(import.meta.dirname, '../../deploy')

/** Of a folder with a kustomization: those of all its resources. Asserts that each of its files is used. */
export function kustomized(folder: string): readonly Manifest[] {
  const path = join(folder, 'kustomization.yaml')
  const {
    resources = [],
    namespace,
    images = [],
    ...rest
  } = parse(readFileSync(path, 'utf8')) as {
    readonly resources?: readonly string[]
    readonly namespace?: string
    readonly images?: readonly { readonly name: string; readonly newName: string; readonly newTag: string }[]
  }
  // Whatever else changes manifests would have to be done here, too.
  const others = Object.keys(rest).filter(key => !['apiVersion', 'kind'].includes(key))
  assert.deepEqual(others, [], `${path} has what this test does not do`)
  const unused = readdirSync(folder).filter(
    name => name.endsWith('.yaml') && name !== 'kustomization.yaml' && !resources.includes(name),
  )
  assert.deepEqual(unused, [], `${path} leaves files out`)
  const manifests = resources.flatMap(name => {
    const resource = join(folder, name)
    assert.ok(existsSync(resource), `${path} names ${name}`)
    return statSync(resource).isDirectory() ? kustomized(resource) : manifestsIn(resource)
  })
  for (const one of manifests) {
    for (const container of one.spec?.template?.spec.containers ?? []) {
      const image = images.find(({ name }) => name === container.image)
      if (image !== undefined) container.image = `${image.newName}:${image.newTag}`
    }
  }
  return namespace === undefined ? manifests : manifests.map(one => within(one, namespace))
}

function within(one: Manifest, namespace: string): Manifest {
  if (one.kind === 'Namespace') return { ...one, metadata: { ...one.metadata, name: namespace } }
  const { subjects } = one as { readonly subjects?: readonly object[] }
  return {
    ...one,
    metadata: { ...one.metadata, namespace },
    ...(subjects === undefined ? {} : { subjects: subjects.map(subject => ({ ...subject, namespace })) }),
  } as Manifest
}

/** Where the manifests of a folder go, unless they name a namespace themselves. */
export function namespaceOf(folder: string): string | undefined {
  const text = readFileSync(join(folder, 'kustomization.yaml'), 'utf8')
  return (parse(text) as { readonly namespace?: string }).namespace
}

export function manifestsIn(path: string): readonly Manifest[] {
  return parseAllDocuments(readFileSync(path, 'utf8')).map(document => {
    const [error] = document.errors
    assert.equal(error, undefined, `${path}: ${error?.message}`)
    return document.toJS() as Manifest
  })
}

export function oneOf(
  manifests: readonly Manifest[],
  kind: string,
  fits: (one: Manifest) => boolean = () => true,
) {
  const found = manifests.filter(one => one.kind === kind && fits(one))
  assert.equal(found.length, 1, `one ${kind}, not ${found.length}`)
  return found[0]!
}
