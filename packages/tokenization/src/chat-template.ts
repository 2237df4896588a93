/**
 * ChatTemplate: renders a chat template exactly as the engine's Jinja2 would, or refuses to.
 *
 * A wrong character in the prompt is a wrong prefix, and a wrong prefix is a cache miss that no error
 * reports. So values are Python's (python-value.ts), scopes are Jinja2's, and every construct, method
 * or operation that is not known to agree throws RenderingRefusedError. The caller then asks the
 * engine to tokenize.
 *
 * Scopes
 *   template, macro and each single turn of a loop have their own; `if` has none.
 *   A macro sees the scope it was defined in, not the one it is called from.
 *   What a loop sets is gone after the turn; `namespace()` is how templates carry state.
 *
 * Bounds: TEMPLATE_STEPS_MAX nodes are evaluated and TEMPLATE_CALLS_MAX macro calls nested, then the
 * rendering is refused.
 */

import { RenderingRefusedError } from './errors.ts'
import { safeInteger } from './python-operators.ts'
import { iterate, sliceOf } from './python-sequences.ts'
import { integer, string } from './python-text.ts'
import {
  isTruthy,
  type PythonDict,
  PythonFloat,
  PythonFunction,
  type PythonKey,
  PythonMarkup,
  PythonObject,
  PythonTuple,
  type PythonValue,
  setItem,
  toText,
  typeName,
} from './python-value.ts'
import type {
  BinaryNode,
  CallNode,
  CallStatementNode,
  ComparisonNode,
  FilterCall,
  ForNode,
  Identifier,
  MemberNode,
  Node,
  SetNode,
  TestNode,
} from './template-ast.ts'
import { builtins, loopObject, type RenderOptions } from './template-builtins.ts'
import { applyFilter, applyTest } from './template-functions.ts'
import { attribute, binary, call, subscript, unary } from './template-operations.ts'
import { parseTemplate } from './template-parser.ts'

const TEMPLATE_STEPS_MAX = 5_000_000
const TEMPLATE_CALLS_MAX = 100

/** Names that Jinja2 defines and this package does not. */
const REFUSED_NAMES: ReadonlySet<string> = new Set([
  'lipsum',
  'cycler',
  'joiner',
  'varargs',
  'kwargs',
  'self',
  'super',
])

/** By name; members of a JSON object will do. */
type Variables = ReadonlyMap<PythonKey, PythonValue>

/** A parsed chat template; immutable, may render any number of chats. */
export class ChatTemplate {
  readonly source: string
  /** The syntax tree, for callers that look for what the template reads. */
  readonly program: Node

  /** Throws RenderingRefusedError when the template itself cannot be read as Jinja2 reads it. */
  constructor(source: string) {
    this.source = source
    this.program = parseTemplate(source)
  }

  /** Renders with these variables. Throws RenderingRefusedError, also for what `raise_exception` says. */
  render(variables: Variables, options: RenderOptions = {}): string {
    return this.renderPieces(variables, options).join('')
  }

  /**
   * The same in pieces, in their order. A text of the variables that is printed as it is, is a piece as it
   * is: a long text need not be put together to be compared with another.
   */
  renderPieces(variables: Variables, options: RenderOptions = {}): readonly string[] {
    const globals = new Scope(undefined)
    for (const [name, value] of builtins(options)) globals.set(name, value)
    // A variable of the request hides a builtin of the same name.
    for (const [name, value] of variables) if (typeof name === 'string') globals.set(name, value)
    try {
      return new Rendering().run(this.program, new Scope(globals))
    } catch (thrown) {
      // Too deep, or too long for a text of this language: the engine may have other bounds.
      if (!(thrown instanceof RangeError)) throw thrown
      throw new RenderingRefusedError(`the template needs too much: ${thrown.message}`)
    }
  }
}

class Scope {
  readonly #parent: Scope | undefined
  readonly #values = new Map<string, PythonValue>()

  constructor(parent: Scope | undefined) {
    this.#parent = parent
  }

  set(name: string, value: PythonValue): void {
    this.#values.set(name, value)
  }

  get(name: string): PythonValue {
    for (let scope: Scope | undefined = this; scope !== undefined; scope = scope.#parent) {
      if (scope.#values.has(name)) return scope.#values.get(name)
    }
    if (REFUSED_NAMES.has(name)) throw new RenderingRefusedError(`the template uses ${name}`)
    return undefined
  }
}

/**
 * Leaves a turn of a loop. The output of the turn so far stays, except output into a variable or a filter.
 */
class LoopExit {
  readonly kind: 'Break' | 'Continue'

