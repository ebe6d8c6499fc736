#include "cli/interrupt.h"

#include <signal.h>

#include <atomic>

namespace tandem {
namespace {

std::atomic<int32_t> g_count{0};  // a signal handler can reach nothing else
static_assert(std::atomic<int32_t>::is_always_lock_free);

void Handler(int) { g_count.fetch_add(1, std::memory_order_relaxed); }

void SetHandler(void (*handler)(int)) {
  struct sigaction action = {};
  action.sa_handler = handler;  // no SA_RESTART: a read that waits must return
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

}  // namespace

InterruptCounter::InterruptCounter() {
  Reset();
  SetHandler(&Handler);
}
InterruptCounter::~InterruptCounter() { SetHandler(SIG_DFL); }

int32_t InterruptCounter::Count() { return g_count.load(std::memory_order_relaxed); }
void InterruptCounter::Reset() { g_count.store(0, std::memory_order_relaxed); }

}  // namespace tandem
