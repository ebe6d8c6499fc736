// What: Template: a small Jinja interpreter for chat templates.
// Not here: what a chat template is given (chat_template.h); the parts of Jinja that no chat
//   template uses (inheritance, includes, auto-escaping, macros as values, argument unpacking).
//   What is not supported is an error when the template is loaded, never a wrong text.
// Threads: immutable after Create; Render from any thread.
// Cost: bounded by Limits, whatever the template and its variables. Transient memory of Create is
//   about 50 bytes per byte of source.
// Based on: Jinja 3.1's documentation and behaviour with trim_blocks, lstrip_blocks and the loop
//   controls, which is how Hugging Face renders chat templates. Differences: integers have 64 bits,
//   dict keys are strings, and both are errors beyond that.
#pragma once

#include <ctime>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "text/jinja/runtime.h"
#include "text/jinja/value.h"

namespace tandem::jinja {

inline constexpr size_t kMaxTemplateBytes = size_t{1} << 20;

class Template {
 public:
  // INVALID_ARGUMENT for a syntax error, UNIMPLEMENTED for a construct that is not supported
  // (named, with its line), OUT_OF_RANGE beyond the limits of size and nesting.
  static Result<Template> Create(std::string_view source);

  ~Template();
  Template(Template&&) noexcept;
  Template& operator=(Template&&) noexcept;

  using Variables = std::vector<std::pair<std::string, Value>>;

  // The text for these variables, with what came from data marked: strings that FromJson made, and
  // what was computed from those. `now` is the local time for strftime_now. INVALID_ARGUMENT where
  // Python would raise (raise_exception included), OUT_OF_RANGE beyond `limits`, UNIMPLEMENTED for
  // an operand that is not supported; each with the line.
  Result<MarkedText> RenderMarked(Variables variables, const Limits& limits,
                                  const std::tm& now) const;
  // The same without marks, now.
  Result<std::string> Render(Variables variables, const Limits& limits = {}) const;

 private:
  struct Tree;
  explicit Template(std::unique_ptr<const Tree> tree);
  std::unique_ptr<const Tree> tree_;
};

}  // namespace tandem::jinja
