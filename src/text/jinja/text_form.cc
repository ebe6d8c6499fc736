// How values read as text: Python's str() and repr(), declared in value.h.
#include <fmt/format.h>
#include <utf8proc.h>

#include <charconv>
#include <cmath>
#include <cstdlib>

#include "text/jinja/value.h"
#include "text/unicode.h"

namespace tandem::jinja {
namespace {

// Python's str.isprintable() for one character.
bool IsPrintable(char32_t c) {
  if (c < 0x80) return c >= 0x20 && c != 0x7F;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS: return false;
    default: return true;
  }
}

void AppendStringRepr(std::string_view text, std::string& out) {
  const bool has_single = text.find('\'') != std::string_view::npos;
  const bool has_double = text.find('"') != std::string_view::npos;
  const char quote = has_single && !has_double ? '"' : '\'';
  out += quote;
  for (size_t pos = 0; pos < text.size();) {
    const DecodedChar c = DecodeChar(text, pos);
    if (c.code == static_cast<char32_t>(quote) || c.code == U'\\') {
      out += '\\';
      out += static_cast<char>(c.code);
    } else if (c.code == U'\n') {
      out += "\\n";
    } else if (c.code == U'\r') {
      out += "\\r";
    } else if (c.code == U'\t') {
      out += "\\t";
    } else if (IsPrintable(c.code)) {
      out.append(text, pos, c.size);
    } else if (c.code < 0x100) {
      out += fmt::format("\\x{:02x}", static_cast<uint32_t>(c.code));
    } else if (c.code < 0x10000) {
      out += fmt::format("\\u{:04x}", static_cast<uint32_t>(c.code));
    } else {
      out += fmt::format("\\U{:08x}", static_cast<uint32_t>(c.code));
    }
    pos += c.size;
  }
  out += quote;
}

class Printer {
 public:
  Printer(size_t max_bytes, std::string& out) : max_bytes_(max_bytes), out_(out) {}

  Status Repr(const Value& v) {
    switch (v.kind()) {
      case Kind::kUndefined: out_ += "Undefined"; break;
      case Kind::kNone: out_ += "None"; break;
      case Kind::kBool: out_ += v.as_bool() ? "True" : "False"; break;
      case Kind::kInt: out_ += fmt::format("{}", v.as_int()); break;
      case Kind::kFloat: out_ += FloatRepr(v.as_float()); break;
      case Kind::kString: AppendStringRepr(v.as_string(), out_); break;
      case Kind::kList: return ListRepr(v);
      case Kind::kDict: return DictRepr(v.as_dict());
      case Kind::kNamespace:
      case Kind::kLoop:
      case Kind::kCallable:
        return FailedPreconditionError("cannot print a value of type {}", TypeName(v));
    }
    return CheckSize();
  }

  Status CheckSize() const {
    if (out_.size() <= max_bytes_) return OkStatus();
    return OutOfRangeError("a text grows beyond {} bytes", max_bytes_);
  }

 private:
  Status ListRepr(const Value& v) {
    const List& list = v.as_list();
    const bool tuple = list.flavor == List::Flavor::kTuple;
    if (!tuple && list.flavor != List::Flavor::kList) {
      return FailedPreconditionError("cannot print a value of type {}; use the filter list",
                                     TypeName(v));
    }
    out_ += tuple ? '(' : '[';
    for (size_t i = 0; i < list.items.size(); ++i) {
      if (i > 0) out_ += ", ";
      if (Status s = Repr(list.items[i]); !s.ok()) return s;
    }
    if (tuple && list.items.size() == 1) out_ += ',';
    out_ += tuple ? ')' : ']';
    return CheckSize();
  }

  Status DictRepr(const Dict& dict) {
    out_ += '{';
    for (size_t i = 0; i < dict.items.size(); ++i) {
      if (i > 0) out_ += ", ";
      AppendStringRepr(dict.items[i].first, out_);
      out_ += ": ";
      if (Status s = Repr(dict.items[i].second); !s.ok()) return s;
    }
    out_ += '}';
    return CheckSize();
  }

  const size_t max_bytes_;
  std::string& out_;
};

}  // namespace

std::string FloatRepr(double v) {
  if (std::isnan(v)) return "nan";
  if (std::isinf(v)) return v > 0 ? "inf" : "-inf";
  char buffer[64];
  const auto end = std::to_chars(buffer, buffer + sizeof(buffer), v, std::chars_format::scientific);
  std::string_view text(buffer, static_cast<size_t>(end.ptr - buffer));
  std::string out;
  if (text.front() == '-') {
    out = "-";
    text.remove_prefix(1);
  }
  const size_t e = text.find('e');
  std::string digits(text.substr(0, 1));
  if (e > 2) digits += text.substr(2, e - 2);
  const int exponent = std::atoi(std::string(text.substr(e + 1)).c_str());
  const int count = static_cast<int>(digits.size());
  // Python writes exponents below -4 and from 16 on.
  if (exponent < -4 || exponent >= 16) {
    out += digits[0];
    if (count > 1) out += "." + digits.substr(1);
    return out + fmt::format("e{}{:02}", exponent < 0 ? '-' : '+', std::abs(exponent));
  }
  if (exponent < 0)
    return out + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  if (count <= exponent + 1) {
    return out + digits + std::string(static_cast<size_t>(exponent + 1 - count), '0') + ".0";
  }
  return out + digits.substr(0, static_cast<size_t>(exponent + 1)) + "." +
         digits.substr(static_cast<size_t>(exponent + 1));
}

Status AppendRepr(const Value& v, size_t max_bytes, std::string& out) {
  return Printer(max_bytes, out).Repr(v);
}

Status AppendStr(const Value& v, size_t max_bytes, std::string& out) {
  Printer printer(max_bytes, out);
  if (v.is_undefined()) return OkStatus();
  if (!v.is_string()) return printer.Repr(v);
  if (v.as_string().size() > max_bytes || out.size() > max_bytes - v.as_string().size()) {
    return OutOfRangeError("a text grows beyond {} bytes", max_bytes);
  }
  out += v.as_string();
  return OkStatus();
}

}  // namespace tandem::jinja
