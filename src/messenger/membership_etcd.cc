#include "messenger/membership_etcd.h"

#include <openssl/evp.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>
#include <charconv>
#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/log.h"

namespace tandem {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using asio::ip::tcp;
using boost::system::error_code;
using Json = nlohmann::json;

constexpr auto kCallTimeout = std::chrono::seconds(2);
constexpr size_t kAnswerBytesMax = size_t{1} << 20;
constexpr size_t kMaxMembers = 16;
constexpr int64_t kMaxKeys = static_cast<int64_t>(Membership::kMaxNodes);
// gRPC's NOT_FOUND, as the gateway reports it.
constexpr int kGrpcNotFound = 5;

// ---- One HTTP call

// A POST and its answer, one asynchronous step after the other so that one deadline holds for all.
class HttpCall {
 public:
  HttpCall(const HostPort& server, const std::string& path, const std::string& body)
      : server_(server), resolver_(io_), stream_(io_) {
    request_.method(http::verb::post);
    request_.target(path);
    request_.set(http::field::host, server.ToString());
    request_.set(http::field::content_type, "application/json");
    request_.body() = body;
    request_.prepare_payload();
    response_.body_limit(kAnswerBytesMax);
  }

  // The body, and *status.
  Result<std::string> Run(unsigned* status) {
    resolver_.async_resolve(
        server_.host, std::to_string(server_.port),
        [this](const error_code& error, const tcp::resolver::results_type& found) {
          if (Ended(error)) return;
          stream_.async_connect(found, [this](const error_code& failed, const tcp::endpoint&) {
            if (!Ended(failed)) Exchange();
          });
        });
    io_.run_for(kCallTimeout);
    if (!done_) return UnavailableError("no answer from {}", server_.ToString());
    if (error_) return UnavailableError("{}: {}", server_.ToString(), error_.message());
    *status = response_.get().result_int();
    return std::move(response_.get().body());
  }

 private:
  void Exchange() {
    http::async_write(stream_, request_, [this](const error_code& error, size_t) {
      if (Ended(error)) return;
      http::async_read(stream_, buffer_, response_, [this](const error_code& failed, size_t) {
        if (!Ended(failed)) done_ = true;
      });
    });
  }
  bool Ended(const error_code& error) {
    if (!error) return false;
    error_ = error;
    done_ = true;
    return true;
  }

  const HostPort server_;
  http::request<http::string_body> request_;
  http::response_parser<http::string_body> response_;
  beast::flat_buffer buffer_{kAnswerBytesMax};
  bool done_ = false;
  error_code error_;
  asio::io_context io_;  // its handlers refer to the members above
  tcp::resolver resolver_;
  beast::tcp_stream stream_;
};

// ---- The JSON of the gateway: bytes in base64, 64-bit integers as strings

std::string ToBase64(std::string_view bytes) {
  std::string out(4 * ((bytes.size() + 2) / 3) + 1, '\0');
  const int size = EVP_EncodeBlock(reinterpret_cast<unsigned char*>(out.data()),
                                   reinterpret_cast<const unsigned char*>(bytes.data()),
                                   static_cast<int>(bytes.size()));
  out.resize(static_cast<size_t>(size));
  return out;
}

std::optional<std::string> FromBase64(const std::string& text) {
  if (text.size() % 4 != 0) return std::nullopt;
  std::string out(text.size() / 4 * 3, '\0');
  const int size = EVP_DecodeBlock(reinterpret_cast<unsigned char*>(out.data()),
                                   reinterpret_cast<const unsigned char*>(text.data()),
                                   static_cast<int>(text.size()));
  if (size < 0) return std::nullopt;
  size_t padding = 0;
  while (padding < 2 && padding < text.size() && text[text.size() - 1 - padding] == '=') ++padding;
  out.resize(static_cast<size_t>(size) - padding);
  return out;
}

int64_t IntegerAt(const Json& object, const char* name) {
  const auto at = object.find(name);
  if (at == object.end()) return 0;
  if (at->is_number_integer()) return at->get<int64_t>();
  if (!at->is_string()) return 0;
  const auto& text = at->get_ref<const std::string&>();
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? value : 0;
}

std::string MessageOf(const Json& answer) {
  for (const char* name : {"message", "error"}) {
    const auto at = answer.find(name);
    if (at != answer.end() && at->is_string()) return at->get<std::string>().substr(0, 200);
  }
  return "an error without a message";
}

Result<Json> ParseAnswer(std::string_view text) {
  Json answer = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!answer.is_object()) return DataLossError("the answer is not etcd's JSON");
  return answer;
}

