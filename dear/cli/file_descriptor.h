#pragma once

#include <string_view>
#include <unistd.h>
#include <utility>

namespace dear::cli {

// Owns a file descriptor; empty is -1.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  ~FileDescriptor() { close(); }

  [[nodiscard]] int get() const { return fd_; }
  [[nodiscard]] bool is_open() const { return fd_ >= 0; }
  void close() {
    if (is_open()) {
      ::close(std::exchange(fd_, -1));
    }
  }

 private:
  int fd_ = -1;
};

// Both ends of a pipe, closed on exec.
struct Pipe {
  FileDescriptor read;
  FileDescriptor write;
};
Pipe make_pipe();  // TransportError

void set_nonblocking(const FileDescriptor& file);  // TransportError
void write_all(int fd, std::string_view bytes);    // TransportError

}  // namespace dear::cli
