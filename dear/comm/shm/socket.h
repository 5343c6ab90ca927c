#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <sys/socket.h>
#include <vector>

#include "dear/base/os/file_descriptor.h"
#include "dear/base/vocabulary/deadline.h"
#include "dear/comm/shm/control.h"

namespace dear::backends {

// What the ranks of a host say to each other while they meet, and with each segment that rank 0 hands out.
struct Message {
  enum class Kind : std::uint32_t { hello, roster, welcome, mismatch, timeout, transport, segment };
  static constexpr std::uint32_t kMagic = 0x72616564;  // "dear"
  static constexpr std::uint32_t kVersion = 1;

  std::uint32_t magic = kMagic;
  std::uint32_t version = kVersion;
  Kind kind = Kind::hello;
  std::int32_t rank = 0;                                    // hello
  std::int32_t size = 0;                                    // hello
  std::array<std::uint8_t, Control::kMaxRanks / 8> came{};  // roster: a bit for each rank that has come
  std::array<char, 480> text{};  // mismatch, timeout, transport: the error's message

  void set_came(int rank) {
    came[static_cast<std::size_t>(rank / 8)] |= static_cast<std::uint8_t>(1U << (rank % 8));
  }
  [[nodiscard]] bool has_come(int rank) const {
    return ((came[static_cast<std::size_t>(rank / 8)] >> (rank % 8)) & 1U) != 0;
  }
  void set_text(const std::string& message);
};

// A connected local socket that keeps messages apart and carries open files.
class Socket {
 public:
  enum class Received : std::uint8_t { message, nothing_yet, closed };

  Socket() = default;
  explicit Socket(os::FileDescriptor file) : file_(std::move(file)) {}

  [[nodiscard]] int get() const { return file_.get(); }
  explicit operator bool() const { return file_.is_open(); }

  // 0, or the errno. Does not wait: EAGAIN and ETOOMANYREFS pass when the peer has received what it was sent
  // before.
  int send(const Message& message, const std::vector<int>& files = {}) const;
  // Does not wait. Anything that is no message of ours counts as closed.
  Received receive(Message& message, std::vector<os::FileDescriptor>& files) const;
  // Sleeps until there is something to receive, at most until the deadline.
  void wait_readable(Deadline deadline) const;
  [[nodiscard]] ucred peer() const;

 private:
  os::FileDescriptor file_;
};

// The address that a rendezvous text stands for is free for one listener at a time. Nothing when it is taken.
os::FileDescriptor listen_at(const std::string& rendezvous);
// Nothing while nobody listens there.
Socket connect_to(const std::string& rendezvous);
Socket accept_from(const os::FileDescriptor& listener);

}  // namespace dear::backends