// The first key that is greater than all that begin with `prefix`.
std::string AfterPrefix(std::string prefix) {
  ++prefix.back();  // the prefix ends with '/'
  return prefix;
}

Result<HostPort> ParseUrl(std::string_view url) {
  constexpr std::string_view kScheme = "http://";
  if (url.starts_with("https://")) {
    return InvalidArgumentError("{}: etcd is asked over plain http; use its http address", url);
  }
  if (!url.starts_with(kScheme)) {
    return InvalidArgumentError("'{}' is no address of etcd: write http://HOST:PORT", url);
  }
  url.remove_prefix(kScheme.size());
  if (url.ends_with('/')) url.remove_suffix(1);
  return ParseHostPort(url);
}

}  // namespace

Result<EtcdClient> EtcdClient::Create(std::string_view urls) {
  EtcdClient client;
  client.text_ = std::string(urls);
  for (size_t begin = 0; begin <= urls.size();) {
    const size_t end = std::min(urls.find(',', begin), urls.size());
    TANDEM_ASSIGN_OR_RETURN(HostPort member, ParseUrl(urls.substr(begin, end - begin)));
    client.members_.push_back(std::move(member));
    begin = end + 1;
  }
  if (client.members_.size() > kMaxMembers) {
    return InvalidArgumentError("{} etcd members: at most {}", client.members_.size(), kMaxMembers);
  }
  return client;
}

Result<std::string> EtcdClient::Call(const std::string& path, const std::string& body) {
  Status last = UnavailableError("no member");
  for (size_t i = 0; i < members_.size(); ++i, next_ = (next_ + 1) % members_.size()) {
    unsigned http_status = 0;
    Result<std::string> answer = HttpCall(members_[next_], path, body).Run(&http_status);
    if (!answer.ok()) {
      last = answer.status();
      continue;
    }
    if (http_status == 200) return answer;
    const Json error = Json::parse(*answer, nullptr, /*allow_exceptions=*/false);
    if (!error.is_object()) {
      last = DataLossError("{}: HTTP status {}, not etcd's v3 API", members_[next_].ToString(),
                           http_status);
      continue;
    }
    if (IntegerAt(error, "code") == kGrpcNotFound) return NotFoundError("{}", MessageOf(error));
    last = UnavailableError("{}: {}", members_[next_].ToString(), MessageOf(error));
  }
  return last;
}

Result<int64_t> EtcdClient::GrantLease(int64_t ttl_s) {
  TANDEM_ASSIGN_OR_RETURN(const std::string text,
                          Call("/v3/lease/grant", Json{{"TTL", std::to_string(ttl_s)}}.dump()));
  TANDEM_ASSIGN_OR_RETURN(const Json answer, ParseAnswer(text));
  const int64_t lease = IntegerAt(answer, "ID");
  if (lease == 0) return DataLossError("etcd granted no lease");
  return lease;
}

Status EtcdClient::KeepLeaseAlive(int64_t lease) {
  TANDEM_ASSIGN_OR_RETURN(const std::string text,
                          Call("/v3/lease/keepalive", Json{{"ID", std::to_string(lease)}}.dump()));
  TANDEM_ASSIGN_OR_RETURN(const Json answer, ParseAnswer(text));
  const auto result = answer.find("result");  // one message of a stream
  if (result == answer.end() || !result->is_object()) {
    return DataLossError("etcd did not say whether the lease lives");
  }
  if (IntegerAt(*result, "TTL") <= 0) return NotFoundError("the lease has run out");
  return OkStatus();
}

Status EtcdClient::RevokeLease(int64_t lease) {
  return Call("/v3/lease/revoke", Json{{"ID", std::to_string(lease)}}.dump()).status();
}

Status EtcdClient::Put(std::string_view key, std::string_view value, int64_t lease) {
  return Call("/v3/kv/put", Json{{"key", ToBase64(key)},
                                 {"value", ToBase64(value)},
                                 {"lease", std::to_string(lease)}}
                                .dump())
      .status();
}

