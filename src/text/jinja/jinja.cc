#include "text/jinja/jinja.h"

#include <ctime>

#include "text/jinja/evaluator.h"
#include "text/jinja/parser.h"
#include "text/unicode.h"

namespace tandem::jinja {

struct Template::Tree {
  Block block;
};

Template::Template(std::unique_ptr<const Tree> tree) : tree_(std::move(tree)) {}
Template::~Template() = default;
Template::Template(Template&&) noexcept = default;
Template& Template::operator=(Template&&) noexcept = default;

Result<Template> Template::Create(std::string_view source) {
  if (source.size() > kMaxTemplateBytes) {
    return OutOfRangeError("the template has {} bytes; the limit is {}", source.size(),
                           kMaxTemplateBytes);
  }
  if (!IsValidUtf8(source)) return InvalidArgumentError("the template is not valid UTF-8");
  Result<Block> block = Parse(source);
  if (!block.ok()) return block.status();
  return Template(std::make_unique<const Tree>(Tree{std::move(*block)}));
}

Result<MarkedText> Template::RenderMarked(Variables variables, const Limits& limits,
                                          const std::tm& now) const {
  Runtime rt(limits, now);
  MarkedText text = Evaluator(rt, std::move(variables)).Render(tree_->block);
  if (!rt.ok()) return rt.error();
  return text;
}

Result<std::string> Template::Render(Variables variables, const Limits& limits) const {
  const std::time_t seconds = std::time(nullptr);
  std::tm now{};
  localtime_r(&seconds, &now);
  Result<MarkedText> text = RenderMarked(std::move(variables), limits, now);
  if (!text.ok()) return text.status();
  return std::move(*text).TakeText();
}

}  // namespace tandem::jinja
