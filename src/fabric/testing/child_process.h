// What: ChildProcess: another process of the test binary that owns an engine and does what it is
//   told, so that a test can stop and kill it.
// Not here: what tests check.
// Threads: one.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fabric/testing/engine_driver.h"

namespace tandem {

// The child runs the test FabricChild.Serve of the same binary.
class ChildProcess {
 public:
  // With an engine of this way, and `bytes` of memory, each of which is `fill`.
  ChildProcess(const Way& way, size_t bytes, uint8_t fill);
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  const std::string& address() const { return address_; }

  // Of the child's memory; a new registration each time.
  RemoteRegion Register();
  void CloseRegion();  // the last that was registered
  Expectation Expect(uint32_t pieces);
  bool UntilMet(const Expectation& expectation);
  void Fill(uint8_t value);
  size_t CountBytes(uint8_t value);
  // Begins to write its whole memory, over and over, in pieces.
  void StartWriting(const std::string& address, const RemoteRegion& remote, uint32_t piece_bytes);

  void Signal(int signal);
  void Kill();  // and reaps

 private:
  std::string Ask(const std::string& request);

  pid_t pid_ = -1;
  int socket_ = -1;
  std::string address_;
};

}  // namespace tandem
