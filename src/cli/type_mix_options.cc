#include "cli/type_mix_options.h"

namespace tandem {

Result<TypeMix> TypeMixOf(const TypeOptions& options) {
  TypeMix mix;
  TANDEM_ASSIGN_OR_RETURN(mix.type, WritableTypeFromName(options.type));
  if (options.embedding_type.empty()) return mix;
  TANDEM_ASSIGN_OR_RETURN(mix.embedding, WritableTypeFromName(options.embedding_type));
  return mix;
}

std::string DescribeTypes(const TypeCounts& counts) {
  const std::string fallback = counts.FallbackText();
  if (fallback.empty()) return counts.ToText() + "\n";
  return fmt::format("{}\nwhere the blocks do not divide the rows: {}\n", counts.ToText(),
                     fallback);
}

}  // namespace tandem
