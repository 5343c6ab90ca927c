#include "dear/base/launch/testing/launched_command.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <poll.h>
#include <sstream>
#include <stdexcept>
#include <sys/wait.h>

#include "dear/base/os/testing/paths.h"

namespace dear::launch::testing {
namespace {

// Appends what is there. False at the end.
bool read_some(const os::FileDescriptor& from, std::string& to) {
  std::array<char, 4096> bytes;
  const ssize_t got = ::read(from.get(), bytes.data(), bytes.size());
  if (got > 0) {
    to.append(bytes.data(), static_cast<std::size_t>(got));
  }
  return got > 0 || (got < 0 && errno == EINTR);
}

}  // namespace

LaunchedCommand::LaunchedCommand(const std::vector<std::string>& arguments) {
  std::vector<std::string> words{dear::testing::dear_command()};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> pointers;
  pointers.reserve(words.size() + 1);
  for (std::string& word : words) {
    pointers.push_back(word.data());
  }
  pointers.push_back(nullptr);

  Pipe input = make_pipe();
  Pipe output = make_pipe();
  Pipe error = make_pipe();
  pid_ = ::fork();
  if (pid_ == 0) {
    ::dup2(input.read.get(), STDIN_FILENO);
    ::dup2(output.write.get(), STDOUT_FILENO);
    ::dup2(error.write.get(), STDERR_FILENO);
    ::execv(pointers[0], pointers.data());
    ::_exit(127);
  }
  if (pid_ < 0) {
    throw std::runtime_error("cannot fork");
  }
  input_ = std::move(input.write);
  output_ = std::move(output.read);
  error_ = std::move(error.read);
}

LaunchedCommand::~LaunchedCommand() {
  if (pid_ > 0) {
    send(SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
}

void LaunchedCommand::write_input(const std::string& text) {
  write_all(input_.get(), text);
  input_.close();
}

std::string LaunchedCommand::read_line() {
  std::string line;
  for (char byte = 0; !line.ends_with('\n') && ::read(output_.get(), &byte, 1) == 1;) {
    line += byte;
  }
  return line;
}

void LaunchedCommand::send(int signal) const { ::kill(pid_, signal); }

CommandResult LaunchedCommand::wait() {
  CommandResult result;
  input_.close();
  while (output_.is_open() || error_.is_open()) {
    std::array<pollfd, 2> files{{{.fd = output_.get(), .events = POLLIN, .revents = 0},
                                 {.fd = error_.get(), .events = POLLIN, .revents = 0}}};
    ::poll(files.data(), files.size(), -1);
    if (files[0].revents != 0 && !read_some(output_, result.output)) {
      output_.close();
    }
    if (files[1].revents != 0 && !read_some(error_, result.error)) {
      error_.close();
    }
  }
  int status = 0;
  ::waitpid(pid_, &status, 0);
  pid_ = -1;
  result.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

CommandResult run_dear(const std::vector<std::string>& arguments) {
  return LaunchedCommand(arguments).wait();
}

Lifeline::Lifeline() : pipe_(make_pipe()) { ::fcntl(pipe_.write.get(), F_SETFD, 0); }

void Lifeline::wait_for_all_to_end() {
  pipe_.write.close();
  std::string nothing;
  while (read_some(pipe_.read, nothing)) {
  }
}

}  // namespace dear::launch::testing
