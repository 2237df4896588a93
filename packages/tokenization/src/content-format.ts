/**
 * How a chat template wants the content of a message: as one string, or as the list of parts that
 * OpenAI's API has. Engines detect it from the template, and so must a router that renders.
 *
 *   vllm     parts, when a loop runs over the content of a variable that runs over the messages,
 *            directly, through `{% set %}`, or through the parameter of a macro
 *   sglang   parts, when the template names image, audio, video or vision anywhere, or loops over
 *            the content of a variable called `message`
 *
 * Source: what vLLM 0.32 and SGLang 0.5 do, observed; the parity tests hold vLLM's own answers.
 */

import type { ChatTemplate } from './chat-template.ts'
import { type ForNode, type Node, walkTemplate } from './template-ast.ts'

/** The engine whose rules render a request. */
export type EngineDialect = 'vllm' | 'sglang'

/** What a template is given as `message.content`. */
export type ContentFormat = 'string' | 'parts'

/** The format that an engine detects for this template. */
export function detectContentFormat(template: ChatTemplate, dialect: EngineDialect): ContentFormat {
  const nodes = Array.from(walkTemplate(template.program))
  if (dialect === 'sglang') {
    const isMultimodal = /image|audio|video|vision/.test(template.source)
    const loops = nodes.some(node => node.type === 'For' && reads(iterated(node), 'message', 'content'))
    return isMultimodal || loops ? 'parts' : 'string'
  }
  try {
    return loopsOverContent(nodes) ? 'parts' : 'string'
  } catch (error) {
    // The engine gives up at a target that is not a plain name, and takes the content as a string.
    if (error instanceof UnexpectedTargetError) return 'string'
    throw error
  }
}

class UnexpectedTargetError extends Error {}

function loopsOverContent(nodes: readonly Node[]): boolean {
  const loops = nodes.filter(node => node.type === 'For')
  const messagesNames = assignedNames(nodes, 'messages')
  const messageNames = loops
    .filter(loop => messagesNames.some(name => reads(iterated(loop), name)))
    .map(loop => plainName(loop.loopvar))

  const isContent = (node: Node) => messageNames.some(name => reads(node, name, 'content'))
  const macroLoops = new Map<ForNode, ReadonlySet<string>>()
  for (const macro of nodes.filter(node => node.type === 'Macro')) {
    const parameters = macro.args.map(parameterName)
    const bound = new Set<string>()
    for (const call of nodes) {
      if (call.type !== 'CallExpression' || call.callee.type !== 'Identifier') continue
      if (call.callee.value !== macro.name.value) continue
      for (const [i, arg] of call.args.entries()) {
        const name = arg.type === 'KeywordArgumentExpression' ? arg.key.value : parameters[i]
        const value = arg.type === 'KeywordArgumentExpression' ? arg.value : arg
        if (name !== undefined && parameters.includes(name) && isContent(value)) bound.add(name)
      }
    }
    for (const loop of walkTemplate(macro.body)) {
      if (loop.type === 'For' && (bound.size > 0 || !macroLoops.has(loop))) macroLoops.set(loop, bound)
    }
  }
  return loops.some(loop => {
    const over = iterated(loop)
    const bound = macroLoops.get(loop)
    const isOverContent =
      isContent(over) ||
      (over.type === 'Identifier' && (bound === undefined ? over.value === 'content' : bound.has(over.value)))
    if (isOverContent) plainName(loop.loopvar)
    return isOverContent
  })
}

/** `name`, and every variable that is set to it or to a slice or filtering of it. */
function assignedNames(nodes: readonly Node[], name: string): string[] {
  const names = [name]
  for (let i = 0; i < names.length; i++) {
    for (const node of nodes) {
      if (node.type !== 'Set' || node.value === null || !reads(node.value, names[i]!)) continue
      const assigned = plainName(node.assignee)
      if (!names.includes(assigned)) names.push(assigned)
    }
  }
  return names
}

function iterated(loop: ForNode): Node {
  return loop.iterable.type === 'SelectExpression' ? loop.iterable.lhs : loop.iterable
}

/** Whether `node` is the variable, or its `key`, or a slice, filtering or test of that. */
function reads(node: Node, variable: string, key?: string): boolean {
  if (node.type === 'FilterExpression' || node.type === 'TestExpression')
    return reads(node.operand, variable, key)
  if (node.type === 'MemberExpression' && node.computed && node.property.type === 'SliceExpression') {
    return reads(node.object, variable, key)
  }
  if (key === undefined) return node.type === 'Identifier' && node.value === variable
  if (node.type !== 'MemberExpression' || !reads(node.object, variable)) return false
  if (node.object.type !== 'Identifier') return false
  const { property } = node
  return property.type === (node.computed ? 'StringLiteral' : 'Identifier') && property.value === key
}

function plainName(target: Node): string {
  if (target.type !== 'Identifier') throw new UnexpectedTargetError()
  return target.value
}

function parameterName(parameter: Node): string {
  return parameter.type === 'KeywordArgumentExpression' ? parameter.key.value : plainName(parameter)
}
