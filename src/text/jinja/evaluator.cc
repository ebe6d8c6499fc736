#include "text/jinja/evaluator.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <utility>

#include "text/jinja/formatting.h"

namespace tandem::jinja {

Evaluator::Evaluator(Runtime& rt, Variables variables) : rt_(rt) {
  scopes_.push_back({std::move(variables), kOutermost, nullptr});
  scopes_.push_back({{}, kOutermost, nullptr});
}

MarkedText Evaluator::Render(const Block& block) {
  MarkedText out;
  Run(block, out);
  return out;
}

// --- statements ---

Evaluator::Flow Evaluator::Run(const Block& block, MarkedText& out) {
  const Runtime::Nested nested(rt_);
  for (const StmtPtr& stmt : block) {
    rt_.set_line(stmt->line);
    if (!rt_.Charge()) return Flow::kNext;
    Flow flow = Flow::kNext;
    switch (stmt->kind) {
      case StmtKind::kText:
        out.Append(stmt->text);
        rt_.Append(Value(), out);  // checks the size
        break;
      case StmtKind::kPrint: rt_.Append(Eval(*stmt->expr), out); break;
      case StmtKind::kSet: Assign(stmt->target, Eval(*stmt->expr)); break;
      case StmtKind::kSetBlock: RunSetBlock(*stmt); break;
      case StmtKind::kFilter: RunFilter(*stmt, out); break;
      case StmtKind::kCall: RunCall(*stmt, out); break;
      case StmtKind::kWith: flow = RunWith(*stmt, out); break;
      case StmtKind::kIf: flow = RunIf(*stmt, out); break;
      case StmtKind::kFor: flow = RunFor(*stmt, out); break;
      case StmtKind::kMacro: DefineMacro(*stmt); break;
      case StmtKind::kBreak: return Flow::kBreak;
      case StmtKind::kContinue: return Flow::kContinue;
    }
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Evaluator::Flow Evaluator::RunIf(const Stmt& stmt, MarkedText& out) {
  for (const auto& [condition, body] : stmt.branches) {
    const bool taken = Eval(*condition).Truthy();
    if (!rt_.ok()) return Flow::kNext;
    if (taken) return Run(body, out);
  }
  return Run(stmt.otherwise, out);
}

Value Evaluator::FilterItems(const Stmt& stmt, const List& items, size_t scope) {
  std::vector<Value> kept;
  const Inner inner(*this, scope);
  for (const Value& item : items.items) {
    if (!rt_.Charge()) break;
    Assign(stmt.target, item);
    if (Eval(*stmt.filter).Truthy()) kept.push_back(item);
  }
  return rt_.MakeList(List::Flavor::kList, std::move(kept));
}

Evaluator::Flow Evaluator::RunFor(const Stmt& stmt, MarkedText& out) {
  return RunLoop(stmt, Eval(*stmt.expr), scopes_.size() - 1, 0, out);
}

Evaluator::Flow Evaluator::RunLoop(const Stmt& stmt, const Value& iterable, size_t scope,
                                   size_t depth0, MarkedText& out) {
  std::shared_ptr<const List> items = rt_.Items(iterable);
  if (stmt.filter && rt_.ok()) items = rt_.Items(FilterItems(stmt, *items, scope));
  if (!rt_.ok()) return Flow::kNext;
  if (items->items.empty()) {
    const Inner inner(*this, scope);
    return Run(stmt.otherwise, out);
  }
  Loop* const loop = rt_.MakeLoop();
  loop->items = items;
  loop->depth0 = depth0;
  loop->recursive = stmt.recursive ? &stmt : nullptr;
  loop->scope = scope;
  for (size_t i = 0; i < items->items.size() && rt_.Charge(); ++i) {
    loop->index0 = i;
    const Inner inner(*this, scope);
    SetVariable("loop", Value(static_cast<const Loop*>(loop)));
    Assign(stmt.target, items->items[i]);
    if (Run(stmt.body, out) == Flow::kBreak) break;
  }
  loop->recursive = nullptr;
  return Flow::kNext;
}

Value Evaluator::Collect(const Block& block, const Expr* filters) {
  MarkedText text;
  {
    const Inner inner(*this);
    Run(block, text);
  }
  Value collected = rt_.Text(std::move(text));
  if (filters == nullptr || !rt_.ok()) return collected;
  // The innermost filter reads it before anything else can run.
  block_text_ = std::move(collected);
  return Eval(*filters);
}

void Evaluator::RunSetBlock(const Stmt& stmt) {
  Assign(stmt.target, Collect(stmt.body, stmt.expr.get()));
}

void Evaluator::RunFilter(const Stmt& stmt, MarkedText& out) {
  rt_.Append(Collect(stmt.body, stmt.expr.get()), out);
}

void Evaluator::RunCall(const Stmt& stmt, MarkedText& out) {
  const Caller caller{&stmt, scopes_.size() - 1};
  rt_.Append(EvalMacroCall(*stmt.expr, &caller), out);
}

Evaluator::Flow Evaluator::RunWith(const Stmt& stmt, MarkedText& out) {
  std::vector<Value> values;
  for (const ExprPtr& value : stmt.defaults) values.push_back(Eval(*value));
  const Inner inner(*this);
  for (size_t i = 0; i < values.size(); ++i) Assign(stmt.target.parts[i], values[i]);
  return rt_.ok() ? Run(stmt.body, out) : Flow::kNext;
}

void Evaluator::DefineMacro(const Stmt& stmt) {
  std::erase_if(macros_, [&](const Stmt* m) { return m->target.name == stmt.target.name; });
  macros_.push_back(&stmt);
  SetVariable(stmt.target.name, Value(Callable{}));
}

// --- names ---

void Evaluator::Assign(const Target& target, const Value& value) {
  if (!rt_.ok()) return;
  if (!target.parts.empty()) {
    const auto items = rt_.Items(value);
    if (rt_.ok() && items->items.size() != target.parts.size()) {
      rt_.FailType("cannot assign {} items to {} names", items->items.size(), target.parts.size());
    }
    for (size_t i = 0; i < target.parts.size() && rt_.Charge(); ++i) {
      Assign(target.parts[i], items->items[i]);
    }
    return;
  }
  if (target.attribute.empty()) return SetVariable(target.name, value);
  const Value object = Lookup(target.name);
  if (object.kind() != Kind::kNamespace) {
    rt_.FailType("cannot assign to an attribute of '{}': it is no namespace", target.name);
    return;
  }
  if (!rt_.Allocate(target.attribute.size() + sizeof(Value))) return;
  object.as_namespace().Set(target.attribute, value);
}

void Evaluator::SetVariable(std::string_view name, Value value) {
  Variables& variables = scopes_.back().variables;
  for (auto& [key, old] : variables) {
    if (key == name) {
      old = std::move(value);
      return;
    }
  }
  variables.emplace_back(name, std::move(value));
}

Value Evaluator::Lookup(std::string_view name) {
  for (size_t at = scopes_.size() - 1;; at = scopes_[at].parent) {
    for (const auto& [key, value] : scopes_[at].variables) {
      if (key == name) return value;
    }
    if (at == kOutermost) break;
  }
  if (name == "namespace" || FindFunction(name) != nullptr) return Value(Callable{});
  return Value::MakeUndefined(fmt::format("'{}' is undefined", name.substr(0, 64)));
}

// --- expressions ---

Value Evaluator::EvalOperand(const Expr& e, size_t i) {
  return e.operands[i] ? Eval(*e.operands[i]) : Value(None{});
}

std::vector<Value> Evaluator::EvalOperands(const Expr& e) {
  std::vector<Value> values;
  values.reserve(e.operands.size());
  for (size_t i = 0; i < e.operands.size(); ++i) values.push_back(EvalOperand(e, i));
  return values;
}

Value Evaluator::Eval(const Expr& e) {
  const Runtime::Nested nested(rt_);
  if (!rt_.Charge()) return Value();
  rt_.set_line(e.line);
  switch (e.kind) {
    case ExprKind::kConstant: return e.value;
    case ExprKind::kName: return Lookup(e.name);
    case ExprKind::kList: return rt_.MakeList(List::Flavor::kList, EvalOperands(e));
    case ExprKind::kTuple: return rt_.MakeList(List::Flavor::kTuple, EvalOperands(e));
    case ExprKind::kDict: return EvalDict(e);
    case ExprKind::kAttribute: return Attribute(rt_, EvalOperand(e, 0), e.name);
    case ExprKind::kSubscript: {
      const Value object = EvalOperand(e, 0);
      return Subscript(rt_, object, EvalOperand(e, 1));
    }
    case ExprKind::kSlice: return EvalSlice(e);
    case ExprKind::kNegate: return Negate(rt_, EvalOperand(e, 0));
    case ExprKind::kPlus: return Plus(rt_, EvalOperand(e, 0));
    case ExprKind::kNot: return Value(!EvalOperand(e, 0).Truthy());
    case ExprKind::kBinary: {
      const Value left = EvalOperand(e, 0);
      return Binary(rt_, e.binary, left, EvalOperand(e, 1));
    }
    case ExprKind::kCompare: return EvalCompare(e);
    case ExprKind::kAnd: {
      Value left = EvalOperand(e, 0);
      return left.Truthy() ? EvalOperand(e, 1) : left;
    }
    case ExprKind::kOr: {
      Value left = EvalOperand(e, 0);
      return left.Truthy() ? left : EvalOperand(e, 1);
    }
    case ExprKind::kConditional:
      if (EvalOperand(e, 0).Truthy()) return EvalOperand(e, 1);
      if (e.operands[2]) return EvalOperand(e, 2);
      return Value::MakeUndefined("an inline 'if' without 'else' is false");
    case ExprKind::kConcat: return EvalConcat(e);
    case ExprKind::kFilter:
    case ExprKind::kTest:
    case ExprKind::kMethod:
    case ExprKind::kCall: return Apply(e, nullptr);
    case ExprKind::kNamespace: return EvalNamespace(e);
    case ExprKind::kMacroCall: return EvalMacroCall(e, nullptr);
    case ExprKind::kCallerCall: return EvalCallerCall(e);
    case ExprKind::kLoopCall: return EvalLoopCall(e);
    case ExprKind::kFormat: return EvalFormat(e);
    case ExprKind::kBlockText: return std::move(block_text_);
    case ExprKind::kMap: return EvalMap(e);
    case ExprKind::kSelect: return EvalSelect(e);
  }
  return Value();
}

Value Evaluator::EvalDict(const Expr& e) {
  std::vector<std::pair<std::string, Value>> entries;
  bool data_keys = false;
  for (size_t i = 0; i + 1 < e.operands.size(); i += 2) {
    const Value key = EvalOperand(e, i);
    Value value = EvalOperand(e, i + 1);
    if (!rt_.ok()) return Value();
    if (!key.is_string()) {
      return rt_.Fail(
          UnimplementedError("a key of type {} in a dict is not supported", TypeName(key)));
    }
    data_keys = data_keys || key.HasData();
    entries.emplace_back(key.as_string(), std::move(value));
  }
  return rt_.MakeDict(std::move(entries), data_keys);
}

Value Evaluator::EvalSlice(const Expr& e) {
  const std::vector<Value> v = EvalOperands(e);
  return Slice(rt_, v[0], v[1], v[2], v[3]);
}

Value Evaluator::EvalCompare(const Expr& e) {
  Value left = EvalOperand(e, 0);
  for (size_t i = 0; i < e.comparisons.size(); ++i) {
    Value right = EvalOperand(e, i + 1);
    if (!rt_.ok() || !Compare(rt_, e.comparisons[i], left, right)) return Value(false);
    left = std::move(right);
  }
  return Value(true);
}

Value Evaluator::EvalConcat(const Expr& e) {
  MarkedText text;
  for (size_t i = 0; i < e.operands.size(); ++i) rt_.Append(EvalOperand(e, i), text);
  return rt_.Text(std::move(text));
}

Value Evaluator::EvalNamespace(const Expr& e) {
  Namespace* const ns = rt_.MakeNamespace();
  for (size_t i = 0; i < e.operands.size(); ++i) ns->Set(e.names[i], EvalOperand(e, i));
  return Value(ns);
}

Evaluator::Variables Evaluator::BindMacro(const Stmt& macro, const Expr& call) {
  const auto& parameters = macro.parameters;
  const size_t positional = call.operands.size() - call.names.size();
  Variables bound;
  if (positional > parameters.size()) {
    rt_.FailType("'{}' takes not more than {} arguments", call.name, parameters.size());
    return bound;
  }
  for (size_t i = 0; i < call.operands.size() && rt_.ok(); ++i) {
    const std::string& name = i < positional ? parameters[i] : call.names[i - positional];
    if (std::find(parameters.begin(), parameters.end(), name) == parameters.end()) {
      rt_.FailType("'{}' has no argument '{}'", call.name, name);
    }
    const auto is_given = [&name](const auto& entry) { return entry.first == name; };
    if (std::any_of(bound.begin(), bound.end(), is_given)) {
      rt_.FailType("'{}' gets its argument '{}' twice", call.name, name);
    }
    bound.emplace_back(name, EvalOperand(call, i));
  }
  return bound;
}

Value Evaluator::RunMacro(const Stmt& macro, Scope scope) {
  if (!rt_.ok()) return Value();
  const size_t given = scope.variables.size();
  scopes_.push_back(std::move(scope));
  for (size_t i = 0; i < macro.parameters.size() && rt_.ok(); ++i) {
    const std::string& name = macro.parameters[i];
    const auto first = scopes_.back().variables.begin();
    if (std::any_of(first, first + static_cast<ptrdiff_t>(given),
                    [&](const auto& entry) { return entry.first == name; })) {
      continue;
    }
    SetVariable(name, macro.defaults[i] ? Eval(*macro.defaults[i])
                                        : Value::MakeUndefined(fmt::format(
                                              "the argument '{}' was not given", name)));
  }
  MarkedText text;
  if (const Caller* const caller = scopes_.back().caller) {
    SetVariable("caller", caller->block != nullptr ? Value(Callable{}) : Value());
  }
  Run(macro.body, text);
  scopes_.pop_back();
  return rt_.Text(std::move(text));
}

// A macro sees its arguments and what the template sets outside of loops, not its caller's names.
Value Evaluator::EvalMacroCall(const Expr& e, const Caller* caller) {
  const auto it = std::find_if(macros_.begin(), macros_.end(),
                               [&e](const Stmt* m) { return m->target.name == e.name; });
  if (it == macros_.end()) return rt_.FailType("'{}' is undefined", e.name);
  if (caller != nullptr && !(*it)->uses_caller) {
    return rt_.FailType("the macro '{}' does not use its caller", e.name);
  }
  return RunMacro(**it, {BindMacro(**it, e), kGlobal, caller});
}

Value Evaluator::EvalCallerCall(const Expr& e) {
  for (size_t at = scopes_.size() - 1; at != kOutermost; at = scopes_[at].parent) {
    const Caller* const caller = scopes_[at].caller;
    if (caller == nullptr) continue;
    if (caller->block == nullptr) break;
    // The block has no caller of its own.
    static constexpr Caller kNone;
    return RunMacro(*caller->block, {BindMacro(*caller->block, e), caller->scope, &kNone});
  }
  return rt_.FailType("'caller' is undefined");
}

Value Evaluator::EvalLoopCall(const Expr& e) {
  const Value loop = Lookup("loop");
  if (loop.is_undefined()) return rt_.FailType("{}", loop.undefined_reason());
  if (loop.kind() != Kind::kLoop || loop.as_loop().recursive == nullptr) {
    return rt_.FailType("'loop' can be called in a loop marked 'recursive' only");
  }
  const Loop outer = loop.as_loop();
  const Value items = EvalOperand(e, 0);
  MarkedText text;
  if (rt_.ok()) RunLoop(*outer.recursive, items, outer.scope, outer.depth0 + 1, text);
  return rt_.Text(std::move(text));
}

Value Evaluator::EvalFormat(const Expr& e) {
  const Value receiver = EvalOperand(e, 0);
  FormatArguments arguments;
  const size_t positional = e.operands.size() - e.names.size();
  for (size_t i = 1; i < e.operands.size() && rt_.ok(); ++i) {
    Value value = EvalOperand(e, i);
    if (i < positional) {
      arguments.positional.push_back(std::move(value));
    } else {
      arguments.named.emplace_back(e.names[i - positional], std::move(value));
    }
  }
  if (!rt_.ok()) return Value();
  if (receiver.is_string()) return FormatString(rt_, receiver.as_text(), arguments);
  if (receiver.is_undefined()) return rt_.FailType("{}", receiver.undefined_reason());
  return rt_.FailType("'{} object' has no method 'format'", TypeName(receiver));
}

Value Evaluator::Apply(const Expr& e, const Value* subject) {
  // One place more than the parameters, for the subject.
  std::array<std::optional<Value>, Builtin::kMaxParameters + 1> arguments;
  for (size_t i = 0; i < e.operands.size(); ++i) {
    if (e.operands[i]) {
      arguments[i] = Eval(*e.operands[i]);
    } else if (i == 0 && subject != nullptr) {
      arguments[0] = *subject;
    }
  }
  if (!rt_.ok()) return Value();
  const Arguments given(arguments.data(), e.operands.size());
  const Runtime::DataContext context(
      rt_, std::any_of(given.begin(), given.end(),
                       [](const std::optional<Value>& v) { return v && v->HasData(); }));
  if (e.kind == ExprKind::kMethod) return CallMethod(rt_, *e.builtin, given);
  Value result = e.builtin->call(rt_, given);
  return e.negated ? Value(!result.Truthy()) : result;
}

// An attribute path as map and selectattr take it: names and indices with dots between.
Value Evaluator::EvalMember(const Value& object, std::string_view path) {
  Value value = object;
  for (bool more = true; more && rt_.Charge();) {
    const size_t dot = path.find('.');
    const std::string_view part = path.substr(0, dot);
    more = dot != std::string_view::npos;
    path = more ? path.substr(dot + 1) : std::string_view();
    int64_t index = 0;
    const auto parsed = std::from_chars(part.data(), part.data() + part.size(), index);
    const bool is_index =
        !part.empty() && part[0] != '-' && parsed.ptr == part.data() + part.size();
    value = Subscript(rt_, value, is_index ? Value(index) : rt_.String(std::string(part)));
  }
  return value;
}

Value Evaluator::EvalMap(const Expr& e) {
  const auto items = rt_.Items(EvalOperand(e, 0));
  const Value fallback = e.operands.size() > 1 ? EvalOperand(e, 1) : Value();
  std::vector<Value> out;
  for (const Value& item : items->items) {
    if (!rt_.Charge()) break;
    Value mapped = e.inner ? Apply(*e.inner, &item) : EvalMember(item, e.name);
    if (mapped.is_undefined() && e.operands.size() > 1) mapped = fallback;
    out.push_back(std::move(mapped));
  }
  return rt_.MakeList(List::Flavor::kIterator, std::move(out));
}

Value Evaluator::EvalSelect(const Expr& e) {
  const auto items = rt_.Items(EvalOperand(e, 0));
  std::vector<Value> out;
  for (const Value& item : items->items) {
    if (!rt_.Charge()) break;
    const Value subject = e.name.empty() ? item : EvalMember(item, e.name);
    const Value verdict = e.inner ? Apply(*e.inner, &subject) : subject;
    if (verdict.Truthy() != e.negated) out.push_back(item);
  }
  return rt_.MakeList(List::Flavor::kIterator, std::move(out));
}

}  // namespace tandem::jinja
