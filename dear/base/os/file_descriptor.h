#pragma once

#include <unistd.h>
#include <utility>

namespace dear::os {

// Owns a file descriptor, or none, and closes it.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~FileDescriptor() { close(); }

  [[nodiscard]] int get() const { return fd_; }  // -1 for none
  [[nodiscard]] bool is_open() const { return fd_ >= 0; }
  // The caller closes it from now on.
  [[nodiscard]] int release() { return std::exchange(fd_, -1); }
  void close() {
    if (is_open()) {
      ::close(std::exchange(fd_, -1));
    }
  }

 private:
  int fd_ = -1;
};

}  // namespace dear::os
