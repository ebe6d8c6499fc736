#include "messenger/tcp_control.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "os/test_dir.h"

namespace tandem {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

constexpr std::string_view kKey = "a key of more than sixteen bytes";
constexpr std::string_view kMagic = "TNDMHO01";

LinkSecret SecretOf(std::string_view key) {
  return key.empty() ? LinkSecret() : std::move(LinkSecret::Create(std::string(key))).value();
}

bool Eventually(const std::function<bool()>& condition) {
  for (int i = 0; i < 2000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(milliseconds(5));
  }
  return condition();
}

TcpControlConfig Loopback(std::string_view key) {
  TcpControlConfig config;
  config.listen = HostPort{"127.0.0.1", 0};
  config.secret = SecretOf(key);
  return config;
}

// A link with what it has reported so far.
class Node {
 public:
  explicit Node(const TcpControlConfig& config)
      : link_(std::move(TcpControlLink::Create(config)).value()) {}
  explicit Node(std::string_view key) : Node(Loopback(key)) {}

  TcpControlLink& link() { return *link_; }
  std::string address() const { return "127.0.0.1:" + std::to_string(link_->port()); }
  void Poll() { link_->Poll(&events); }
  template <typename Event>
  std::vector<const Event*> All() {
    Poll();
    std::vector<const Event*> found;
    for (const LinkEvent& event : events) {
      if (const auto* e = std::get_if<Event>(&event)) found.push_back(e);
    }
    return found;
  }
  template <typename Event>
  bool Wait(size_t count = 1) {
    return Eventually([&] { return All<Event>().size() >= count; });
  }

  std::vector<LinkEvent> events;

 private:
  std::unique_ptr<TcpControlLink> link_;
};

// Connects `from` to `to`; the ids of both ends.
struct Ends {
  LinkId from;
  LinkId to;
};
Ends Join(Node& from, Node& to) {
  const LinkId out = std::move(from.link().Connect(to.address())).value();
  EXPECT_TRUE(from.Wait<LinkUp>() && to.Wait<LinkUp>());
  return {out, to.All<LinkUp>().back()->link};
}

// Speaks to a port byte by byte; no read waits longer than ten seconds.
class RawPeer {
 public:
  explicit RawPeer(uint16_t port) : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    SetTimeout();
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = ::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  }
  explicit RawPeer(int fd, bool) : fd_(fd) { SetTimeout(); }
  ~RawPeer() { ::close(fd_); }
  RawPeer(const RawPeer&) = delete;
  RawPeer& operator=(const RawPeer&) = delete;

  bool connected() const { return connected_; }
  bool Send(std::string_view bytes) {
    return ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
           static_cast<ssize_t>(bytes.size());
  }
  // Up to `bytes`; less when the other side closes.
  std::string Read(size_t bytes) {
    std::string out(bytes, '\0');
    size_t got = 0;
    while (got < bytes) {
      const ssize_t n = ::recv(fd_, out.data() + got, bytes - got, 0);
      if (n <= 0) break;
      got += static_cast<size_t>(n);
    }
    out.resize(got);
    return out;
  }
  bool Closed() { return Read(1).empty(); }

  // The connector's part of the handshake; true when accepted.
  bool Prove(const LinkSecret& secret) {
    nonces_.connector.fill(7);
    if (!Send(std::string(kMagic) + std::string(32, 7))) return false;
    const std::string hello = Read(40);
    if (hello.size() != 40) return false;
    std::copy(hello.begin() + 8, hello.end(), nonces_.listener.begin());
    const LinkProof proof = secret.Prove(LinkRole::kConnector, nonces_);
    Send({reinterpret_cast<const char*>(proof.data()), proof.size()});
    const std::string verdict = Read(33);
    return verdict.size() == 33 && verdict[0] == 1;
  }
  const LinkNonces& nonces() const { return nonces_; }

