#include "tests/fuzz/targets/speech.h"

#include <sys/socket.h>

#include "dear/base/admission/handshake.h"

namespace dear::fuzz {

using Kind = admission::MeetingMessage::Kind;

const std::string& key() {
  static const std::string kKey = admission::derived_key(admission::job_key(kSecret, kJob), "meeting", "");
  return kKey;
}

void speak(Bytes& bytes, admission::MeetingConnection& connection, int same) {
  const unsigned char what = bytes.byte();
  const std::string_view text = bytes.take(bytes.byte() * 4U);
  if (what < 16) {
    connection.say(static_cast<Kind>(what), text);
    connection.send();
  } else {
    static_cast<void>(::send(same, text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT));
  }
}

void prove(Bytes& bytes, admission::MeetingConnection& guest, std::string_view challenge) {
  const int rank = static_cast<signed char>(bytes.byte());
  const int size = static_cast<signed char>(bytes.byte());
  std::string hello = admission::hello_of({.key = key(),
                                           .host_rank = 0,
                                           .host_nonce = std::string(challenge),
                                           .guest_rank = rank,
                                           .size = size,
                                           .guest_nonce = admission::fresh_nonce()});
  const unsigned char wrong = bytes.byte();
  if (wrong < hello.size()) hello[wrong] = static_cast<char>(hello[wrong] ^ 1);
  guest.say(Kind::hello, hello);
  guest.send();
}

}  // namespace dear::fuzz
