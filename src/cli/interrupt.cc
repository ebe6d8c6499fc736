#include "cli/interrupt.h"

#include <pthread.h>
#include <signal.h>

#include <atomic>

namespace tandem {
namespace {

std::atomic<int32_t> g_count{0};  // a signal handler can reach nothing else
static_assert(std::atomic<int32_t>::is_always_lock_free);

pthread_t g_owner;  // set before a handler is
struct sigaction g_old_interrupt;
struct sigaction g_old_terminate;

// The system may pick any thread; the one that waits for input is the one to interrupt.
void Handler(int signal) {
  if (pthread_equal(pthread_self(), g_owner) == 0) {
    pthread_kill(g_owner, signal);
    return;
  }
  g_count.fetch_add(1, std::memory_order_relaxed);
}

void SetHandler(int signal, struct sigaction* old) {
  struct sigaction action = {};
  action.sa_handler = &Handler;  // no SA_RESTART: a read that waits must return
  sigemptyset(&action.sa_mask);
  sigaction(signal, &action, old);
}

}  // namespace

InterruptCounter::InterruptCounter(Signals signals)
    : terminate_(signals == Signals::kInterruptAndTerminate) {
  Reset();
  g_owner = pthread_self();
  SetHandler(SIGINT, &g_old_interrupt);
  if (terminate_) SetHandler(SIGTERM, &g_old_terminate);
}

InterruptCounter::~InterruptCounter() {
  sigaction(SIGINT, &g_old_interrupt, nullptr);
  if (terminate_) sigaction(SIGTERM, &g_old_terminate, nullptr);
}

int32_t InterruptCounter::Count() { return g_count.load(std::memory_order_relaxed); }
void InterruptCounter::Reset() { g_count.store(0, std::memory_order_relaxed); }

}  // namespace tandem