 private:
  void SetTimeout() const {
    const timeval timeout{10, 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
  }

  int fd_;
  bool connected_ = true;
  LinkNonces nonces_;
};

// A port on which a test answers itself.
class RawListener {
 public:
  RawListener() : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    EXPECT_EQ(::bind(fd_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(::listen(fd_, 8), 0);
    ::getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
  }
  ~RawListener() { ::close(fd_); }
  std::unique_ptr<RawPeer> Accept() {
    return std::make_unique<RawPeer>(::accept(fd_, nullptr, nullptr), true);
  }
  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }

 private:
  int fd_;
  uint16_t port_ = 0;
};

std::string FrameOf(std::string_view frame, FrameTagger& tagger) {
  std::string wire;
  for (size_t i = 0; i < 4; ++i) wire += static_cast<char>(frame.size() >> (8 * i));
  const FrameTag tag = tagger.Next(frame);
  wire.append(reinterpret_cast<const char*>(tag.data()), tag.size());
  return wire.append(frame);
}

// ---- Frames

TEST(TcpControlLink, CarriesFramesInOrderBothWays) {
  Node a(kKey);
  Node b(kKey);
  const Ends ends = Join(a, b);
  EXPECT_FALSE(a.All<LinkUp>()[0]->inbound);
  EXPECT_TRUE(b.All<LinkUp>()[0]->inbound);
  EXPECT_EQ(a.All<LinkUp>()[0]->peer, b.address());
  std::vector<std::string> sent;
  for (int i = 0; i < 300; ++i) {
    sent.push_back(std::string(static_cast<size_t>(i * 37), static_cast<char>(i)));
    ASSERT_TRUE(a.link().Send(ends.from, sent.back()).ok());
    ASSERT_TRUE(b.link().Send(ends.to, sent.back()).ok());
  }
  for (Node* node : {&a, &b}) {
    ASSERT_TRUE(node->Wait<FrameReceived>(sent.size()));
    const auto got = node->All<FrameReceived>();
    ASSERT_EQ(got.size(), sent.size());
    for (size_t i = 0; i < sent.size(); ++i) EXPECT_EQ(got[i]->frame, sent[i]) << i;
  }
}

TEST(TcpControlLink, CarriesTheLargestFrame) {
  Node a(kKey);
  Node b(kKey);
  const Ends ends = Join(a, b);
  const std::string frame(ControlLink::kMaxFrameBytes, 'x');
  ASSERT_TRUE(a.link().Send(ends.from, frame).ok());
  ASSERT_TRUE(b.Wait<FrameReceived>());
  EXPECT_TRUE(b.All<FrameReceived>()[0]->frame == frame);
}

TEST(TcpControlLink, WakesItsOwner) {
  Node a(kKey);
  Node b(kKey);
  std::atomic<int> wakes{0};
  b.link().SetWake([&wakes] { ++wakes; });
  const Ends ends = Join(a, b);
  EXPECT_GE(wakes.load(), 1);
  const int before = wakes.load();
  ASSERT_TRUE(a.link().Send(ends.from, "x").ok());
  EXPECT_TRUE(Eventually([&] { return wakes.load() > before; }));
}

TEST(TcpControlLink, SendsWhatWasQueuedBeforeClose) {
  Node a(kKey);
  Node b(kKey);
  const Ends ends = Join(a, b);
  // Unread bytes at the closing side must not cost the other side its frames.
  ASSERT_TRUE(b.link().Send(ends.to, std::string(1 << 20, 'y')).ok());
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(a.link().Send(ends.from, std::to_string(i)).ok());
  a.link().Close(ends.from);
  ASSERT_TRUE(b.Wait<LinkDown>());
  EXPECT_EQ(b.All<FrameReceived>().size(), 100u);
  EXPECT_EQ(b.All<LinkDown>().size(), 1u);
  EXPECT_TRUE(a.All<LinkDown>().empty()) << "of a link that was closed nothing is reported";
  EXPECT_TRUE(Eventually([&] { return a.link().stats().links_up == 0; }));
}

TEST(TcpControlLink, ReportsNothingAfterClose) {
  Node a(kKey);
  Node b(kKey);
  const Ends ends = Join(a, b);
  ASSERT_TRUE(a.link().Send(ends.from, "x").ok());
  std::this_thread::sleep_for(milliseconds(50));
  b.link().Close(ends.to);  // with the frame unpolled
  std::this_thread::sleep_for(milliseconds(50));
  EXPECT_TRUE(b.All<FrameReceived>().empty());
  EXPECT_TRUE(b.link().Send(ends.to, "y").ok()) << "ignored";
  b.link().Close(ends.to);
}

TEST(TcpControlLink, EndsAConnectionThatWasNeverMade) {
  Node a(kKey);
  const LinkId id = std::move(a.link().Connect("127.0.0.1:1")).value();
  ASSERT_TRUE(a.Wait<LinkDown>());
  EXPECT_EQ(a.All<LinkDown>()[0]->link, id);
  EXPECT_EQ(a.All<LinkDown>()[0]->status.code(), StatusCode::kUnavailable);
  for (const char* wrong : {"", "host", "host:", ":80", "host:0", "host:65536", "host:1x", "a b:1",
                            "::1:80", "http://host:80"}) {
    EXPECT_EQ(a.link().Connect(wrong).status().code(), StatusCode::kInvalidArgument) << wrong;
  }
}

TEST(TcpControlLink, ReportsAPeerThatWasKilled) {
  int port_pipe[2];
  ASSERT_EQ(::pipe(port_pipe), 0);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    Node node(kKey);
    const uint16_t port = node.link().port();
    if (::write(port_pipe[1], &port, sizeof port) != sizeof port) ::_exit(1);
    for (;;) ::pause();
  }
  uint16_t port = 0;
  ASSERT_EQ(::read(port_pipe[0], &port, sizeof port), static_cast<ssize_t>(sizeof port));
  Node a(kKey);
  ASSERT_TRUE(a.link().Connect("127.0.0.1:" + std::to_string(port)).ok());
  ASSERT_TRUE(a.Wait<LinkUp>());
  ::kill(child, SIGKILL);
  const auto killed = std::chrono::steady_clock::now();
  ASSERT_TRUE(a.Wait<LinkDown>());
  EXPECT_LT(std::chrono::steady_clock::now() - killed, std::chrono::seconds(2));
  EXPECT_EQ(a.All<LinkDown>()[0]->status.code(), StatusCode::kUnavailable);
  ::waitpid(child, nullptr, 0);
  ::close(port_pipe[0]);
  ::close(port_pipe[1]);
}

