#include "exec/memory_plan.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>

namespace tandem {

std::string FormatBytes(int64_t bytes) {
  constexpr std::array<const char*, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, kUnits[unit]);
}

Result<int64_t> ParseBytes(const std::string& text) {
  const auto bad = [&] {
    return InvalidArgumentError(
        "'{}' is not a size: write bytes or a number with K, M, G or T, like 8G or 512MiB", text);
  };
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value, std::chars_format::fixed);
  if (error != std::errc() || !(value >= 0)) return bad();
  std::string suffix(rest, end);
  for (char& c : suffix) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (suffix.ends_with("ib")) suffix.resize(suffix.size() - 2);
  if (suffix.size() == 2 && suffix.ends_with("b")) suffix.resize(1);
  int shift = 0;
  if (suffix == "k") {
    shift = 10;
  } else if (suffix == "m") {
    shift = 20;
  } else if (suffix == "g") {
    shift = 30;
  } else if (suffix == "t") {
    shift = 40;
  } else if (!suffix.empty() && suffix != "b") {
    return bad();
  }
  const double bytes = std::ldexp(value, shift);
  if (bytes > 0x1p62) return bad();
  return static_cast<int64_t>(bytes);
}

Status MemoryPlan::Check() const {
  struct Term {
    const char* name;
    int64_t bytes;
    const char* fix;
  };
  const std::array<Term, 4> terms = {{
      {"weights (M_w)", weights, "use a smaller or more quantised model, or raise --memory"},
      {"KV cache (M_KV)", kv, "lower --kv-memory, --max-seqs or --ctx-size, or raise --memory"},
      {"activations (M_a)", activations, "lower --slab-tokens, or raise --memory"},
      {"runtime (M_u)", runtime, "lower --max-seqs, or raise --memory"},
  }};
  int64_t used = 0;
  for (const Term& term : terms) {
    used += term.bytes;
    if (used > limit) {
      return ResourceExhaustedError(
          "{} of {} do not fit: {} are needed up to this term, {} may be used; {}", term.name,
          FormatBytes(term.bytes), FormatBytes(used), FormatBytes(limit), term.fix);
    }
  }
  return OkStatus();
}

std::string MemoryPlan::ToText() const {
  return fmt::format("memory: weights {} + {}{}KV {} + activations {} + runtime {} = {} of {}",
                     FormatBytes(weights), kv_type, kv_type.empty() ? "" : " ", FormatBytes(kv),
                     FormatBytes(activations), FormatBytes(runtime), FormatBytes(total()),
                     FormatBytes(limit));
}

Result<std::vector<int32_t>> ChooseBlocks(std::span<const StateGroup> groups, int64_t kv_bytes,
                                          int32_t sequences, int32_t max_context,
                                          int32_t min_context) {
  double bytes_per_token = 0;
  int64_t least_bytes = 0;
  for (const StateGroup& group : groups) {
    bytes_per_token += static_cast<double>(group.BlockBytes()) / group.tokens_per_block;
    least_bytes += group.BlockBytes() * group.BlocksFor(min_context);
  }
  std::vector<int32_t> blocks;
  for (const StateGroup& group : groups) {
    const double share =
        static_cast<double>(group.BlockBytes()) / group.tokens_per_block / bytes_per_token;
    const auto affordable =
        static_cast<int64_t>(share * static_cast<double>(kv_bytes)) / group.BlockBytes();
    const int64_t wanted = group.BlocksFor(max_context) * sequences;
    const int64_t count =
        std::min({wanted, affordable, int64_t{std::numeric_limits<int32_t>::max()}});
    if (count < group.BlocksFor(min_context)) {
      return ResourceExhaustedError(
          "KV cache (M_KV) of {} does not hold one sequence of {} tokens, which takes {}: raise "
          "--kv-memory or --memory",
          FormatBytes(kv_bytes), min_context, FormatBytes(least_bytes));
    }
    blocks.push_back(static_cast<int32_t>(count));
  }
  return blocks;
}

}  // namespace tandem
