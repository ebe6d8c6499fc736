#include "messenger/membership.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "messenger/membership_etcd.h"
#include "messenger/membership_file.h"
#include "messenger/tcp_control.h"
#include "os/test_dir.h"

namespace tandem {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr TimeNs kOften = 10 * kNsPerMs;

bool Eventually(const std::function<bool()>& condition) {
  for (int i = 0; i < 4000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(milliseconds(5));
  }
  return condition();
}

std::vector<std::unique_ptr<MembershipSource>> OneSource(std::unique_ptr<MembershipSource> source) {
  std::vector<std::unique_ptr<MembershipSource>> sources;
  sources.push_back(std::move(source));
  return sources;
}

// Whether `membership` comes to say `nodes`.
bool Becomes(Membership& membership, std::vector<std::string> nodes) {
  return Eventually([&] {
    const auto change = membership.TakeChange();
    return change.has_value() && *change == nodes;
  });
}

TEST(HostPort, ReadsAddressesAndSaysWhatIsWrong) {
  EXPECT_EQ(*ParseHostPort("node-1.example:9000"), (HostPort{"node-1.example", 9000}));
  EXPECT_EQ(*ParseHostPort("[::1]:80"), (HostPort{"::1", 80}));
  EXPECT_EQ(ParseHostPort("[::1]:80")->ToString(), "[::1]:80");
  EXPECT_EQ(*ParseListenAddress("127.0.0.1:0"), (HostPort{"127.0.0.1", 0}));
  EXPECT_THAT(ParseHostPort("host").status().message(), HasSubstr("has no port"));
  EXPECT_THAT(ParseHostPort("::1:80").status().message(), HasSubstr("in brackets"));
  for (const char* wrong : {"", ":", ":1", "h:", "h:0", "h:-1", "h:65536", "h:99999999999", "h:1 ",
                            "h h:1", "a,b:1", "u@h:1", "\x01:1"}) {
    EXPECT_EQ(ParseHostPort(wrong).status().code(), StatusCode::kInvalidArgument) << wrong;
  }
}

TEST(Membership, JoinsAFixedListOnce) {
  Membership membership({"b:1", "a:1", "b:1"}, {}, kOften, {});
  EXPECT_THAT(*membership.TakeChange(), ElementsAre("a:1", "b:1"));
  EXPECT_FALSE(membership.TakeChange().has_value());
}

TEST(Membership, FollowsAFile) {
  const TestDir dir;
  const std::string path = dir.Write("nodes", "# prefill\n b:2 # the second\r\n\na:1");
  std::atomic<int> wakes{0};
  Membership membership({"z:9"},
                        OneSource(std::make_unique<FileMembershipSource>(RealFileSystem(), path)),
                        kOften, [&wakes] { ++wakes; });
  EXPECT_TRUE(Becomes(membership, {"a:1", "b:2", "z:9"}));
  EXPECT_GE(wakes.load(), 1);
  dir.Write("nodes", "b:2\n");
  EXPECT_TRUE(Becomes(membership, {"b:2", "z:9"}));
  dir.Write("nodes", "");
  EXPECT_TRUE(Becomes(membership, {"z:9"}));
}

TEST(Membership, KeepsTheNodesOfASourceThatFails) {
  const TestDir dir;
  const std::string path = dir.Write("nodes", "a:1\n");
  Membership membership(
      {}, OneSource(std::make_unique<FileMembershipSource>(RealFileSystem(), path)), kOften, {});
  ASSERT_TRUE(Becomes(membership, {"a:1"}));
  ASSERT_EQ(::unlink(path.c_str()), 0);
  std::this_thread::sleep_for(milliseconds(100));
  EXPECT_FALSE(membership.TakeChange().has_value());
  dir.Write("nodes", "b:1\nnonsense\n");
  std::this_thread::sleep_for(milliseconds(100));
  EXPECT_FALSE(membership.TakeChange().has_value());
  dir.Write("nodes", "b:1\n");
  EXPECT_TRUE(Becomes(membership, {"b:1"}));
}

TEST(FileMembershipSource, NamesTheLineThatIsWrong) {
  const TestDir dir;
  FileMembershipSource source(RealFileSystem(), dir.Write("nodes", "a:1\n\nb\n"));
  EXPECT_THAT(source.Look().status().message(), HasSubstr("line 3: 'b' has no port"));
  FileMembershipSource none(RealFileSystem(), dir.path() + "/none");
  EXPECT_EQ(none.Look().status().code(), StatusCode::kNotFound);
}

// ---- etcd

// A real etcd of one member, with its data in a directory of its own.
class EtcdServer {
 public:
  EtcdServer() : client_port_(FreePort()), peer_port_(FreePort()) { Start(); }
  ~EtcdServer() { Stop(); }

