#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace dear::admission {

// [Note: handshake] Whoever listens says a nonce; whoever connects answers with one of its own and who it is,
// signed; whoever listens signs in return. A signature is HMAC-SHA256 (RFC 2104, FIPS 180-4) of all that was
// said, of the purpose and of the side, under a key of the job. So a stranger learns nothing, what was heard
// elsewhere is of no use, and neither side speaks to one that does not have the key. What follows on the
// connection is neither signed nor encrypted.

// The key of a job: of its secret ("" for none), and of the texts that tell it from others. Without a secret
// the key is no more secret than these texts.
std::string job_key(std::string_view secret, std::string_view job);
// A key made of another, for one purpose and one occasion.
std::string derived_key(std::string_view key, std::string_view purpose, std::string_view occasion);
// 32 random bytes. TransportError where the kernel has none.
std::string fresh_nonce();

// One connection, as both sides name it.
struct Handshake {
  std::string_view key;
  int host_rank = 0;
  std::string host_nonce{};
  int guest_rank = 0;
  int size = 0;
  std::string guest_nonce{};

  [[nodiscard]] std::string guest_proof() const { return proof("guest"); }
  [[nodiscard]] std::string host_proof() const { return proof("host"); }

 private:
  [[nodiscard]] std::string proof(std::string_view side) const;
};

// Whether two texts are equal, in a time that says nothing of where they differ.
bool equal_secrets(std::string_view a, std::string_view b);

// Makes and reads the text by which a guest introduces itself.
std::string hello_of(const Handshake& handshake);
// Fills in the guest's side, true or not; nothing where the text is no hello. The result is its proof.
std::optional<std::string> read_hello(std::string_view text, Handshake& handshake);

}  // namespace dear::admission
