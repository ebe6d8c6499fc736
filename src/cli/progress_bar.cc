#include "cli/progress_bar.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace tandem {
namespace {

constexpr TimeNs kRedrawInterval = 50 * kNsPerMs;
constexpr int64_t kWidth = 40;

}  // namespace

ProgressBar::ProgressBar(std::string label)
    : label_(std::move(label)), terminal_(isatty(STDERR_FILENO) != 0) {}

ProgressBar::~ProgressBar() {
  if (drawn_) std::fputs("\r\x1b[K", stderr);
}

void ProgressBar::Update(int64_t done, int64_t total) {
  if (!terminal_ || total <= 0) return;
  const TimeNs now = clock_.Now();
  if (drawn_ && done < total && now - last_drawn_ < kRedrawInterval) return;
  last_drawn_ = now;
  drawn_ = true;
  const double share = std::clamp(static_cast<double>(done) / static_cast<double>(total), 0.0, 1.0);
  const auto filled = static_cast<size_t>(share * kWidth);
  fmt::print(stderr, "\r{} [{}{}] {:3.0f} %", label_, std::string(filled, '#'),
             std::string(static_cast<size_t>(kWidth) - filled, ' '), 100 * share);
  std::fflush(stderr);
}

}  // namespace tandem