  static bool Installed() { return ::access("/usr/bin/etcd", X_OK) == 0; }
  std::string url() const { return "http://127.0.0.1:" + std::to_string(client_port_); }
  EtcdClient Client() const { return std::move(EtcdClient::Create(url())).value(); }

  bool WaitUntilReady() const {
    EtcdClient client = Client();
    return Eventually([&client] { return client.KeysAfter("/x/", 1).ok(); });
  }
  void Start() {
    const std::string peer = "http://127.0.0.1:" + std::to_string(peer_port_);
    const std::string data = dir_.path() + "/data";
    const std::string log = dir_.path() + "/log";
    const std::string cluster = "n=" + peer;
    const std::string client = url();
    std::vector<std::string> words = {"etcd",  "--name",
                                      "n",     "--data-dir",
                                      data,    "--listen-client-urls",
                                      client,  "--advertise-client-urls",
                                      client,  "--listen-peer-urls",
                                      peer,    "--initial-advertise-peer-urls",
                                      peer,    "--initial-cluster",
                                      cluster, "--logger",
                                      "zap",   "--log-outputs",
                                      log};
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    process_ = ::fork();
    if (process_ == 0) {
      ::execv("/usr/bin/etcd", argv.data());
      ::_exit(127);
    }
  }
  void Signal(int signal) const { ::kill(process_, signal); }
  void Stop() {
    if (process_ > 0) {
      Signal(SIGKILL);
      ::waitpid(process_, nullptr, 0);
    }
    process_ = 0;
  }

 private:
  // Of a link that is closed again: another process may take it, but hardly does.
  static uint16_t FreePort() {
    TcpControlConfig config;
    config.listen = HostPort{"127.0.0.1", 0};
    return std::move(TcpControlLink::Create(config)).value()->port();
  }

  const TestDir dir_;
  const uint16_t client_port_;
  const uint16_t peer_port_;
  pid_t process_ = 0;
};

TEST(EtcdClient, RefusesAddressesByName) {
  EXPECT_TRUE(EtcdClient::Create("http://a:2379,http://b:2379/").ok());
  EXPECT_THAT(EtcdClient::Create("https://a:2379").status().message(), HasSubstr("plain http"));
  for (const char* wrong : {"", "a:2379", "http://a", "http://a:2379,", "ftp://a:1"}) {
    EXPECT_EQ(EtcdClient::Create(wrong).status().code(), StatusCode::kInvalidArgument) << wrong;
  }
}

TEST(EtcdClient, SaysWhenNobodyAnswers) {
  EtcdClient client = std::move(EtcdClient::Create("http://127.0.0.1:1")).value();
  EXPECT_EQ(client.GrantLease(5).status().code(), StatusCode::kUnavailable);
  EtcdMembershipSource source(std::move(client), EtcdPrefix("model"));
  EXPECT_EQ(source.Look().status().code(), StatusCode::kUnavailable);
}

class EtcdMembership : public testing::Test {
 protected:
  void SetUp() override {
    if (!EtcdServer::Installed()) {
      GTEST_SKIP() << "etcd is not installed: apt-get install etcd-server";
    }
    server_ = std::make_unique<EtcdServer>();
    ASSERT_TRUE(server_->WaitUntilReady());
  }
  std::unique_ptr<Membership> Follow(const std::string& model) const {
    return std::make_unique<Membership>(
        std::vector<std::string>(),
        OneSource(std::make_unique<EtcdMembershipSource>(server_->Client(), EtcdPrefix(model))),
        kOften, std::function<void()>());
  }
  std::unique_ptr<EtcdRegistration> Register(const std::string& model, const char* address) const {
    return std::make_unique<EtcdRegistration>(server_->Client(), EtcdPrefix(model), address);
  }