TEST(TcpControlLink, RefusesFramesForASlowReader) {
  TcpControlConfig slow = Loopback(kKey);
  slow.incoming_bytes_max = 1 << 20;
  TcpControlConfig config = Loopback(kKey);
  config.outgoing_bytes_max = 8 << 20;
  config.limits.stall_timeout_ms = 300;
  Node a(config);
  Node b(slow);  // its owner does not poll
  const Ends ends = Join(a, b);
  const std::string frame(1 << 20, 'x');
  int accepted = 0;
  Status status;
  for (; accepted < 1000 && status.ok(); accepted += status.ok() ? 1 : 0) {
    status = a.link().Send(ends.from, frame);
  }
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_LT(accepted, 40) << "what the kernel holds and 8 MiB";
  ASSERT_TRUE(a.Wait<LinkDown>()) << "it takes nothing for too long";
  EXPECT_THAT(a.All<LinkDown>()[0]->status.message(), HasSubstr("took nothing"));
}

TEST(TcpControlLink, ReadsOnWhenItsOwnerPollsAgain) {
  TcpControlConfig slow = Loopback(kKey);
  slow.incoming_bytes_max = 1 << 16;
  Node a(kKey);
  Node b(slow);
  const Ends ends = Join(a, b);
  for (int i = 0; i < 64; ++i) {
    ASSERT_TRUE(a.link().Send(ends.from, std::string(1 << 16, 'x')).ok());
  }
  std::this_thread::sleep_for(milliseconds(100));
  EXPECT_TRUE(b.Wait<FrameReceived>(64));
}

