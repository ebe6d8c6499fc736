#include "messenger/tcp_control_auth.h"

#include <fcntl.h>
#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/params.h>
#include <openssl/rand.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <initializer_list>
#include <utility>

#include "base/check.h"

namespace tandem {
namespace {

// What a code is for; with the role it makes every use of the secret another function.
constexpr std::string_view kProofLabel = "tandem hand-off 1 proof ";
constexpr std::string_view kFramesLabel = "tandem hand-off 1 frames ";

std::string_view NameOfRole(LinkRole role) {
  return role == LinkRole::kConnector ? "connector" : "listener";
}

template <size_t N>
std::string_view Bytes(const std::array<uint8_t, N>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), N};
}

struct MacDeleter {
  void operator()(EVP_MAC* mac) const { EVP_MAC_free(mac); }
  void operator()(EVP_MAC_CTX* context) const { EVP_MAC_CTX_free(context); }
};

// HMAC-SHA256 over the concatenation of `parts`. It fails only for want of memory or of the
// algorithm, which every OpenSSL 3 has.
LinkProof HmacSha256(std::string_view key, std::initializer_list<std::string_view> parts) {
  static const std::unique_ptr<EVP_MAC, MacDeleter> hmac(EVP_MAC_fetch(nullptr, "HMAC", nullptr));
  TANDEM_CHECK(hmac != nullptr);
  const std::unique_ptr<EVP_MAC_CTX, MacDeleter> context(EVP_MAC_CTX_new(hmac.get()));
  TANDEM_CHECK(context != nullptr);
  char digest[] = "SHA256";
  const OSSL_PARAM params[] = {OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, digest, 0),
                               OSSL_PARAM_construct_end()};
  static constexpr unsigned char kNoKey = 0;  // a null key would mean "as before"
  const auto* key_bytes =
      key.empty() ? &kNoKey : reinterpret_cast<const unsigned char*>(key.data());
  TANDEM_CHECK_EQ(EVP_MAC_init(context.get(), key_bytes, key.size(), params), 1);
  for (const std::string_view part : parts) {
    TANDEM_CHECK_EQ(
        EVP_MAC_update(context.get(), reinterpret_cast<const unsigned char*>(part.data()),
                       part.size()),
        1);
  }
  LinkProof out;
  size_t size = 0;
  TANDEM_CHECK_EQ(EVP_MAC_final(context.get(), out.data(), &size, out.size()), 1);
  TANDEM_CHECK_EQ(size, out.size());
  return out;
}

// The whole of a small regular file that not everybody may read.
Result<std::string> ReadSecretFile(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) {
    if (errno == ENOENT) return NotFoundError("{}: no such file", path);
    return FailedPreconditionError("{}: {}", path, std::strerror(errno));
  }
  struct Closer {
    int fd;
    ~Closer() { ::close(fd); }
  } closer{fd};
  struct stat state {};
  if (::fstat(fd, &state) != 0 || !S_ISREG(state.st_mode)) {
    return FailedPreconditionError("{}: not a regular file", path);
  }
  if ((state.st_mode & S_IRWXO) != 0) {
    return FailedPreconditionError("{}: every user may use this key; run chmod o= {}", path, path);
  }
  std::string text(LinkSecret::kMostBytes + 64, '\0');  // with some room for blank space
  size_t size = 0;
  while (size < text.size()) {
    const ssize_t got = ::read(fd, text.data() + size, text.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return FailedPreconditionError("{}: {}", path, std::strerror(errno));
    if (got == 0) break;
    size += static_cast<size_t>(got);
  }
  text.resize(size);
  return text;
}

}  // namespace

Result<LinkNonce> NewLinkNonce() {
  LinkNonce nonce;
  if (RAND_bytes(nonce.data(), static_cast<int>(nonce.size())) != 1) {
    return InternalError("the system gives no random numbers");
  }
  return nonce;
}

FrameTag FrameTagger::Next(std::string_view frame) {
  std::array<uint8_t, 8> place;
  for (size_t i = 0; i < place.size(); ++i) place[i] = static_cast<uint8_t>(frames_ >> (8 * i));
  ++frames_;
  const LinkProof whole = HmacSha256(Bytes(key_), {Bytes(place), frame});
  FrameTag tag;
  std::copy_n(whole.begin(), tag.size(), tag.begin());
  return tag;
}

bool FrameTagger::CheckNext(std::string_view frame, const FrameTag& tag) {
  const FrameTag right = Next(frame);
  return CRYPTO_memcmp(right.data(), tag.data(), tag.size()) == 0;
}

Result<LinkSecret> LinkSecret::Create(std::string key) {
  if (key.size() < kLeastBytes || key.size() > kMostBytes) {
    return InvalidArgumentError(
        "the hand-off key has {} characters: use {} to {}, for instance those of openssl rand "
        "-hex 32",
        key.size(), kLeastBytes, kMostBytes);
  }
  LinkSecret secret;
  secret.key_ = std::move(key);
  return secret;
}

Result<LinkSecret> LinkSecret::FromFile(const std::string& path) {
  TANDEM_ASSIGN_OR_RETURN(std::string text, ReadSecretFile(path));
  constexpr std::string_view kBlank = " \t\r\n";
  const size_t begin = text.find_first_not_of(kBlank);
  if (begin == std::string::npos) return InvalidArgumentError("{}: holds no key", path);
  text = text.substr(begin, text.find_last_not_of(kBlank) + 1 - begin);
  auto secret = Create(std::move(text));
  if (!secret.ok()) return secret.status().WithContext(path);
  return secret;
}

LinkProof LinkSecret::Prove(LinkRole role, const LinkNonces& nonces) const {
  return HmacSha256(
      key_, {kProofLabel, NameOfRole(role), Bytes(nonces.connector), Bytes(nonces.listener)});
}

bool LinkSecret::Check(LinkRole role, const LinkNonces& nonces, const LinkProof& proof) const {
  const LinkProof right = Prove(role, nonces);
  return CRYPTO_memcmp(right.data(), proof.data(), proof.size()) == 0;
}

FrameTagger LinkSecret::TaggerOf(LinkRole sender, const LinkNonces& nonces) const {
  return FrameTagger(HmacSha256(
      key_, {kFramesLabel, NameOfRole(sender), Bytes(nonces.connector), Bytes(nonces.listener)}));
}

}  // namespace tandem