  std::unique_ptr<EtcdServer> server_;
};

TEST_F(EtcdMembership, FollowsNodesThatComeAndGo) {
  const auto decode = Follow("m");
  ASSERT_TRUE(Becomes(*decode, {}));
  auto first = Register("m", "127.0.0.1:9001");
  ASSERT_TRUE(Becomes(*decode, {"127.0.0.1:9001"}));
  auto second = Register("m", "127.0.0.1:9002");
  ASSERT_TRUE(Becomes(*decode, {"127.0.0.1:9001", "127.0.0.1:9002"}));
  const auto other = Register("another model", "127.0.0.1:9003");
  ASSERT_TRUE(Eventually([&] { return other->registered(); }));
  first.reset();
  EXPECT_TRUE(Becomes(*decode, {"127.0.0.1:9002"})) << "at once, not when the lease runs out";
}

TEST_F(EtcdMembership, DropsANodeWhoseLeaseRunsOut) {
  EtcdClient client = server_->Client();
  const auto lease = client.GrantLease(1);
  ASSERT_TRUE(lease.ok()) << lease.status().ToString();
  ASSERT_TRUE(client.Put(EtcdPrefix("m") + "127.0.0.1:9001", "", *lease).ok());
  const auto decode = Follow("m");
  ASSERT_TRUE(Becomes(*decode, {"127.0.0.1:9001"}));
  ASSERT_TRUE(client.KeepLeaseAlive(*lease).ok());
  EXPECT_TRUE(Becomes(*decode, {})) << "nobody keeps it alive";
  EXPECT_EQ(client.KeepLeaseAlive(*lease).code(), StatusCode::kNotFound);
  EXPECT_EQ(client.Put("/x/y", "", *lease).code(), StatusCode::kNotFound);
}

TEST_F(EtcdMembership, SurvivesARestartOfEtcd) {
  const auto decode = Follow("m");
  const auto node = Register("m", "127.0.0.1:9001");
  ASSERT_TRUE(Becomes(*decode, {"127.0.0.1:9001"}));
  server_->Stop();
  ASSERT_TRUE(Eventually([&] { return !node->registered(); }));
  EXPECT_FALSE(decode->TakeChange().has_value()) << "the nodes are still there";
  server_->Start();
  ASSERT_TRUE(server_->WaitUntilReady());
  EXPECT_TRUE(Eventually([&] { return node->registered(); }));
  std::this_thread::sleep_for(milliseconds(100));
  const auto change = decode->TakeChange();
  EXPECT_TRUE(!change.has_value() || change->size() == 1);
}

TEST_F(EtcdMembership, RegistersAgainWhatSomebodyRemoved) {
  const EtcdRegistration node(server_->Client(), EtcdPrefix("m"), "127.0.0.1:9001", 3);
  ASSERT_TRUE(Eventually([&node] { return node.registered(); }));
  EtcdClient client = server_->Client();
  const auto lease = client.GrantLease(1);
  ASSERT_TRUE(lease.ok());
  ASSERT_TRUE(client.Put(EtcdPrefix("m") + "127.0.0.1:9001", "", *lease).ok());
  ASSERT_TRUE(client.RevokeLease(*lease).ok());  // and with it the key
  const auto decode = Follow("m");
  ASSERT_TRUE(Becomes(*decode, {}));
  EXPECT_TRUE(Becomes(*decode, {"127.0.0.1:9001"}));
}

TEST_F(EtcdMembership, RegistersAgainWhenEtcdStoodStill) {
  const EtcdRegistration node(server_->Client(), EtcdPrefix("m"), "127.0.0.1:9001", 1);
  ASSERT_TRUE(Eventually([&node] { return node.registered(); }));
  server_->Signal(SIGSTOP);
  ASSERT_TRUE(Eventually([&node] { return !node.registered(); }));
  std::this_thread::sleep_for(milliseconds(1500));
  server_->Signal(SIGCONT);
  ASSERT_TRUE(Eventually([&node] { return node.registered(); }));
  EXPECT_TRUE(Becomes(*Follow("m"), {"127.0.0.1:9001"}));
}

TEST_F(EtcdMembership, IgnoresKeysThatAreNoAddress) {
  EtcdClient client = server_->Client();
  const auto lease = client.GrantLease(5);
  ASSERT_TRUE(lease.ok());
  for (const char* key : {"", "nonsense", "a/b:1", "127.0.0.1:9001"}) {
    ASSERT_TRUE(client.Put(EtcdPrefix("m") + key, std::string("\0\xff", 2), *lease).ok());
  }
  EXPECT_TRUE(Becomes(*Follow("m"), {"127.0.0.1:9001"}));
}

}  // namespace
}  // namespace tandem