// ---- Trust

TEST(TcpControlLink, RefusesAnotherKeyOnBothSides) {
  struct Case {
    std::string_view connector, listener;
  };
  for (const Case c :
       {Case{"another key of sixteen bytes", kKey}, Case{"", kKey}, Case{kKey, ""}}) {
    Node a(c.connector);
    Node b(c.listener);
    ASSERT_TRUE(a.link().Connect(b.address()).ok());
    ASSERT_TRUE(a.Wait<LinkDown>());
    const Status& status = a.All<LinkDown>()[0]->status;
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
    EXPECT_THAT(status.message(), HasSubstr("--handoff-key-file"));
    EXPECT_TRUE(a.All<LinkUp>().empty() && b.All<LinkUp>().empty());
    EXPECT_TRUE(Eventually([&] { return b.link().stats().handshakes_failed == 1; }));
  }
}

TEST(TcpControlLink, WithoutAKeyTrustsThisMachineAlone) {
  Node a("");
  Node b("");
  Join(a, b);
  TcpControlConfig open;
  open.listen = HostPort{"0.0.0.0", 0};
  const auto refused = TcpControlLink::Create(open);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(refused.status().message(), HasSubstr("--handoff-key-file"));
  open.secret = SecretOf(kKey);
  EXPECT_TRUE(TcpControlLink::Create(open).ok());
  ASSERT_TRUE(a.link().Connect("192.0.2.1:9000").ok());  // an address for documentation
  ASSERT_TRUE(a.Wait<LinkDown>());
  EXPECT_EQ(a.All<LinkDown>()[0]->status.code(), StatusCode::kFailedPrecondition);
}

TEST(TcpControlLink, RefusesAPeerThatReflectsItsChallenge) {
  Node a(kKey);
  RawListener echo;
  ASSERT_TRUE(a.link().Connect(echo.address()).ok());
  const auto peer = echo.Accept();
  ASSERT_TRUE(peer->Send(peer->Read(40)));
  ASSERT_TRUE(a.Wait<LinkDown>());
  EXPECT_THAT(a.All<LinkDown>()[0]->status.message(), HasSubstr("sends back"));
  EXPECT_TRUE(peer->Closed()) << "and no proof was given away";
}

TEST(TcpControlLink, RefusesAProofOfItsOwnMaking) {
  // The peer has the proof that `a` gives as a connector, and claims to be the listener with it.
  Node a(kKey);
  RawListener rogue;
  ASSERT_TRUE(a.link().Connect(rogue.address()).ok());
  const auto peer = rogue.Accept();
  peer->Read(40);
  ASSERT_TRUE(peer->Send(std::string(kMagic) + std::string(32, 9)));
  const std::string proof = peer->Read(32);
  ASSERT_EQ(proof.size(), 32u);
  ASSERT_TRUE(peer->Send(std::string(1, 1) + proof));
  ASSERT_TRUE(a.Wait<LinkDown>());
  EXPECT_EQ(a.All<LinkDown>()[0]->status.code(), StatusCode::kFailedPrecondition);
  EXPECT_TRUE(a.All<LinkUp>().empty());
}