Result<std::vector<std::string>> EtcdClient::KeysAfter(std::string_view prefix, int64_t limit) {
  TANDEM_ASSIGN_OR_RETURN(
      const std::string text,
      Call("/v3/kv/range", Json{{"key", ToBase64(prefix)},
                                {"range_end", ToBase64(AfterPrefix(std::string(prefix)))},
                                {"keys_only", true},
                                {"limit", std::to_string(limit)}}
                               .dump()));
  return ParseEtcdKeys(text, prefix);
}

Result<std::vector<std::string>> ParseEtcdKeys(std::string_view text, std::string_view prefix) {
  TANDEM_ASSIGN_OR_RETURN(const Json answer, ParseAnswer(text));
  std::vector<std::string> keys;
  const auto found = answer.find("kvs");
  if (found == answer.end()) {
    if (!answer.contains("header")) return DataLossError("the answer is not that of etcd");
    return keys;
  }
  if (!found->is_array()) return DataLossError("etcd's list of keys is none");
  for (const Json& entry : *found) {
    const auto key = entry.is_object() ? entry.find("key") : entry.end();
    if (!entry.is_object() || key == entry.end() || !key->is_string()) continue;
    const auto bytes = FromBase64(key->get_ref<const std::string&>());
    if (bytes.has_value() && bytes->starts_with(prefix))
      keys.push_back(bytes->substr(prefix.size()));
  }
  return keys;
}

std::string EtcdPrefix(std::string_view model) { return fmt::format("/tandem/{}/prefill/", model); }

EtcdMembershipSource::EtcdMembershipSource(EtcdClient client, std::string prefix)
    : client_(std::move(client)), prefix_(std::move(prefix)) {}

Result<std::vector<std::string>> EtcdMembershipSource::Look() {
  return client_.KeysAfter(prefix_, kMaxKeys);
}

EtcdRegistration::EtcdRegistration(EtcdClient client, const std::string& prefix,
                                   std::string address, int64_t lease_s)
    : client_(std::move(client)),
      key_(prefix + address),
      address_(std::move(address)),
      lease_s_(lease_s) {
  thread_ = std::thread([this] { Loop(); });
}

EtcdRegistration::~EtcdRegistration() {
  {
    MutexLock lock(mutex_);
    ending_ = true;
    ending_changed_.NotifyOne();
  }
  thread_.join();
}

bool EtcdRegistration::registered() const {
  MutexLock lock(mutex_);
  return registered_;
}

void EtcdRegistration::Loop() {
  bool failing = false;
  for (;;) {
    const Status status = Renew();
    if (!status.ok() && !failing) {
      LogWarning("etcd at {}: {}; {} is not registered", client_.urls(), status.message(),
                 address_);
    }
    if (status.ok() && failing) {
      LogWarning("etcd at {}: {} is registered again", client_.urls(), address_);
    }
    failing = !status.ok();
    MutexLock lock(mutex_);
    registered_ = status.ok();
    // Twice before the lease runs out; sooner when there is none.
    const TimeNs third = lease_s_ * kNsPerS / 3;
    const TimeNs wait = failing ? std::min(kNsPerS, third) : third;
    if (!ending_) ending_changed_.WaitFor(mutex_, wait);
    if (ending_) break;
  }
  if (lease_ == 0) return;
  if (const Status status = client_.RevokeLease(lease_); !status.ok()) {
    LogWarning("etcd at {}: {}; {} stays registered for {} s", client_.urls(), status.message(),
               address_, lease_s_);
  }
}

Status EtcdRegistration::Renew() {
  if (lease_ != 0) {
    Status status = client_.KeepLeaseAlive(lease_);
    // Put again each time: somebody may have removed it, or put it under another lease.
    if (status.ok()) status = client_.Put(key_, TANDEM_VERSION, lease_);
    if (status.code() != StatusCode::kNotFound) return status;
    lease_ = 0;
  }
  TANDEM_ASSIGN_OR_RETURN(lease_, client_.GrantLease(lease_s_));
  return client_.Put(key_, TANDEM_VERSION, lease_);
}

}  // namespace tandem
