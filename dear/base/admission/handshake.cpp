#include "dear/base/admission/handshake.h"

#include <cerrno>
#include <charconv>
#include <sys/random.h>
#include <vector>

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "dear/base/admission/message.h"
#include "dear/base/vocabulary/error.h"

namespace dear::admission {
namespace {

constexpr std::size_t kNonceBytes = 32;
constexpr std::size_t kProofBytes = 32;

std::string hmac(std::string_view key, std::string_view text) {
  std::string result(kProofBytes, '\0');
  unsigned int length = 0;
  if (::HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
             reinterpret_cast<const unsigned char*>(text.data()), text.size(),
             reinterpret_cast<unsigned char*>(result.data()), &length) == nullptr ||
      length != kProofBytes) {
    throw TransportError(
        "OpenSSL computes no HMAC-SHA256, by which ranks prove who they are: check its build");
  }
  return result;
}

std::optional<int> number_in(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

std::string job_key(std::string_view secret, std::string_view job) {
  return hmac(secret, joined({"DeAR job", std::string(job)}));
}

std::string derived_key(std::string_view key, std::string_view purpose, std::string_view occasion) {
  return hmac(key, joined({"DeAR key", std::string(purpose), std::string(occasion)}));
}

std::string fresh_nonce() {
  std::string nonce(kNonceBytes, '\0');
  if (::getrandom(nonce.data(), nonce.size(), 0) != static_cast<ssize_t>(nonce.size())) {
    throw TransportError(with_errno("cannot draw random bytes to prove who this rank is", errno));
  }
  return nonce;
}

std::string Handshake::proof(std::string_view side) const {
  return hmac(key, joined({"DeAR proof", std::string(side), std::to_string(host_rank), host_nonce,
                           std::to_string(guest_rank), std::to_string(size), guest_nonce}));
}

bool equal_secrets(std::string_view a, std::string_view b) {
  return a.size() == b.size() && ::CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

std::string hello_of(const Handshake& handshake) {
  return joined({std::to_string(handshake.guest_rank), std::to_string(handshake.size), handshake.guest_nonce,
                 handshake.guest_proof()});
}

std::optional<std::string> read_hello(std::string_view text, Handshake& handshake) {
  const auto parts = parted(text);
  if (!parts || parts->size() != 4 || (*parts)[2].size() != kNonceBytes) return std::nullopt;
  const auto rank = number_in((*parts)[0]);
  const auto size = number_in((*parts)[1]);
  if (!rank || !size) return std::nullopt;
  handshake.guest_rank = *rank;
  handshake.size = *size;
  handshake.guest_nonce = (*parts)[2];
  return (*parts)[3];
}

}  // namespace dear::admission
