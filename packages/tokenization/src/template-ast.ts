/**
 * The syntax tree of a chat template, as the parser of @huggingface/jinja 0.5.11 makes it. Only the
 * parser of that library is used: its interpreter prints and computes as JavaScript does, which is
 * not what the engine's Jinja2 does. See docs of `ChatTemplate`.
 */

import { parse, tokenize } from '@huggingface/jinja'
import { RenderingRefusedError } from './errors.ts'

/** A node of the tree; `type` names the class of the library. */
export type Node =
  | { readonly type: 'Program'; readonly body: readonly Node[] }
  | {
      readonly type: 'If'
      readonly test: Node
      readonly body: readonly Node[]
      readonly alternate: readonly Node[]
    }
  | ForNode
  | { readonly type: 'Break' | 'Continue' }
  | { readonly type: 'Comment' }
  | SetNode
  | MacroNode
  | CallStatementNode
  | {
      readonly type: 'FilterStatement'
      readonly filter: Identifier | CallNode
      readonly body: readonly Node[]
    }
  | MemberNode
  | CallNode
  | Identifier
  | { readonly type: 'IntegerLiteral' | 'FloatLiteral'; readonly value: number }
  | { readonly type: 'StringLiteral'; readonly value: string }
  | { readonly type: 'ArrayLiteral' | 'TupleLiteral'; readonly value: readonly Node[] }
  | { readonly type: 'ObjectLiteral'; readonly value: ReadonlyMap<Node, Node> }
  | BinaryNode
  | FilterNode
  | TestNode
  | { readonly type: 'SelectExpression'; readonly lhs: Node; readonly test: Node }
  | {
      readonly type: 'UnaryExpression'
      readonly operator: { readonly value: string }
      readonly argument: Node
    }
  | SliceNode
  | { readonly type: 'KeywordArgumentExpression'; readonly key: Identifier; readonly value: Node }
  | { readonly type: 'SpreadExpression' | 'KeywordSpreadExpression'; readonly argument: Node }
  | { readonly type: 'Ternary'; readonly condition: Node; readonly trueExpr: Node; readonly falseExpr: Node }

/** A name that is read or assigned. */
export interface Identifier {
  readonly type: 'Identifier'
  readonly value: string
}

interface Token {
  readonly type: string
  readonly value: string
}

/** `{% for … %}`; a SelectExpression as iterable is `for … in … if …`. */
export interface ForNode {
  readonly type: 'For'
  readonly loopvar: Node
  readonly iterable: Node
  readonly body: readonly Node[]
  readonly defaultBlock: readonly Node[]
}

/** `{% set %}`, of an expression or of a block. */
export interface SetNode {
  readonly type: 'Set'
  readonly assignee: Node
  readonly value: Node | null
  readonly body: readonly Node[]
}

/** `{% macro %}`. */
export interface MacroNode {
  readonly type: 'Macro'
  readonly name: Identifier
  readonly args: readonly Node[]
  readonly body: readonly Node[]
}

/** `{% call %}`. */
export interface CallStatementNode {
  readonly type: 'CallStatement'
  readonly call: CallNode
  readonly callerArgs: readonly Node[] | null
  readonly body: readonly Node[]
}

/** `object.property` or `object[property]`. */
export interface MemberNode {
  readonly type: 'MemberExpression'
  readonly object: Node
  readonly property: Node
  readonly computed: boolean
}

/** `callee(args)`. */
export interface CallNode {
  readonly type: 'CallExpression'
  readonly callee: Node
  readonly args: readonly Node[]
}

/** `left operator right`. */
export interface BinaryNode {
  readonly type: 'BinaryExpression'
  readonly operator: { readonly value: string }
  readonly left: Node
  readonly right: Node
}

/** `operand | filter`. */
export interface FilterNode {
  readonly type: 'FilterExpression'
  readonly operand: Node
  readonly filter: Identifier | CallNode
}

/** `operand is test`. */
export interface TestNode {
  readonly type: 'TestExpression'
  readonly operand: Node
  readonly negate: boolean
  readonly test: Identifier
}

/** `start:stop:step` in brackets. */
export interface SliceNode {
  readonly type: 'SliceExpression'
  readonly start: Node | undefined
  readonly stop: Node | undefined
  readonly step: Node | undefined
}