TEST(TcpControlLink, RefusesARecordedProof) {
  Node node(kKey);
  const LinkSecret secret = SecretOf(kKey);
  RawPeer good(node.link().port());
  ASSERT_TRUE(good.Prove(secret));
  const LinkProof recorded = secret.Prove(LinkRole::kConnector, good.nonces());
  RawPeer replay(node.link().port());
  ASSERT_TRUE(replay.Send(std::string(kMagic) + std::string(32, 7)));
  ASSERT_EQ(replay.Read(40).size(), 40u);
  ASSERT_TRUE(replay.Send({reinterpret_cast<const char*>(recorded.data()), recorded.size()}));
  EXPECT_EQ(replay.Read(33)[0], 0);
  EXPECT_TRUE(replay.Closed());
}

TEST(TcpControlLink, AProofSaysWhoseItIs) {
  const LinkSecret secret = SecretOf(kKey);
  LinkNonces nonces;
  nonces.connector.fill(1);
  nonces.listener.fill(2);
  const LinkProof proof = secret.Prove(LinkRole::kConnector, nonces);
  EXPECT_TRUE(secret.Check(LinkRole::kConnector, nonces, proof));
  EXPECT_FALSE(secret.Check(LinkRole::kListener, nonces, proof));
  EXPECT_FALSE(SecretOf("another key of sixteen bytes").Check(LinkRole::kConnector, nonces, proof));
  std::swap(nonces.connector, nonces.listener);
  EXPECT_FALSE(secret.Check(LinkRole::kConnector, nonces, proof));
}

TEST(TcpControlLink, EndsALinkWithGarbage) {
  Node node(kKey);
  for (const std::string& garbage :
       {std::string("GET / HTTP/1.1\r\nHost: somewhere.example\r\n\r\n"),
        std::string(4096, '\xff')}) {
    RawPeer peer(node.link().port());
    peer.Send(garbage);
    EXPECT_TRUE(peer.Closed());
  }
  EXPECT_TRUE(node.All<LinkUp>().empty());
}

TEST(TcpControlLink, EndsALinkWithAFrameThatIsTooLargeOrForged) {
  const LinkSecret secret = SecretOf(kKey);
  for (const std::string what : {"large", "forged", "repeated", "cut"}) {
    Node node(kKey);
    RawPeer peer(node.link().port());
    ASSERT_TRUE(peer.Prove(secret));
    FrameTagger tagger = secret.TaggerOf(LinkRole::kConnector, peer.nonces());
    const std::string first = FrameOf("first", tagger);
    peer.Send(first);
    if (what == "large") peer.Send(std::string("\x01\x00\x00\x01", 4) + std::string(16, 'x'));
    if (what == "forged") {
      std::string frame = FrameOf("second", tagger);
      frame.back() ^= 1;
      peer.Send(frame);
    }
    if (what == "repeated") peer.Send(first);
    if (what == "cut") {
      peer.Send(FrameOf("second", tagger).substr(0, 22));
      ASSERT_TRUE(node.Wait<FrameReceived>());
      ::usleep(20'000);
      EXPECT_TRUE(node.All<LinkDown>().empty()) << "the rest may come";
      continue;
    }
    ASSERT_TRUE(node.Wait<LinkDown>()) << what;
    EXPECT_EQ(node.All<LinkDown>()[0]->status.code(), StatusCode::kDataLoss) << what;
    ASSERT_EQ(node.All<FrameReceived>().size(), 1u) << what;
    EXPECT_EQ(node.All<FrameReceived>()[0]->frame, "first");
  }
}

TEST(TcpControlLink, ServesOthersDuringAHalfOpenFlood) {
  TcpControlConfig config = Loopback(kKey);
  config.half_open_max = 8;
  Node node(config);
  std::vector<std::unique_ptr<RawPeer>> flood;
  for (int i = 0; i < 100; ++i) {
    flood.push_back(std::make_unique<RawPeer>(node.link().port()));
    ASSERT_TRUE(flood.back()->connected());
  }
  EXPECT_TRUE(Eventually([&] { return node.link().stats().half_open_ended == 92; }));
  EXPECT_EQ(node.link().stats().half_open, 8);
  Node a(kKey);
  Join(a, node);
}

TEST(TcpControlLink, EndsAHandshakeThatTakesTooLong) {
  TcpControlConfig config = Loopback(kKey);
  config.limits.handshake_timeout_ms = 100;
  Node node(config);
  RawPeer silent(node.link().port());
  EXPECT_TRUE(silent.Closed());
  RawListener mute;
  ASSERT_TRUE(node.link().Connect(mute.address()).ok());
  ASSERT_TRUE(node.Wait<LinkDown>());
  EXPECT_THAT(node.All<LinkDown>()[0]->status.message(), HasSubstr("no hand-off node answered"));
}

TEST(TcpControlLink, SaysWhichFlagMendsAnAddressInUse) {
  Node node(kKey);
  TcpControlConfig config = Loopback(kKey);
  config.listen->port = node.link().port();
  const auto second = TcpControlLink::Create(config);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), StatusCode::kUnavailable);
  EXPECT_THAT(second.status().message(), HasSubstr("in use: choose another with --handoff-listen"));
  config.listen = HostPort{"192.0.2.1", 9};
  EXPECT_EQ(TcpControlLink::Create(config).status().code(), StatusCode::kInvalidArgument);
}

