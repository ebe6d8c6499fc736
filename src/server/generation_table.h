// What: the rows of the fields that all requests for text share, for the parsers of the endpoints.
// Not here: the values (generation_fields.h). Included by the server's .cc files only.
// Threads: pure functions.
#pragma once

#include <span>

#include "server/field_table.h"
#include "server/generation_fields.h"

namespace tandem {

std::span<const Field<GenerationFields>> GenerationTable();

// Of deadlines, as fields and as headers.
inline constexpr FieldType kDeadlineType = {FieldType::Kind::kNumber, 0.0, kDeadlineMsMax,
                                            /*above_low=*/true};

// "max_tokens" and, for chats, "max_completion_tokens": two names of one value, which must agree.
template <typename Target>
MaybeError ParseMaxTokens(const Json& value, std::string_view param, const FieldType& type,
                          Target& out) {
  int32_t limit = 0;
  if (auto error = Store(ReadInteger(value, param, type), limit)) return error;
  if (out.max_tokens && *out.max_tokens != limit) {
    return ValueError("max_tokens", "max_tokens and max_completion_tokens differ: give one");
  }
  out.max_tokens = limit;
  return std::nullopt;
}

// What no single field can say: stream_options without stream, min_tokens above max_tokens.
MaybeError CheckGeneration(const Json& body, const GenerationFields& fields);

}  // namespace tandem
