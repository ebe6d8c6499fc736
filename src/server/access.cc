#include "server/access.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <utility>

#include "base/check.h"

namespace tandem {
namespace {

constexpr std::string_view kScheme = "bearer ";
// Of a preflight's answer, in seconds: how long a browser need not ask again.
constexpr std::string_view kPreflightSeconds = "600";

// What a page's script may read of an answer beside the body.
constexpr std::string_view kExposedHeaders =
    "retry-after, retry-after-ms, x-should-retry, x-retry-elsewhere";

// A header's value can carry it, and it is one word.
bool IsVisible(std::string_view text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c < 0x7F; });
}

// 128 random bits as text.
std::string NewTenant() {
  std::random_device device;
  std::string text;
  for (int i = 0; i < 4; ++i) text += fmt::format("{:08x}", device());
  return text;
}

bool StartsWithIgnoringCase(std::string_view text, std::string_view lower) {
  if (text.size() < lower.size()) return false;
  return std::equal(lower.begin(), lower.end(), text.begin(), [](char a, char b) {
    return a == (b >= 'A' && b <= 'Z' ? static_cast<char>(b + ('a' - 'A')) : b);
  });
}

ApiError KeyError(std::string message) {
  ApiError error;
  error.http_status = 401;
  error.code = "invalid_api_key";
  error.message = std::move(message);
  return error;
}

}  // namespace

bool EqualInConstantTime(std::string_view secret, std::string_view guess) {
  // Every byte of the guess is looked at, whatever those before it were.
  size_t difference = secret.size() ^ guess.size();
  for (size_t i = 0; i < guess.size(); ++i) {
    const char expected = secret.empty() ? '\0' : secret[i % secret.size()];
    difference |= static_cast<uint8_t>(expected ^ guess[i]);
  }
  return difference == 0;
}

Result<AccessPolicy> AccessPolicy::Create(std::vector<std::string> api_keys,
                                          std::vector<std::string> cors_origins) {
  for (const std::string& key : api_keys) {
    if (!IsVisible(key)) {
      return InvalidArgumentError(
          "an API key is empty or has blanks or characters other than ASCII: no client could send "
          "it");
    }
  }
  for (const std::string& origin : cors_origins) {
    const bool plain = IsVisible(origin) && origin.back() != '/' &&
                       (origin.find("://") != std::string::npos || origin == "null");
    if (origin != "*" && !plain) {
      return InvalidArgumentError(
          "'{}' is no origin: use one like https://host:port, without a path, or *", origin);
    }
  }
  return AccessPolicy(std::move(api_keys), std::move(cors_origins));
}

AccessPolicy::AccessPolicy(std::vector<std::string> api_keys, std::vector<std::string> cors_origins)
    : api_keys_(std::move(api_keys)),
      cors_origins_(std::move(cors_origins)),
      any_origin_(std::find(cors_origins_.begin(), cors_origins_.end(), "*") !=
                  cors_origins_.end()) {
  std::sort(api_keys_.begin(), api_keys_.end());
  api_keys_.erase(std::unique(api_keys_.begin(), api_keys_.end()), api_keys_.end());
  for (size_t i = 0; i < api_keys_.size(); ++i) tenants_.push_back(NewTenant());
}

std::optional<ApiError> AccessPolicy::CheckKey(const HttpRequest& request) const {
  if (api_keys_.empty()) return std::nullopt;
  const std::string_view header = request.Header("Authorization");
  if (!StartsWithIgnoringCase(header, kScheme)) {
    return KeyError("No API key was given: send it as 'Authorization: Bearer KEY'.");
  }
  if (FindKey(request)) return std::nullopt;
  return KeyError("The API key is wrong.");
}

std::optional<size_t> AccessPolicy::FindKey(const HttpRequest& request) const {
  const std::string_view header = request.Header("Authorization");
  if (!StartsWithIgnoringCase(header, kScheme)) return std::nullopt;
  std::string_view guess = header.substr(kScheme.size());
  guess.remove_prefix(std::min(guess.find_first_not_of(' '), guess.size()));
  std::optional<size_t> found;
  for (size_t i = 0; i < api_keys_.size(); ++i) {
    if (EqualInConstantTime(api_keys_[i], guess)) found = i;
  }
  return found;
}

std::string AccessPolicy::TenantOf(const HttpRequest& request) const {
  if (api_keys_.empty()) return {};
  const std::optional<size_t> key = FindKey(request);
  TANDEM_CHECK(key.has_value());
  return tenants_[*key];
}

std::vector<HttpHeader> AccessPolicy::CorsHeaders(const HttpRequest& request) const {
  if (any_origin_) return CorsHeaders();
  if (cors_origins_.empty()) return {};
  // Whoever caches the answer must ask again for another origin, also where there was none.
  std::vector<HttpHeader> headers = {{"Vary", "Origin"}};
  const std::string_view origin = request.Header("Origin");
  if (std::find(cors_origins_.begin(), cors_origins_.end(), origin) != cors_origins_.end()) {
    headers.push_back({"Access-Control-Allow-Origin", std::string(origin)});
    headers.push_back({"Access-Control-Expose-Headers", std::string(kExposedHeaders)});
  }
  return headers;
}

std::vector<HttpHeader> AccessPolicy::CorsHeaders() const {
  if (!any_origin_) return {};
  return {{"Access-Control-Allow-Origin", "*"},
          {"Access-Control-Expose-Headers", std::string(kExposedHeaders)}};
}

bool AccessPolicy::IsPreflight(const HttpRequest& request) const {
  return !cors_origins_.empty() && request.method == "OPTIONS" &&
         !request.Header("Origin").empty() &&
         !request.Header("Access-Control-Request-Method").empty();
}

HttpResponse AccessPolicy::AnswerPreflight(const HttpRequest& request,
                                           std::string_view methods) const {
  HttpResponse response;
  response.status = 204;
  response.headers = {{"Allow", std::string(methods)},
                      {"Access-Control-Allow-Methods", std::string(methods)},
                      {"Access-Control-Max-Age", std::string(kPreflightSeconds)}};
  // Clients add headers of their own (x-stainless-...): whatever is asked for is allowed. The HTTP
  // parser has let no line feed into it.
  const std::string_view asked = request.Header("Access-Control-Request-Headers");
  response.headers.push_back({"Access-Control-Allow-Headers",
                              asked.empty() ? "authorization, content-type" : std::string(asked)});
  return response;
}

}  // namespace tandem