TEST(TcpControlLink, ListensAtOnceWhereAKilledOneDid) {
  auto first = std::make_unique<Node>(kKey);
  TcpControlConfig config = Loopback(kKey);
  config.listen->port = first->link().port();
  Node a(kKey);
  Join(a, *first);
  first.reset();
  Node second(config);
  ASSERT_TRUE(a.Wait<LinkDown>());
  ASSERT_TRUE(a.link().Connect(second.address()).ok());
  EXPECT_TRUE(a.Wait<LinkUp>(2));
}

// ---- The key's file

TEST(LinkSecret, ComesFromAFileThatNotEverybodyMayRead) {
  const TestDir dir;
  const std::string path = dir.Write("key", "\n  0123456789abcdef\n\n");
  ::chmod(path.c_str(), 0644);
  const auto open = LinkSecret::FromFile(path);
  ASSERT_FALSE(open.ok());
  EXPECT_EQ(open.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(open.status().message(), HasSubstr("chmod o= " + path));
  ::chmod(path.c_str(), 0640);
  const auto secret = LinkSecret::FromFile(path);
  ASSERT_TRUE(secret.ok()) << secret.status().ToString();
  const LinkNonces nonces;
  EXPECT_TRUE(SecretOf("0123456789abcdef")
                  .Check(LinkRole::kListener, nonces, secret->Prove(LinkRole::kListener, nonces)))
      << "without the blank space";
}

TEST(LinkSecret, RefusesFilesThatAreNoKey) {
  const TestDir dir;
  const auto code_of = [&dir](std::string_view content) {
    const std::string path = dir.Write("key", content);
    ::chmod(path.c_str(), 0600);
    const auto secret = LinkSecret::FromFile(path);
    return secret.ok() ? StatusCode::kOk : secret.status().code();
  };
  EXPECT_EQ(code_of(""), StatusCode::kInvalidArgument);
  EXPECT_EQ(code_of(" \n"), StatusCode::kInvalidArgument);
  EXPECT_EQ(code_of("fifteen letters"), StatusCode::kInvalidArgument);
  EXPECT_EQ(code_of(std::string(5000, 'x')), StatusCode::kInvalidArgument);
  EXPECT_EQ(code_of(std::string(4096, 'x')), StatusCode::kOk);
  EXPECT_EQ(LinkSecret::FromFile(dir.path() + "/none").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(LinkSecret::FromFile(dir.path()).status().code(), StatusCode::kFailedPrecondition);
  const auto shown = LinkSecret::Create("short secret");
  EXPECT_THAT(shown.status().message(), testing::Not(HasSubstr("secret")));
}

}  // namespace
}  // namespace tandem
