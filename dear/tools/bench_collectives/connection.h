#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "dear/base/os/file_descriptor.h"
#include "dear/base/vocabulary/deadline.h"

namespace dear::bench_collectives {

// A local socket that keeps messages apart. Every error is a TransportError.
class Connection {
 public:
  struct Message {
    std::string text;
    os::FileDescriptor file;  // that came with it; none, mostly
  };

  explicit Connection(os::FileDescriptor socket) : socket_(std::move(socket)) {}

  [[nodiscard]] int fd() const { return socket_.get(); }
  // Sends a message, without waiting: messages are far smaller than what a socket holds.
  void send(std::string_view text, int file = -1) const;
  // The next message; nothing when the other side has closed. TimeoutError at the deadline.
  [[nodiscard]] std::optional<Message> receive(Deadline deadline) const;
  // Sleeps until the other side has closed, whatever it sends, or the writing end of the pipe `stop` has.
  // True when the other side has.
  [[nodiscard]] bool wait_for_close(const os::FileDescriptor& stop) const;
  // A pidfd of the process on the other side.
  [[nodiscard]] os::FileDescriptor pidfd() const;

 private:
  os::FileDescriptor socket_;
};

// The place where the ranks of one library find the coordinator. The address is the path of a file that this
// process holds open and that has no other name: processes of the same user that see the same /proc reach it,
// in any network namespace, and nothing of it is left behind.
class ControlListener {
 public:
  ControlListener();

  [[nodiscard]] int fd() const { return socket_.get(); }
  [[nodiscard]] std::string address() const;
  [[nodiscard]] Connection accept() const;

 private:
  os::FileDescriptor socket_;
  os::FileDescriptor name_;
};

Connection connect_to(const std::string& address);

}  // namespace dear::bench_collectives
