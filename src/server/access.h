// What: who may use the API: bearer keys, and the pages of which origins (CORS).
// Not here: which paths are open to all (api.cc).
// Threads: immutable after Create.
// Cost: a comparison takes the same time whatever the key, for all keys.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "server/api_error.h"
#include "server/http_message.h"

namespace tandem {

class AccessPolicy {
 public:
  // As ServerConfig::api_keys and cors_origins. INVALID_ARGUMENT names the one that is wrong.
  static Result<AccessPolicy> Create(std::vector<std::string> api_keys,
                                     std::vector<std::string> cors_origins);

  // 401 unless the request has a key, where one is needed.
  std::optional<ApiError> CheckKey(const HttpRequest& request) const;
  bool needs_key() const { return !api_keys_.empty(); }
  // Tells requests with different keys apart; drawn anew by every process, so that it says nothing
  // of the key. Empty where no key is needed. Requires that CheckKey passed.
  std::string TenantOf(const HttpRequest& request) const;

  // The headers that let the page which sent the request read the answer; none for others.
  std::vector<HttpHeader> CorsHeaders(const HttpRequest& request) const;
  // The same for an answer to what never became a request.
  std::vector<HttpHeader> CorsHeaders() const;
  // What a browser asks before the request itself, and its answer.
  bool IsPreflight(const HttpRequest& request) const;
  HttpResponse AnswerPreflight(const HttpRequest& request, std::string_view methods) const;

 private:
  AccessPolicy(std::vector<std::string> api_keys, std::vector<std::string> cors_origins);

  // Which of the keys the request has.
  std::optional<size_t> FindKey(const HttpRequest& request) const;

  std::vector<std::string> api_keys_;  // each once
  std::vector<std::string> tenants_;   // of each key
  std::vector<std::string> cors_origins_;
  bool any_origin_ = false;
};

// Without a difference in time between a near miss and a far one.
bool EqualInConstantTime(std::string_view secret, std::string_view guess);

}  // namespace tandem