  constructor(kind: 'Break' | 'Continue') {
    this.kind = kind
  }
}

class Rendering {
  #steps = 0
  #calls = 0

  run(program: Node, scope: Scope): readonly string[] {
    if (program.type !== 'Program') throw new RenderingRefusedError('the template has no body')
    const out: string[] = []
    this.#block(program.body, scope, out)
    return out
  }

  #block(nodes: readonly Node[], scope: Scope, out: string[]): void {
    for (const node of nodes) this.#statement(node, scope, out)
  }

  /** The output of the block, for callers that do not print it at once. */
  #textOf(nodes: readonly Node[], scope: Scope): string {
    const out: string[] = []
    this.#block(nodes, scope, out)
    return out.join('')
  }

  #statement(node: Node, scope: Scope, out: string[]): void {
    switch (node.type) {
      case 'If':
        this.#block(isTruthy(this.#evaluate(node.test, scope)) ? node.body : node.alternate, scope, out)
        return
      case 'For':
        this.#for(node, scope, out)
        return
      case 'Set':
        this.#set(node, scope)
        return
      case 'Macro':
        scope.set(node.name.value, this.#macro(node.name.value, node, scope, undefined))
        return
      case 'CallStatement':
        out.push(this.#callStatement(node, scope))
        return
      case 'FilterStatement':
        out.push(printed(this.#filters(this.#textOf(node.body, new Scope(scope)), node.filters, scope)))
        return
      case 'With': {
        const inner = new Scope(scope)
        for (const { target, value } of node.bindings)
          this.#assign(target, this.#evaluate(value, scope), inner)
        this.#block(node.body, inner, out)
        return
      }
      case 'Generation':
        out.push(this.#textOf(node.body, new Scope(scope)))
        return
      case 'Break':
      case 'Continue':
        throw new LoopExit(node.type)
      case 'BinaryExpression':
        this.#printSum(node, scope, out)
        return
      default:
        out.push(toText(this.#evaluate(node, scope)))
    }
  }

  /** `a + b + c`: where all are strings, each is a piece; so a long one is not copied. */
  #printSum(node: BinaryNode, scope: Scope, out: string[]): void {
    const operands: Node[] = []
    let first: Node = node
    while (first.type === 'BinaryExpression' && first.operator.value === '+') {
      operands.push(first.right)
      first = first.left
    }
    const values = [this.#evaluate(first, scope)]
    for (const operand of operands.reverse()) values.push(this.#evaluate(operand, scope))
    if (values.every(value => typeof value === 'string')) out.push(...values)
    else out.push(toText(values.reduce((sum, value) => binary('+', sum, value))))
  }

  #for(node: ForNode, scope: Scope, out: string[]): void {
    const { iterable } = node
    let items: readonly PythonValue[]
    if (iterable.type === 'SelectExpression') {
      items = iterate(this.#evaluate(iterable.lhs, scope)).filter(item => {
        this.#step()
        const turn = new Scope(scope)
        this.#assign(node.loopvar, item, turn)
        return isTruthy(this.#evaluate(iterable.test, turn))
      })
    } else items = iterate(this.#evaluate(iterable, scope))

    // As in Jinja2, only a turn that reaches its end keeps the else branch from being printed.
    let isTurned = false
    const changed: { values: readonly PythonValue[] | undefined } = { values: undefined }
    for (const [index, item] of items.entries()) {
      this.#step()
      const turn = new Scope(scope)
      turn.set('loop', loopObject(items, index, changed))
      this.#assign(node.loopvar, item, turn)
      try {
        this.#block(node.body, turn, out)
        isTurned = true
      } catch (thrown) {
        if (!(thrown instanceof LoopExit)) throw thrown
        if (thrown.kind === 'Break') break
      }
    }
    if (!isTurned) this.#block(node.defaultBlock, new Scope(scope), out)
  }

  #set(node: SetNode, scope: Scope): void {
    if (node.value !== null) {
      this.#assign(node.assignee, this.#evaluate(node.value, scope), scope)
      return
    }
    const text = this.#textOf(node.body, new Scope(scope))
    this.#assign(node.assignee, this.#filters(text, node.filters, scope), scope)
  }

  #assign(target: Node, value: PythonValue, scope: Scope): void {
    if (target.type === 'Identifier') {
      scope.set(target.value, value)
    } else if (target.type === 'TupleLiteral') {
      const items = iterate(value)
      if (items.length !== target.value.length)
        throw new RenderingRefusedError('the template unpacks another count')
      for (const [i, part] of target.value.entries()) this.#assign(part, items[i], scope)
    } else if (
      target.type === 'MemberExpression' &&
      !target.computed &&
      target.property.type === 'Identifier'
    ) {
      const object = this.#evaluate(target.object, scope)
      if (!(object instanceof PythonObject && object.isMutable)) {
        throw new RenderingRefusedError('the template assigns to something other than a namespace')
      }
      object.attributes.set(target.property.value, value)
    } else throw new RenderingRefusedError(`the template assigns to a ${target.type}`)
  }

  /** A macro, or the body of a call block, as a function; `scope` is where it was defined. */
  #macro(
    name: string,
    { args: parameters, body }: { readonly args: readonly Node[]; readonly body: readonly Node[] },
    scope: Scope,
    display: string | undefined,
  ): PythonFunction {
    return new PythonFunction(display ?? name, (args, keywords) => {
      if (++this.#calls > TEMPLATE_CALLS_MAX) throw new RenderingRefusedError('macros are nested too deeply')
      const inner = new Scope(scope)
      const unused = new Set(keywords.keys())
      if (unused.delete('caller')) inner.set('caller', keywords.get('caller'))
      else inner.set('caller', undefined)
      if (args.length > parameters.length)
        throw new RenderingRefusedError(`macro ${name}: too many arguments`)
      for (const [i, parameter] of parameters.entries()) {
        const key =
          parameter.type === 'KeywordArgumentExpression'
            ? parameter.key.value
            : (parameter as Identifier).value
        if (i < args.length) {
          if (unused.has(key)) throw new RenderingRefusedError(`macro ${name}: ${key} is given twice`)
          inner.set(key, args[i])
        } else if (unused.delete(key)) inner.set(key, keywords.get(key))
        else if (parameter.type === 'KeywordArgumentExpression')
          inner.set(key, this.#evaluate(parameter.value, inner))
        else inner.set(key, undefined)
      }
      if (unused.size > 0)
        throw new RenderingRefusedError(`macro ${name} takes no argument ${[...unused][0]}`)
      const text = this.#textOf(body, inner)
      this.#calls--
      return text
    })
  }

  #callStatement(node: CallStatementNode, scope: Scope): string {
    const caller = this.#macro('caller', { args: node.callerArgs ?? [], body: node.body }, scope, 'caller')
    const callee = this.#evaluate(node.call.callee, scope)
    const [args, keywords] = this.#arguments(node.call.args, scope)
    return toText(call(callee, args, new Map([...keywords, ['caller', caller]])))
  }

  /** Counts an evaluation or the turn of a loop. */
  #step(): void {
    if (++this.#steps > TEMPLATE_STEPS_MAX) throw new RenderingRefusedError('the rendering takes too long')
  }

  #evaluate(node: Node, scope: Scope): PythonValue {
    this.#step()
    switch (node.type) {
      case 'StringLiteral':
      case 'ConstantLiteral':
        return node.value
      case 'IntegerLiteral':
        return safeInteger(node.value)
      case 'FloatLiteral':
        return new PythonFloat(node.value)
      case 'ArrayLiteral':
        return node.value.map(item => this.#evaluate(item, scope))
      case 'TupleLiteral':
        return new PythonTuple(node.value.map(item => this.#evaluate(item, scope)))
      case 'ObjectLiteral': {
        const dict: PythonDict = new Map()
        for (const [key, value] of node.value)
          setItem(dict, this.#evaluate(key, scope), this.#evaluate(value, scope))
        return dict
      }
      case 'Identifier':
        return scope.get(node.value)
      case 'MemberExpression':
        return this.#member(node, scope)
      case 'CallExpression':
        return this.#call(node, scope)
      case 'FilterExpression':
        return this.#filter(this.#evaluate(node.operand, scope), node.filter, scope)
      case 'TestExpression':
        return this.#test(node, scope) !== node.negate
      case 'UnaryExpression':
        return unary(node.operator.value, this.#evaluate(node.argument, scope))
      case 'BinaryExpression':
        return this.#binary(node, scope)
      case 'ComparisonChain':
        return this.#comparisons(node, scope)
      case 'Ternary':
        return this.#evaluate(
          isTruthy(this.#evaluate(node.condition, scope)) ? node.trueExpr : node.falseExpr,
          scope,
        )
      case 'SelectExpression':
        return isTruthy(this.#evaluate(node.test, scope)) ? this.#evaluate(node.lhs, scope) : undefined
      default:
        throw new RenderingRefusedError(`the template uses ${node.type} in an expression`)
    }
  }

  #member(node: MemberNode, scope: Scope): PythonValue {
    const object = this.#evaluate(node.object, scope)
    if (object === undefined) throw new RenderingRefusedError('the template reads an attribute of undefined')
    if (!node.computed) return attribute(object, (node.property as Identifier).value)
    if (node.property.type === 'SliceExpression') {
      const [start, stop, step] = [node.property.start, node.property.stop, node.property.step].map(part => {
        const value = part === undefined ? null : this.#evaluate(part, scope)
        return value === null ? undefined : integer(value)
      })
      return sliceOf(object, start, stop, step ?? 1)
    }
    return subscript(object, this.#evaluate(node.property, scope))
  }

  #call(node: CallNode, scope: Scope): PythonValue {
    const callee = this.#evaluate(node.callee, scope)
    const [args, keywords] = this.#arguments(node.args, scope)
    return call(callee, args, keywords)
  }

  #filter(value: PythonValue, { name, args: nodes }: FilterCall, scope: Scope): PythonValue {
    const [args, keywords] = this.#arguments(nodes, scope)
    return applyFilter(name, value, args, keywords)
  }

  #filters(value: PythonValue, filters: readonly FilterCall[], scope: Scope): PythonValue {
    return filters.reduce((filtered, filter) => this.#filter(filtered, filter, scope), value)
  }

  #test({ name, operand, args: nodes }: TestNode, scope: Scope): boolean {
    const value = this.#evaluate(operand, scope)
    const [args, keywords] = this.#arguments(nodes, scope)
    if (keywords.size > 0)
      throw new RenderingRefusedError(`the template gives names to what ${name} compares with`)
    return applyTest(name, value, args)
  }

  #arguments(nodes: readonly Node[], scope: Scope): [PythonValue[], Map<string, PythonValue>] {
    const args: PythonValue[] = []
    const keywords = new Map<string, PythonValue>()
    for (const node of nodes) {
      if (node.type === 'KeywordArgumentExpression')
        keywords.set(node.key.value, this.#evaluate(node.value, scope))
      else if (node.type === 'SpreadExpression') args.push(...iterate(this.#evaluate(node.argument, scope)))
      else if (node.type === 'KeywordSpreadExpression') {
        const dict = this.#evaluate(node.argument, scope)
        if (!(dict instanceof Map))
          throw new RenderingRefusedError(`the template unpacks a ${typeName(dict)}`)
        for (const [key, value] of dict) {
          if (typeof key !== 'string' || keywords.has(key))
            throw new RenderingRefusedError(`the template gives ${String(key)} twice, or it is no name`)
          keywords.set(key, value)
        }
      } else args.push(this.#evaluate(node, scope))
    }
    return [args, keywords]
  }

  #binary(node: BinaryNode, scope: Scope): PythonValue {
    const operator = node.operator.value
    const left = this.#evaluate(node.left, scope)
    if (operator === 'and') return isTruthy(left) ? this.#evaluate(node.right, scope) : left
    if (operator === 'or') return isTruthy(left) ? left : this.#evaluate(node.right, scope)
    return binary(operator, left, this.#evaluate(node.right, scope))
  }

  /** As Python does: to the first comparison that fails. */
  #comparisons({ first, rest }: ComparisonNode, scope: Scope): PythonValue {
    let left = this.#evaluate(first, scope)
    for (const { operator, operand } of rest) {
      const right = this.#evaluate(operand, scope)
      if (!isTruthy(binary(operator, left, right))) return false
      left = right
    }
    return true
  }
}

/** What a filter block prints; Python joins texts alone. */
function printed(value: PythonValue): string {
  return value instanceof PythonMarkup ? value.text : string(value)
}
