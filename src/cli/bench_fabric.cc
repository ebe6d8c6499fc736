#include "cli/bench_fabric.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "fabric/fabric_engine.h"
#include "fabric/host/shared_ring.h"

namespace tandem {
namespace {

constexpr size_t kMemory = 16 << 20;  // on each side: more than a burst, as KV is not in a cache
constexpr int kRounds = 40;
constexpr TimeNs kDeadline = 20 * kNsPerS;
constexpr const char* kLoopback = "127.0.0.1";
struct Shape {
  uint32_t page_bytes;
  uint32_t pages;
};
constexpr Shape kShapes[] = {
    {4 << 10, 256}, {16 << 10, 128}, {64 << 10, 64}, {256 << 10, 24}, {1 << 20, 8}};

bool SendAll(int socket, const void* data, size_t bytes) {
  const auto* from = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t sent = send(socket, from, bytes, MSG_NOSIGNAL);
    if (sent <= 0) return false;
    from += sent;
    bytes -= static_cast<size_t>(sent);
  }
  return true;
}

bool ReceiveAll(int socket, void* data, size_t bytes) {
  return bytes == 0 || recv(socket, data, bytes, MSG_WAITALL) == static_cast<ssize_t>(bytes);
}

bool SendText(int socket, const std::string& text) {
  const auto size = static_cast<uint32_t>(text.size());
  return SendAll(socket, &size, sizeof(size)) && SendAll(socket, text.data(), size);
}

bool ReceiveText(int socket, std::string* text) {
  uint32_t size = 0;
  if (!ReceiveAll(socket, &size, sizeof(size))) return false;
  text->resize(size);
  return ReceiveAll(socket, text->data(), size);
}

FabricEngine::Config ConfigOf(bool same_host) {
  FabricEngine::Config config;
  config.same_host = same_host;
  if (!same_host) config.hosts = {kLoopback};
  return config;
}

// Takes bursts of the plain stream into `memory` and answers each with a byte.
void ServeTcp(int listener, std::vector<std::byte>* memory) {
  const Fd socket(accept(listener, nullptr, nullptr));
  const int on = 1;
  setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  uint64_t bytes = 0;
  while (ReceiveAll(socket.get(), &bytes, sizeof(bytes)) && bytes <= memory->size()) {
    const char done = 1;
    if (!ReceiveAll(socket.get(), memory->data(), bytes) || !SendAll(socket.get(), &done, 1))
      return;
  }
}

// The receiver's process: its engines live until the sender closes the control socket.
int Receive(int control) {
  std::vector<std::byte> memory(kMemory, std::byte{1});
  std::vector<std::unique_ptr<FabricEngine>> engines;
  for (const bool same_host : {false, true}) {
    auto engine = FabricEngine::Create(ConfigOf(same_host));
    if (!engine.ok()) return 1;
    RemoteRegion remote;
    if (!(*engine)->RegisterRemote(memory, &remote).ok()) return 1;
    if (!SendText(control, (*engine)->address()) || !SendText(control, remote.Encode())) return 1;
    engines.push_back(std::move(*engine));
  }
  const Fd listener(socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  if (bind(listener.get(), reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      listen(listener.get(), 1) != 0 ||
      getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0 ||
      !SendAll(control, &address, sizeof(address))) {
    return 1;
  }
  ServeTcp(listener.get(), &memory);
  char end = 0;
  (void)ReceiveAll(control, &end, 1);
  return 0;
}

// Something that sends a burst and waits until it is delivered.
class Sender {
 public:
  virtual ~Sender() = default;
  virtual std::string name() const = 0;
  virtual Status Send(uint32_t page_bytes, uint32_t pages) = 0;
};

class EngineSender final : public Sender {
 public:
  static Result<std::unique_ptr<Sender>> Create(int control, bool same_host,
                                                std::vector<std::byte>* memory) {
    std::string address;
    std::string region;
    if (!ReceiveText(control, &address) || !ReceiveText(control, &region)) {
      return UnavailableError("the receiver does not start; is there a network at {}?", kLoopback);
    }
    auto sender = std::make_unique<EngineSender>();
    sender->name_ = same_host ? "same host" : "network";
    TANDEM_ASSIGN_OR_RETURN(sender->remote_, RemoteRegion::Decode(region));
    TANDEM_ASSIGN_OR_RETURN(sender->engine_, FabricEngine::Create(ConfigOf(same_host)));
    sender->engine_->SetWake([sender = sender.get()] {
      sender->wakes_.fetch_add(1);
      sender->wakes_.notify_one();
    });
    TANDEM_ASSIGN_OR_RETURN(sender->local_, sender->engine_->RegisterLocal(*memory));
    TANDEM_ASSIGN_OR_RETURN(sender->peer_, sender->engine_->AddPeer(address));
    return std::unique_ptr<Sender>(std::move(sender));
  }

  std::string name() const override { return name_; }

  Status Send(uint32_t page_bytes, uint32_t pages) override {
    pieces_.clear();
    for (uint32_t i = 0; i < pages; ++i) {
      const uint64_t at = uint64_t{i} * page_bytes;
      pieces_.push_back({at, at, page_bytes, i});
    }
    TANDEM_ASSIGN_OR_RETURN(
        const TransferId id,
        engine_->Write(peer_, local_, remote_, pieces_, engine_->clock().Now() + kDeadline));
    while (true) {
      const uint32_t seen = wakes_.load();
      events_.clear();
      engine_->Poll(&events_);
      for (const FabricEvent& event : events_) {
        const auto* ended = std::get_if<TransferEnded>(&event);
        if (ended != nullptr && ended->transfer == id) return ended->status;
      }
      if (events_.empty()) wakes_.wait(seen);
    }
  }

 private:
  std::string name_;
  std::atomic<uint32_t> wakes_{0};
  RemoteRegion remote_;
  RegionId local_;
  PeerId peer_;
  std::vector<WritePiece> pieces_;
  std::vector<FabricEvent> events_;
  std::unique_ptr<FabricEngine> engine_;  // last: its wake uses the others
};

class TcpSender final : public Sender {
 public:
  static Result<std::unique_ptr<Sender>> Create(int control, const std::vector<std::byte>* memory) {
    sockaddr_in address = {};
    auto sender = std::make_unique<TcpSender>();
    sender->memory_ = memory;
    sender->socket_ = Fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!ReceiveAll(control, &address, sizeof(address)) ||
        connect(sender->socket_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) !=
            0) {
      return UnavailableError("no TCP connection to the receiver: {}", strerror(errno));
    }
    const int on = 1;
    setsockopt(sender->socket_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    return std::unique_ptr<Sender>(std::move(sender));
  }

  std::string name() const override { return "raw TCP"; }

  Status Send(uint32_t page_bytes, uint32_t pages) override {
    const uint64_t bytes = uint64_t{page_bytes} * pages;
    char done = 0;
    bool ok = SendAll(socket_.get(), &bytes, sizeof(bytes));
    for (uint32_t i = 0; i < pages && ok; ++i) {
      ok = SendAll(socket_.get(), memory_->data() + size_t{i} * page_bytes, page_bytes);
    }
    if (ok && ReceiveAll(socket_.get(), &done, 1)) return OkStatus();
    return UnavailableError("the TCP stream broke: {}", strerror(errno));
  }

 private:
  const std::vector<std::byte>* memory_ = nullptr;
  Fd socket_;
};

class CopySender final : public Sender {
 public:
  explicit CopySender(const std::vector<std::byte>* memory)
      : memory_(memory), target_(memory->size()) {}
  std::string name() const override { return "memcpy"; }
  Status Send(uint32_t page_bytes, uint32_t pages) override {
    for (size_t i = 0; i < pages; ++i) {
      std::memcpy(target_.data() + i * page_bytes, memory_->data() + i * page_bytes, page_bytes);
      // The copies are wanted, though nobody reads them.
      asm volatile("" ::"r"(target_.data()) : "memory");
    }
    return OkStatus();
  }

 private:
  const std::vector<std::byte>* memory_;
  std::vector<std::byte> target_;
};

Result<double> Seconds(Sender* sender, uint32_t page_bytes, uint32_t pages) {
  const SteadyClock clock;
  const TimeNs begin = clock.Now();
  const Status sent = sender->Send(page_bytes, pages);
  if (!sent.ok()) return sent.WithContext(sender->name());
  return static_cast<double>(clock.Now() - begin) / kNsPerS;
}

Result<FabricRow> MeasureShape(const Shape& shape,
                               const std::vector<std::unique_ptr<Sender>>& senders) {
  std::vector<std::vector<double>> bursts(senders.size());
  std::vector<double> page(senders.size(), 1e9);
  for (int round = -2; round < kRounds; ++round) {  // the first two warm up
    for (size_t i = 0; i < senders.size(); ++i) {
      TANDEM_ASSIGN_OR_RETURN(const double burst,
                              Seconds(senders[i].get(), shape.page_bytes, shape.pages));
      TANDEM_ASSIGN_OR_RETURN(const double one, Seconds(senders[i].get(), shape.page_bytes, 1));
      if (round < 0) continue;
      bursts[i].push_back(burst);
      page[i] = std::min(page[i], one);
    }
  }
  FabricRow row{shape.page_bytes, shape.pages, {}};
  const double gb = 1e-9 * shape.page_bytes * shape.pages;
  for (size_t i = 0; i < senders.size(); ++i) {
    std::sort(bursts[i].begin(), bursts[i].end());
    const double slow = bursts[i][bursts[i].size() * 3 / 4];
    row.figures.push_back({senders[i]->name(), gb / bursts[i].front(), gb / slow, page[i] * 1e6});
  }
  return row;
}

Result<std::vector<FabricRow>> MeasureAgainst(int control) {
  std::vector<std::byte> memory(kMemory, std::byte{2});
  std::vector<std::unique_ptr<Sender>> senders(2);
  TANDEM_ASSIGN_OR_RETURN(senders[0], EngineSender::Create(control, false, &memory));
  TANDEM_ASSIGN_OR_RETURN(senders[1], EngineSender::Create(control, true, &memory));
  TANDEM_ASSIGN_OR_RETURN(std::unique_ptr<Sender> tcp, TcpSender::Create(control, &memory));
  senders.push_back(std::move(tcp));
  senders.push_back(std::make_unique<CopySender>(&memory));
  std::vector<FabricRow> rows;
  for (const Shape& shape : kShapes) {
    TANDEM_ASSIGN_OR_RETURN(FabricRow row, MeasureShape(shape, senders));
    rows.push_back(std::move(row));
  }
  return rows;
}

double RawBest(const FabricRow& row) {
  for (const FabricFigure& figure : row.figures) {
    if (figure.way == "raw TCP") return figure.gb_s_best;
  }
  return 0;
}

}  // namespace

Result<std::vector<FabricRow>> MeasureFabric() {
  int sockets[2] = {-1, -1};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0) {
    return UnavailableError("a socket for the receiver: {}", strerror(errno));
  }
  Fd ours(sockets[0]);
  Fd theirs(sockets[1]);
  const pid_t child = fork();
  if (child < 0) return UnavailableError("a process for the receiver: {}", strerror(errno));
  if (child == 0) {
    ours = Fd();
    _exit(Receive(theirs.get()));
  }
  theirs = Fd();
  auto rows = MeasureAgainst(ours.get());
  kill(child, SIGKILL);  // it has nothing to keep
  waitpid(child, nullptr, 0);
  return rows;
}

std::string FabricText(const std::vector<FabricRow>& rows) {
  std::string text =
      "pages to another process, GB/s: best (25th percentile) of bursts, x raw TCP's best\n";
  text += fmt::format("{:>14}", "page x burst");
  if (!rows.empty()) {
    for (const FabricFigure& figure : rows[0].figures) text += fmt::format("{:>22}", figure.way);
  }
  text += "\n";
  for (const FabricRow& row : rows) {
    text += fmt::format("{:>8} KiB x{:<3}", row.page_bytes >> 10, row.pages);
    for (const FabricFigure& figure : row.figures) {
      text += fmt::format("{:>8.2f} ({:.2f}) {:>5.2f}x", figure.gb_s_best, figure.gb_s_p25,
                          figure.gb_s_best / RawBest(row));
    }
    text += "\n";
  }
  text += "\none page, us until it is known to be delivered\n";
  for (const FabricRow& row : rows) {
    text += fmt::format("{:>8} KiB     ", row.page_bytes >> 10);
    for (const FabricFigure& figure : row.figures) text += fmt::format("{:>22.1f}", figure.page_us);
    text += "\n";
  }
  return text;
}

std::string FabricJson(const std::vector<FabricRow>& rows) {
  nlohmann::ordered_json json;
  json["rows"] = nlohmann::ordered_json::array();
  for (const FabricRow& row : rows) {
    nlohmann::ordered_json entry;
    entry["page_bytes"] = row.page_bytes;
    entry["pages"] = row.pages;
    for (const FabricFigure& figure : row.figures) {
      entry["ways"][figure.way] = {{"gb_s_best", figure.gb_s_best},
                                   {"gb_s_p25", figure.gb_s_p25},
                                   {"of_raw_tcp", figure.gb_s_best / RawBest(row)},
                                   {"page_us", figure.page_us}};
    }
    json["rows"].push_back(std::move(entry));
  }
  return json.dump(2) + "\n";
}

}  // namespace tandem
