// The child's side of ChildProcess, and the helper itself: both are of the test binary.
#include "fabric/testing/child_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "fabric/wire.h"

namespace tandem {
namespace {

constexpr const char* kSocketVariable = "TANDEM_FABRIC_CHILD_SOCKET";
constexpr const char* kWayVariable = "TANDEM_FABRIC_CHILD_WAY";
constexpr size_t kPacketBytes = 8192;

enum class Request : uint8_t {
  kStart,
  kRegister,
  kClose,
  kExpect,
  kUntilMet,
  kFill,
  kCount,
  kWrite
};

std::string Begin(Request request) { return std::string(1, static_cast<char>(request)); }

// Serves one socket until it is closed.
class Child {
 public:
  Child(const Way& way, int socket) : driver_(ConfigOf(way)), socket_(socket) {}

  void Run() {
    std::string packet(kPacketBytes, '\0');
    while (true) {
      const ssize_t size = recv(socket_, packet.data(), packet.size(), writing_ ? MSG_DONTWAIT : 0);
      if (size < 0 && errno == EAGAIN) {
        WriteOn();
        continue;
      }
      if (size <= 0) return;
      const std::string answer = Answer(std::string_view(packet).substr(0, size));
      if (send(socket_, answer.data(), answer.size(), MSG_NOSIGNAL) < 0) return;
    }
  }

 private:
  std::string Answer(std::string_view text) {
    wire::Reader reader(text.substr(1));
    uint64_t number = 0;
    uint8_t fill = 0;
    std::string answer;
    switch (static_cast<Request>(text[0])) {
      case Request::kStart:
        reader.Read(&number);
        reader.Read(&fill);
        memory_.assign(number, static_cast<std::byte>(fill));
        return driver_.engine().address();
      case Request::kRegister: {
        RemoteRegion remote;
        region_ = driver_.engine().RegisterRemote(memory_, &remote).value();
        return remote.Encode();
      }
      case Request::kClose: driver_.engine().CloseRegion(region_); return "closed";
      case Request::kExpect:
        reader.Read(&number);
        wire::Append(&answer, driver_.engine()
                                  .Expect(static_cast<uint32_t>(number), driver_.Now() + kPatience)
                                  .value()
                                  .first);
        return answer;
      case Request::kUntilMet: {
        Expectation expectation;
        reader.Read(&expectation.first);
        return driver_.UntilMet(expectation) ? "y" : "n";
      }
      case Request::kFill:
        reader.Read(&fill);
        std::fill(memory_.begin(), memory_.end(), static_cast<std::byte>(fill));
        return "filled";
      case Request::kCount:
        reader.Read(&fill);
        number = static_cast<uint64_t>(
            std::count(memory_.begin(), memory_.end(), static_cast<std::byte>(fill)));
        wire::Append(&answer, number);
        return answer;
      case Request::kWrite: StartWriting(text.substr(1)); return "writing";
    }
    return "?";
  }

  // piece bytes u32, size of the address u32, the address, the region.
  void StartWriting(std::string_view text) {
    wire::Reader reader(text.substr(0, 8));
    uint32_t address_bytes = 0;
    reader.Read(&piece_bytes_);
    reader.Read(&address_bytes);
    peer_ = driver_.engine().AddPeer(text.substr(8, address_bytes)).value();
    remote_ = RemoteRegion::Decode(text.substr(8 + address_bytes)).value();
    local_ = driver_.engine().RegisterLocal(memory_).value();
    writing_ = true;
  }

  void WriteOn() {
    std::vector<WritePiece> pieces;
    for (uint64_t at = 0; at + piece_bytes_ <= memory_.size(); at += piece_bytes_) {
      pieces.push_back({at, at, piece_bytes_, 0});
    }
    const auto id =
        driver_.engine().Write(peer_, local_, remote_, pieces, driver_.Now() + kPatience).value();
    (void)driver_.EndOf(id);
  }

