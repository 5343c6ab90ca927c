#pragma once

#include <csignal>
#include <string>
#include <sys/resource.h>
#include <sys/types.h>
#include <vector>

#include "dear/base/launch/keeper.h"
#include "dear/base/os/file_descriptor.h"

namespace dear::launch {

// How a process ended.
struct Ending {
  int code = 0;            // of its exit, when no signal killed it
  int signal = 0;          // 0 when it exited
  bool with_host = false;  // its host is lost

  [[nodiscard]] bool failed() const { return code != 0 || signal != 0; }
  [[nodiscard]] int exit_code() const { return signal != 0 ? 128 + signal : code; }  // as a shell gives it
  [[nodiscard]] std::string to_string() const;  // "exited with code 3", "was killed by signal 9 (Killed)"
};

// The limit of open files of this process.
rlimit limit_of_open_files();

// The program that a rank runs, and its surroundings.
struct RankProgram {
  std::vector<std::string> command;
  std::vector<std::string> environment;
  bool reads_input = false;   // the standard input of this process, else nothing
  bool piped_output = false;  // standard output is a pipe, else that of this process
  bool piped_error = false;   // likewise standard error
  std::vector<int> cores;     // that it may run on; those of this process when empty
  sigset_t signal_mask{};
  rlimit open_files = limit_of_open_files();
};

// One rank as a process that leads a process group of its own. Only the destructor reaps the process, so the
// system gives the group's number to no other process before.
class RankProcess {
 public:
  // Starts the program, and returns when it runs. ConfigError that names the program when it cannot be run.
  RankProcess(const RankProgram& program, const Keeper& keeper);
  RankProcess(const RankProcess&) = delete;
  RankProcess& operator=(const RankProcess&) = delete;
  ~RankProcess();  // kills it if it still runs, and waits a while for its end

  // A file that is readable as soon as the process has ended.
  [[nodiscard]] int pidfd() const { return pidfd_.get(); }
  [[nodiscard]] pid_t pid() const { return pid_; }
  [[nodiscard]] Ending ending() const;  // once pidfd() is readable
  // Sends the signal to the whole group, then SIGCONT: a stopped process takes no signal but SIGKILL.
  void send(int signal) const;

  os::FileDescriptor output;  // read ends, non-blocking; empty when not piped
  os::FileDescriptor error;

 private:
  pid_t pid_ = -1;
  os::FileDescriptor pidfd_;
};

}  // namespace dear::launch