const KEYWORDS: ReadonlySet<string> = new Set(['and', 'or', 'not', 'if', 'else', 'in', 'is'])
/** Words and signs after which a comparison begins anew. */
const SEPARATORS: ReadonlySet<string> = new Set([
  'and',
  'or',
  'not',
  'if',
  'else',
  ',',
  ':',
  '=',
  '{%',
  '%}',
  '{{',
  '}}',
])
// What the lexer of the library takes for something else than Jinja2 does.
const MISREAD = [
  { pattern: /[{][%{#]\+|\+[%}#]\}/, why: 'the template uses `+` in a tag, which the parser does not know' },
  { pattern: /^[ \t]*\{-|-\}\n/m, why: 'the template holds `{-` or `-}` outside of tags' },
  // Python and JavaScript differ in what of these is space around a tag, and what begins a line.
  { pattern: /[^\P{Cc}\t\n]|[\ufeff\u2028\u2029]/u, why: 'the template holds control characters' },
] as const

/** Parses a template. Throws RenderingRefusedError when the parser would read it otherwise than Jinja2. */
export function parseTemplate(source: string): Node {
  const text = source.replace(/\r\n?/g, '\n')
  // `-}}\n` is an ordinary tag end; only a `-}` that ends no tag is misread.
  const outside = text.replace(/-\}\}/g, '}}')
  for (const { pattern, why } of MISREAD) if (pattern.test(outside)) throw new RenderingRefusedError(why)
  try {
    const tokens = tokenize(text, { trim_blocks: true, lstrip_blocks: true })
    refuseChainedComparisons(tokens)
    refuseMissingCommas(tokens)
    return parse(tokens) as unknown as Node
  } catch (error) {
    if (error instanceof RenderingRefusedError) throw error
    throw new RenderingRefusedError(`the template is not understood: ${(error as Error).message}`)
  }
}

/** Every node below and including `root`, parents first. */
export function* walkTemplate(root: unknown): Generator<Node> {
  const pending: unknown[] = [root]
  while (pending.length > 0) {
    const next = pending.pop()
    if (typeof next !== 'object' || next === null) continue
    if (next instanceof Map) {
      for (const [key, value] of next) pending.push(value, key)
      continue
    }
    if (!Array.isArray(next) && 'type' in next) yield next as Node
    pending.push(...Object.values(next).reverse())
  }
}

/** Jinja2 reads `a < b < c` as Python does; the parser reads `(a < b) < c`, and its tree looks the same. */
function refuseChainedComparisons(
  tokens: readonly { readonly type: string; readonly value: string }[],
): void {
  const counts = [0]
  for (const [i, { type, value }] of tokens.entries()) {
    if (type === 'Text' || type === 'StringLiteral' || type === 'Comment') continue
    const isNotIn = value === 'not' && tokens[i + 1]?.value === 'in'
    if (value === '(' || value === '[' || (value === '{' && type === 'OpenCurlyBracket')) counts.push(0)
    else if (value === ')' || value === ']' || (value === '}' && type === 'CloseCurlyBracket')) counts.pop()
    else if (SEPARATORS.has(value) && !isNotIn) counts[counts.length - 1] = 0
    else if (type === 'ComparisonBinaryOperator' || (type === 'Identifier' && value === 'in')) {
      const count = (counts.pop() ?? 0) + 1
      if (count > 1) throw new RenderingRefusedError('the template chains comparisons')
      counts.push(count)
    }
  }
}

/**
 * The parser takes `[1 2]` for `[1, 2]`, and so also the `1e3` that Jinja2 knows as a number; and it
 * ends a test where Jinja2 looks for its argument.
 */
function refuseMissingCommas(tokens: readonly Token[]): void {
  const isName = (token: Token) => token.type === 'Identifier' && !KEYWORDS.has(token.value)
  let isCallHead = false
  for (let i = 2; i < tokens.length; i++) {
    const [twoBefore, before, token] = [tokens[i - 2]!, tokens[i - 1]!, tokens[i]!]
    const isHead = twoBefore.type === 'OpenStatement'
    if (isHead) isCallHead = before.value === 'call'
    const isTested = twoBefore.value === 'is' || (twoBefore.value === 'not' && tokens[i - 3]?.value === 'is')
    const endsTest = isTested && before.type === 'Identifier' && before.value !== 'not'
    if (endsTest && token.type === 'Identifier' && !['and', 'or', 'else'].includes(token.value)) {
      throw new RenderingRefusedError(`the template has "${token.value}" after a test`)
    }
    const endsValue = /^(?:NumericLiteral|StringLiteral|Close(?:Paren|SquareBracket|CurlyBracket))$/.test(
      before.type,
    )
    if (isHead || isCallHead || !(endsValue || isName(before))) continue
    const isJoined = token.type === 'StringLiteral' && before.type === 'StringLiteral'
    const beginsValue = /^(?:NumericLiteral|StringLiteral)$/.test(token.type) || isName(token)
    if (beginsValue && !isJoined)
      throw new RenderingRefusedError(`the template has "${token.value}" out of place`)
  }
}
