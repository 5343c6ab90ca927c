#pragma once

#include <string>
#include <sys/types.h>
#include <vector>

#include "dear/base/launch/pipe.h"

namespace dear::launch::testing {

// How a command ended, as a shell sees it.
struct CommandResult {
  int code = 0;  // 128 + signal when one killed it
  std::string output;
  std::string error;
};

// The `dear` command as a child of a test, its three standard streams on pipes.
class LaunchedCommand {
 public:
  explicit LaunchedCommand(const std::vector<std::string>& arguments);
  ~LaunchedCommand();  // kills it if wait() was not called
  LaunchedCommand(const LaunchedCommand&) = delete;
  LaunchedCommand& operator=(const LaunchedCommand&) = delete;

  void write_input(const std::string& text);  // and closes the input
  // Reads output up to and with the next newline; shorter when the output ends.
  std::string read_line();
  void send(int signal) const;
  // Reads both streams to their ends and waits for the command. The streams end only when every process that
  // inherited them has: a process left behind is a test that never ends, so times out.
  CommandResult wait();

 private:
  pid_t pid_ = -1;
  os::FileDescriptor input_, output_, error_;
};

std::vector<std::string> lines_of(const std::string& text);
CommandResult run_dear(const std::vector<std::string>& arguments);

// A pipe of which every process that a test starts inherits the writing end.
class Lifeline {
 public:
  Lifeline();
  // Returns when every process that holds the writing end has ended. Closes this process's own first.
  void wait_for_all_to_end();

 private:
  Pipe pipe_;
};

}  // namespace dear::launch::testing
