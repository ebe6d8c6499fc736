// JSON text as Python's json.dumps writes it, declared in builtins.h.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "text/jinja/builtins.h"
#include "text/unicode.h"

namespace tandem::jinja {
namespace {

class JsonWriter {
 public:
  JsonWriter(Runtime& rt, const JsonStyle& style) : rt_(rt), style_(style) {}

  std::string Run(const Value& v) {
    Write(v, 0);
    rt_.Allocate(out_.size());
    return std::move(out_);
  }

 private:
  // Depth is bounded by kMaxValueDepth.
  void Write(const Value& v, int depth) {
    if (!rt_.Charge()) return;
    switch (v.kind()) {
      case Kind::kNone: out_ += "null"; break;
      case Kind::kBool: out_ += v.as_bool() ? "true" : "false"; break;
      case Kind::kInt: out_ += fmt::format("{}", v.as_int()); break;
      case Kind::kFloat: WriteFloat(v.as_float()); break;
      case Kind::kString: WriteString(v.as_string()); break;
      case Kind::kDict: WriteDict(v.as_dict(), depth); break;
      case Kind::kList: {
        const auto flavor = v.as_list().flavor;
        if (flavor == List::Flavor::kList || flavor == List::Flavor::kTuple) {
          WriteList(v.as_list(), depth);
          break;
        }
        [[fallthrough]];
      }
      default: rt_.FailType("tojson: a value of type {} has no JSON form", TypeName(v));
    }
    if (out_.size() > rt_.limits().max_output_bytes) {
      rt_.Fail(OutOfRangeError("a text grows beyond {} bytes", rt_.limits().max_output_bytes));
    }
  }

  void WriteFloat(double v) {
    if (std::isnan(v)) {
      out_ += "NaN";
    } else if (std::isinf(v)) {
      out_ += v > 0 ? "Infinity" : "-Infinity";
    } else {
      out_ += FloatRepr(v);
    }
  }

  void WriteEscaped(uint32_t code) {
    if (code >= 0x10000) {
      const uint32_t rest = code - 0x10000;
      out_ += fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (rest >> 10), 0xDC00 + (rest & 0x3FF));
    } else {
      out_ += fmt::format("\\u{:04x}", code);
    }
  }

  void WriteString(std::string_view text) {
    rt_.ChargeBytes(text.size() * 4);
    out_ += '"';
    for (size_t pos = 0; pos < text.size() && out_.size() <= rt_.limits().max_output_bytes;) {
      const DecodedChar c = DecodeChar(text, pos);
      switch (c.code) {
        case '"': out_ += "\\\""; break;
        case '\\': out_ += "\\\\"; break;
        case '\n': out_ += "\\n"; break;
        case '\r': out_ += "\\r"; break;
        case '\t': out_ += "\\t"; break;
        case '\f': out_ += "\\f"; break;
        case '\b': out_ += "\\b"; break;
        default:
          if (c.code < 0x20 || (style_.ensure_ascii && c.code >= 0x7F)) {
            // Python's ASCII form leaves U+007F as it is.
            if (c.code == 0x7F) {
              out_ += '\x7F';
            } else {
              WriteEscaped(c.code);
            }
          } else {
            out_.append(text, pos, c.size);
          }
      }
      pos += c.size;
    }
    out_ += '"';
  }

  // What stands before an item (first or not) and before the closing bracket.
  void Separate(bool first, int depth) {
    if (!first) out_ += style_.item_separator;
    NewLine(depth);
  }
  void NewLine(int depth) {
    if (!style_.indent) return;
    out_ += '\n';
    out_.append(
        static_cast<size_t>(std::max<int64_t>(*style_.indent, 0)) * static_cast<size_t>(depth),
        ' ');
  }

  void WriteList(const List& list, int depth) {
    out_ += '[';
    for (size_t i = 0; i < list.items.size() && rt_.ok(); ++i) {
      Separate(i == 0, depth + 1);
      Write(list.items[i], depth + 1);
    }
    if (!list.items.empty()) NewLine(depth);
    out_ += ']';
  }

  void WriteDict(const Dict& dict, int depth) {
    out_ += '{';
    for (size_t i = 0; i < dict.items.size() && rt_.ok(); ++i) {
      const auto& [key, value] = dict.items[style_.sort_keys ? dict.by_key[i] : i];
      Separate(i == 0, depth + 1);
      WriteString(key);
      out_ += style_.key_separator;
      Write(value, depth + 1);
    }
    if (!dict.items.empty()) NewLine(depth);
    out_ += '}';
  }

  Runtime& rt_;
  const JsonStyle& style_;
  std::string out_;
};

}  // namespace

std::string ToJson(Runtime& rt, const Value& v, const JsonStyle& style) {
  return JsonWriter(rt, style).Run(v);
}

}  // namespace tandem::jinja
