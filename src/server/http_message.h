// What: an HTTP request and a response as plain values, and the small vocabulary both sides need.
// Not here: bytes on a socket (http_connection.h), what a path means (api.h).
// Threads: values and pure functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tandem {

struct HttpHeader {
  std::string name;
  std::string value;
};

struct HttpRequest {
  std::string method;  // as sent: "GET"
  std::string path;    // as sent, still percent-encoded, without the query
  std::string query;   // after '?', may be empty
  std::vector<HttpHeader> headers;
  std::string body;

  // The first header of that name (any case), or empty.
  std::string_view Header(std::string_view name) const;
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  std::vector<HttpHeader> headers;  // beside those of framing, which the connection writes
  std::string body;
};

// "Not Found" for 404; "Unknown" for a number this server never sends.
std::string_view HttpReason(int status);

// "http://host:80/a?b" -> "/a?b", as proxies write it; "/a" and "*" stay as they are.
std::string_view WithoutOrigin(std::string_view target);

// "a%20b" -> "a b". None when an escape is broken.
std::optional<std::string> PercentDecode(std::string_view text);

}  // namespace tandem
