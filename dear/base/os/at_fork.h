#pragma once

namespace dear::os {

// Keeps an open file out of processes that fork() from this one without exec(): a worker that loads data
// would hold a connection open, or a lock, after this process has been killed. In the child the number stands
// for /dev/null. Where the number belongs to another file by then, the child keeps that file. Children of
// clone() or vfork() are not covered. Any thread may make and destroy one.
class NotInChildren {
 public:
  NotInChildren() = default;
  explicit NotInChildren(int fd);
  NotInChildren(NotInChildren&& other) noexcept;
  NotInChildren& operator=(NotInChildren&& other) noexcept;
  ~NotInChildren();

 private:
  int fd_ = -1;
  unsigned long device_ = 0;
  unsigned long inode_ = 0;
};

}  // namespace dear::os
