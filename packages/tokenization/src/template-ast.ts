/** The syntax tree of a chat template, as `parseTemplate` makes it and `ChatTemplate` renders it. */

/** A node of the tree. Among statements, an expression is printed. */
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
  | WithNode
  /** What an assistant has said; its body has a scope of its own. */
  | { readonly type: 'Generation'; readonly body: readonly Node[] }
  | SetNode
  | MacroNode
  | CallStatementNode
  | {
      readonly type: 'FilterStatement'
      /** In the order in which they are applied. */
      readonly filters: readonly FilterCall[]
      readonly body: readonly Node[]
    }
  | MemberNode
  | CallNode
  | Identifier
  | { readonly type: 'IntegerLiteral' | 'FloatLiteral'; readonly value: number }
  | { readonly type: 'StringLiteral'; readonly value: string }
  | { readonly type: 'ConstantLiteral'; readonly value: boolean | null }
  | { readonly type: 'ArrayLiteral' | 'TupleLiteral'; readonly value: readonly Node[] }
  | { readonly type: 'ObjectLiteral'; readonly value: ReadonlyMap<Node, Node> }
  | BinaryNode
  | ComparisonNode
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

/** `{% for … %}`; a SelectExpression as iterable is `for … in … if …`. */
export interface ForNode {
  readonly type: 'For'
  readonly loopvar: Node
  readonly iterable: Node
  readonly body: readonly Node[]
  readonly defaultBlock: readonly Node[]
}

/** `{% set %}`, of an expression, or of a block (`value` is null) and its filters. */
export interface SetNode {
  readonly type: 'Set'
  readonly assignee: Node
  readonly value: Node | null
  readonly filters: readonly FilterCall[]
  readonly body: readonly Node[]
}

/** `{% with a = 1, b = 2 %}`. */
export interface WithNode {
  readonly type: 'With'
  readonly bindings: readonly { readonly target: Node; readonly value: Node }[]
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

/** `a < b <= c`: two comparisons or more, each of neighbours, and `b` is computed once. */
export interface ComparisonNode {
  readonly type: 'ComparisonChain'
  readonly first: Node
  readonly rest: readonly { readonly operator: string; readonly operand: Node }[]
}

/** A filter and its arguments. */
export interface FilterCall {
  readonly name: string
  readonly args: readonly Node[]
}

/** `operand | filter`. */
export interface FilterNode {
  readonly type: 'FilterExpression'
  readonly operand: Node
  readonly filter: FilterCall
}

/** `operand is test`. */
export interface TestNode {
  readonly type: 'TestExpression'
  readonly operand: Node
  readonly negate: boolean
  readonly name: string
  readonly args: readonly Node[]
}

/** `start:stop:step` in brackets. */
export interface SliceNode {
  readonly type: 'SliceExpression'
  readonly start: Node | undefined
  readonly stop: Node | undefined
  readonly step: Node | undefined
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
