#include "cli/interrupt.h"

#include <pthread.h>
#include <signal.h>

#include <atomic>

namespace tandem {
namespace {

std::atomic<int32_t> g_count{0};  // a signal handler can reach nothing else
static_assert(std::atomic<int32_t>::is_always_lock_free);

pthread_t g_owner;  // set before a handler is

// The system may pick any thread; the one that waits for input is the one to interrupt.
void Handler(int signal) {
  if (pthread_equal(pthread_self(), g_owner) == 0) {
    pthread_kill(g_owner, signal);
    return;
  }
  g_count.fetch_add(1, std::memory_order_relaxed);
}

void SetHandler(int signal, void (*handler)(int)) {
  struct sigaction action = {};
  action.sa_handler = handler;  // no SA_RESTART: a read that waits must return
  sigemptyset(&action.sa_mask);
  sigaction(signal, &action, nullptr);
}

}  // namespace

InterruptCounter::InterruptCounter(Signals signals) {
  Reset();
  g_owner = pthread_self();
  SetHandler(SIGINT, &Handler);
  if (signals == Signals::kInterruptAndTerminate) SetHandler(SIGTERM, &Handler);
}
InterruptCounter::~InterruptCounter() {
  SetHandler(SIGINT, SIG_DFL);
  SetHandler(SIGTERM, SIG_DFL);
}

int32_t InterruptCounter::Count() { return g_count.load(std::memory_order_relaxed); }
void InterruptCounter::Reset() { g_count.store(0, std::memory_order_relaxed); }

}  // namespace tandem
