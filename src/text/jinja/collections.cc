// Filters that order and aggregate: bodies and table, declared in builtins.h.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "text/jinja/builtins.h"
#include "text/jinja/operators.h"
#include "text/jinja/strings.h"

namespace tandem::jinja {
namespace {

using Flavor = List::Flavor;

// object.a.b, as an attribute path says; digits are indices.
Value Member(Runtime& rt, Value value, std::string_view path) {
  for (bool more = true; more && rt.Charge();) {
    const size_t dot = path.find('.');
    const std::string part(path.substr(0, dot));
    more = dot != std::string_view::npos;
    path = more ? path.substr(dot + 1) : std::string_view();
    const bool index = !part.empty() && part.size() < 10 &&
                       part.find_first_not_of("0123456789") == std::string::npos;
    value = Subscript(rt, value, index ? Value(int64_t{std::atoi(part.c_str())}) : rt.String(part));
  }
  return value;
}

// What `item` is ordered by: its attribute, if arguments[attribute] names one, in lower case unless
// arguments[case_sensitive] says otherwise.
Value KeyOf(Runtime& rt, Arguments args, const Value& item, size_t case_sensitive,
            size_t attribute) {
  Value key = item;
  if (Given(args, attribute) && !args[attribute]->is_none()) {
    const std::string path = StringOr(rt, args, attribute, "");
    if (path.find(',') != std::string::npos) {
      return rt.Fail(UnimplementedError("ordering by several attributes is not supported"));
    }
    key = Member(rt, item, path);
  }
  if (!key.is_string() || TruthOr(args, case_sensitive, false)) return key;
  rt.ChargeBytes(key.as_string().size() * 8);
  return rt.String(ToLower(key.as_string()));
}

struct Keyed {
  Value key;
  Value item;
};

// Stable, in reverse too.
Value SortKeyed(Runtime& rt, std::vector<Keyed> keyed, bool reverse) {
  std::stable_sort(keyed.begin(), keyed.end(), [&](const Keyed& a, const Keyed& b) {
    return rt.ok() && (reverse ? rt.Less(b.key, a.key) : rt.Less(a.key, b.key));
  });
  std::vector<Value> items;
  items.reserve(keyed.size());
  for (Keyed& k : keyed) items.push_back(std::move(k.item));
  return rt.MakeList(Flavor::kList, std::move(items));
}

Value Sort(Runtime& rt, Arguments args) {
  std::vector<Keyed> keyed;
  const auto list = rt.Items(*args[0]);
  for (const Value& item : list->items) {
    if (!rt.Charge()) break;
    keyed.push_back({KeyOf(rt, args, item, 2, 3), item});
  }
  return SortKeyed(rt, std::move(keyed), TruthOr(args, 1, false));
}

Value DictSort(Runtime& rt, Arguments args) {
  if (!args[0]->is_dict()) return rt.FailType("dictsort of a value of type {}", TypeName(*args[0]));
  const std::string by = StringOr(rt, args, 2, "key");
  if (by != "key" && by != "value") return rt.FailType("dictsort: by must be 'key' or 'value'");
  std::vector<Keyed> keyed;
  for (const auto& [name, value] : args[0]->as_dict().items) {
    if (!rt.Charge()) break;
    const Value key = rt.String(name);
    keyed.push_back({KeyOf(rt, args, by == "key" ? key : value, 1, args.size()),
                     rt.MakeList(Flavor::kTuple, {key, value})});
  }
  return SortKeyed(rt, std::move(keyed), TruthOr(args, 3, false));
}

Value Unique(Runtime& rt, Arguments args) {
  std::vector<Value> keys;
  std::vector<Value> items;
  const auto list = rt.Items(*args[0]);
  for (const Value& item : list->items) {
    if (!rt.Charge()) break;
    Value key = KeyOf(rt, args, item, 1, 2);
    const bool seen = std::any_of(keys.begin(), keys.end(),
                                  [&](const Value& k) { return rt.ok() && rt.Equal(k, key); });
    if (seen) continue;
    keys.push_back(std::move(key));
    items.push_back(item);
  }
  return rt.MakeList(Flavor::kIterator, std::move(items));
}

template <bool kMax>
Value Extreme(Runtime& rt, Arguments args) {
  const auto list = rt.Items(*args[0]);
  if (list->items.empty()) return Value::MakeUndefined("there is no item: the sequence is empty");
  Keyed best{KeyOf(rt, args, list->items[0], 1, 2), list->items[0]};
  for (size_t i = 1; i < list->items.size() && rt.Charge(); ++i) {
    Value key = KeyOf(rt, args, list->items[i], 1, 2);
    if (kMax ? rt.Less(best.key, key) : rt.Less(key, best.key)) {
      best = {std::move(key), list->items[i]};
    }
  }
  return best.item;
}

Value Sum(Runtime& rt, Arguments args) {
  Value total = Given(args, 2) ? *args[2] : Value(int64_t{0});
  const bool by_attribute = Given(args, 1) && !args[1]->is_none();
  const std::string attribute = by_attribute ? StringOr(rt, args, 1, "") : "";
  const auto list = rt.Items(*args[0]);
  for (const Value& item : list->items) {
    if (!rt.Charge()) break;
    total = Binary(rt, BinaryOp::kAdd, total, by_attribute ? Member(rt, item, attribute) : item);
  }
  return total;
}

Value Round(Runtime& rt, Arguments args) {
  const Value& v = *args[0];
  const int64_t precision = IntOr(rt, args, 1, 0);
  const std::string method = StringOr(rt, args, 2, "common");
  if (!v.is_number()) return rt.FailType("round of a value of type {}", TypeName(v));
  if (precision < 0 || precision > 15) {
    return rt.Fail(UnimplementedError("round with the precision {} is not supported", precision));
  }
  if (!v.is_float() && method == "common") return Plus(rt, v);
  const double number = v.is_float() ? v.as_float() : static_cast<double>(Plus(rt, v).as_int());
  if (!std::isfinite(number)) return rt.FailType("round of a number that is not finite");
  if (method == "common") {
    return Value(std::strtod(fmt::format("{:.{}f}", number, precision).c_str(), nullptr));
  }
  const double unit = std::pow(10.0, static_cast<double>(precision));
  if (method == "ceil") return Value(std::ceil(number * unit) / unit);
  if (method == "floor") return Value(std::floor(number * unit) / unit);
  return rt.FailType("round: the method must be 'common', 'ceil' or 'floor'");
}

// Pairs of a key and the items that have it, ordered by key.
Value GroupBy(Runtime& rt, Arguments args) {
  const std::string path = StringOr(rt, args, 1, "");
  const bool case_sensitive = TruthOr(args, 3, false);
  const auto list = rt.Items(*args[0]);
  const auto key_of = [&](const Value& item) {
    const Value key = Member(rt, item, path);
    return key.is_undefined() && Given(args, 2) ? *args[2] : key;
  };
  std::vector<Keyed> keyed;
  for (const Value& item : list->items) {
    if (!rt.Charge()) break;
    Value key = key_of(item);
    if (key.is_string() && !case_sensitive) {
      rt.ChargeBytes(key.as_string().size() * 8);
      const Runtime::DataContext context(rt, key.HasData());
      key = rt.String(ToLower(key.as_string()));
    }
    keyed.push_back({std::move(key), item});
  }
  std::stable_sort(keyed.begin(), keyed.end(), [&](const Keyed& a, const Keyed& b) {
    return rt.ok() && rt.Less(a.key, b.key);
  });
  std::vector<Value> groups;
  for (size_t begin = 0, end = 0; begin < keyed.size() && rt.ok(); begin = end) {
    std::vector<Value> members;
    while (end < keyed.size() && (end == begin || rt.Equal(keyed[begin].key, keyed[end].key))) {
      members.push_back(keyed[end++].item);
    }
    groups.push_back(
        rt.MakeGroup(key_of(keyed[begin].item), rt.MakeList(Flavor::kList, std::move(members))));
  }
  return rt.MakeList(Flavor::kList, std::move(groups));
}

// Rows of `linecount` items; the last one filled up if there is something to fill with.
Value Batch(Runtime& rt, Arguments args) {
  const int64_t size = IntOr(rt, args, 1, 1);
  if (size < 1) return rt.Fail(UnimplementedError("batch by {} is not supported", size));
  std::vector<Value> rows;
  std::vector<Value> row;
  const auto list = rt.Items(*args[0]);
  for (const Value& item : list->items) {
    if (!rt.Charge()) break;
    if (static_cast<int64_t>(row.size()) == size) {
      rows.push_back(rt.MakeList(Flavor::kList, std::exchange(row, {})));
    }
    row.push_back(item);
  }
  if (!row.empty() && Given(args, 2) && !args[2]->is_none()) {
    while (static_cast<int64_t>(row.size()) < size && rt.Charge() && rt.Allocate(sizeof(Value))) {
      row.push_back(*args[2]);
    }
  }
  if (!row.empty()) rows.push_back(rt.MakeList(Flavor::kList, std::move(row)));
  return rt.MakeList(Flavor::kIterator, std::move(rows));
}

constexpr Builtin kCollectionFilters[] = {
    {"groupby", GroupBy, {"attribute", "default", "case_sensitive"}, 1},
    {"batch", Batch, {"linecount", "fill_with"}, 1},
    {"sort", Sort, {"reverse", "case_sensitive", "attribute"}},
    {"dictsort", DictSort, {"case_sensitive", "by", "reverse"}},
    {"unique", Unique, {"case_sensitive", "attribute"}},
    {"min", Extreme<false>, {"case_sensitive", "attribute"}},
    {"max", Extreme<true>, {"case_sensitive", "attribute"}},
    {"sum", Sum, {"attribute", "start"}},
    {"round", Round, {"precision", "method"}},
};

}  // namespace

std::span<const Builtin> CollectionFilters() { return kCollectionFilters; }

}  // namespace tandem::jinja