  EngineDriver driver_;
  const int socket_;
  std::vector<std::byte> memory_;
  RegionId region_;
  bool writing_ = false;
  uint32_t piece_bytes_ = 0;
  PeerId peer_;
  RegionId local_;
  RemoteRegion remote_;
};

// Does nothing in a test run; is what a ChildProcess runs.
TEST(FabricChild, Serve) {
  const char* socket = std::getenv(kSocketVariable);
  const char* name = std::getenv(kWayVariable);
  if (socket == nullptr || name == nullptr) return;
  for (const Way& way : AllWays()) {
    if (way.name == name) Child(way, std::atoi(socket)).Run();
  }
  _exit(0);
}

}  // namespace

ChildProcess::ChildProcess(const Way& way, size_t bytes, uint8_t fill) {
  int sockets[2] = {-1, -1};
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) != 0) std::abort();
  // Made before the fork: after it, a child of a process with threads may not allocate.
  const std::string socket_setting =
      std::string(kSocketVariable) + "=" + std::to_string(sockets[1]);
  const std::string way_setting = std::string(kWayVariable) + "=" + way.name;
  std::vector<char*> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) environment.push_back(*entry);
  environment.push_back(const_cast<char*>(socket_setting.c_str()));
  environment.push_back(const_cast<char*>(way_setting.c_str()));
  environment.push_back(nullptr);
  char program[] = "/proc/self/exe";
  char filter[] = "--gtest_filter=FabricChild.Serve";
  char quiet[] = "--gtest_brief=1";
  char* arguments[] = {program, filter, quiet, nullptr};
  pid_ = fork();
  if (pid_ == 0) {
    fcntl(sockets[1], F_SETFD, 0);
    execve(program, arguments, environment.data());
    _exit(1);
  }
  close(sockets[1]);
  socket_ = sockets[0];
  std::string request = Begin(Request::kStart);
  wire::Append(&request, uint64_t{bytes});
  wire::Append(&request, fill);
  address_ = Ask(request);
}

ChildProcess::~ChildProcess() {
  Kill();
  close(socket_);
}

void ChildProcess::Signal(int signal) {
  kill(pid_, signal);
  if (signal == SIGSTOP) waitpid(pid_, nullptr, WUNTRACED);
}

void ChildProcess::Kill() {
  if (pid_ < 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

std::string ChildProcess::Ask(const std::string& request) {
  std::string answer(kPacketBytes, '\0');
  if (send(socket_, request.data(), request.size(), MSG_NOSIGNAL) < 0) {
    ADD_FAILURE() << "the child takes no request: " << std::strerror(errno);
    return "";
  }
  const ssize_t size = recv(socket_, answer.data(), answer.size(), 0);
  if (size <= 0) {
    ADD_FAILURE() << "the child does not answer";
    return "";
  }
  answer.resize(static_cast<size_t>(size));
  return answer;
}

RemoteRegion ChildProcess::Register() {
  auto region = RemoteRegion::Decode(Ask(Begin(Request::kRegister)));
  EXPECT_TRUE(region.ok());
  return region.ok() ? *region : RemoteRegion{.nics = {{}}};
}

void ChildProcess::CloseRegion() { Ask(Begin(Request::kClose)); }

Expectation ChildProcess::Expect(uint32_t pieces) {
  std::string request = Begin(Request::kExpect);
  wire::Append(&request, uint64_t{pieces});
  const std::string answer = Ask(request);
  Expectation expectation{0, pieces};
  wire::Reader(answer).Read(&expectation.first);
  return expectation;
}

bool ChildProcess::UntilMet(const Expectation& expectation) {
  std::string request = Begin(Request::kUntilMet);
  wire::Append(&request, expectation.first);
  return Ask(request) == "y";
}

void ChildProcess::Fill(uint8_t value) { Ask(Begin(Request::kFill) + static_cast<char>(value)); }

size_t ChildProcess::CountBytes(uint8_t value) {
  const std::string answer = Ask(Begin(Request::kCount) + static_cast<char>(value));
  uint64_t count = 0;
  wire::Reader(answer).Read(&count);
  return count;
}

void ChildProcess::StartWriting(const std::string& address, const RemoteRegion& remote,
                                uint32_t piece_bytes) {
  std::string request = Begin(Request::kWrite);
  wire::Append(&request, piece_bytes);
  wire::Append(&request, static_cast<uint32_t>(address.size()));
  Ask(request + address + remote.Encode());
}

}  // namespace tandem
