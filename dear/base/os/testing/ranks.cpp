#include "dear/base/os/testing/ranks.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "dear/base/os/file_descriptor.h"
#include "dear/base/vocabulary/deadline.h"
#include "dear/base/vocabulary/error.h"

namespace dear::os::testing {
namespace {

// Longer than any test may take: a hang becomes a failed test with the reports of the others.
constexpr auto kPatience = std::chrono::seconds(100);

struct Child {
  pid_t pid = 0;
  FileDescriptor pipe;
  std::string report;
};

[[noreturn]] void be_child(int rank, int pipe, const RankBody& body) {
  const bool parent_failed = ::testing::Test::HasFailure();
  std::string report = report_of([&] { body(rank); });
  if (report == "ok" && !parent_failed && ::testing::Test::HasFailure()) {
    report = "failed";
  }
  // One write of less than a pipe holds: it arrives whole or not at all.
  const ssize_t written = write(pipe, report.data(), report.size());
  _exit(written == static_cast<ssize_t>(report.size()) ? 0 : 1);
}

Child start(int rank, const RankBody& body) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) {
    throw TransportError(with_errno("cannot open a pipe", errno));
  }
  FileDescriptor reader(ends[0]);
  FileDescriptor writer(ends[1]);
  const pid_t pid = fork();
  if (pid < 0) {
    throw TransportError(with_errno("cannot fork", errno));
  }
  if (pid == 0) {
    reader.close();
    be_child(rank, writer.get(), body);
  }
  return {.pid = pid, .pipe = std::move(reader), .report = {}};
}

void collect(Child& child, Deadline deadline) {
  std::array<char, 4096> text{};
  while (!deadline.expired()) {
    pollfd entry{.fd = child.pipe.get(), .events = POLLIN, .revents = 0};
    poll(&entry, 1, static_cast<int>(deadline.remaining() / std::chrono::milliseconds(1)) + 1);
    const ssize_t length = read(child.pipe.get(), text.data(), text.size());
    if (length <= 0) {
      return;
    }
    child.report.append(text.data(), static_cast<std::size_t>(length));
  }
  child.report = "did not end";
}

void reap(Child& child) {
  int status = 0;
  waitpid(child.pid, &status, 0);
  if (child.report.empty()) {
    child.report = WIFSIGNALED(status) ? fmt::format("killed by signal {}", WTERMSIG(status))
                                       : fmt::format("exited with {}", WEXITSTATUS(status));
  }
}

}  // namespace

std::string report_of(const std::function<void()>& body) {
  try {
    body();
    return "ok";
  } catch (const ConfigError& error) {
    return fmt::format("ConfigError: {}", error.what());
  } catch (const MismatchError& error) {
    return fmt::format("MismatchError: {}", error.what());
  } catch (const TransportError& error) {
    return fmt::format("TransportError: {}", error.what());
  } catch (const TimeoutError& error) {
    return fmt::format("TimeoutError: {}", error.what());
  } catch (const std::exception& error) {
    return fmt::format("exception: {}", error.what());
  }
}

std::vector<std::string> run_on_threads(int size, const RankBody& body) {
  std::vector<std::string> reports(static_cast<std::size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back(
        [&, rank] { reports[static_cast<std::size_t>(rank)] = report_of([&] { body(rank); }); });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  return reports;
}

std::vector<std::string> run_in_processes(int size, const RankBody& body, const std::vector<int>& stopped) {
  std::vector<Child> children;
  for (int rank = 0; rank < size; ++rank) {
    children.push_back(start(rank, body));
  }
  const Deadline deadline = Deadline::after(kPatience);
  const auto stops = [&](int rank) {
    return std::find(stopped.begin(), stopped.end(), rank) != stopped.end();
  };
  for (int rank = 0; rank < size; ++rank) {
    if (!stops(rank)) {
      collect(children[static_cast<std::size_t>(rank)], deadline);
    }
  }
  std::vector<std::string> reports;
  for (int rank = 0; rank < size; ++rank) {
    Child& child = children[static_cast<std::size_t>(rank)];
    if (stops(rank) || child.report == "did not end") {
      kill(child.pid, SIGKILL);
    }
    reap(child);
    reports.push_back(child.report);
  }
  return reports;
}

bool has_children() { return waitpid(-1, nullptr, WNOHANG) != -1 || errno != ECHILD; }

}  // namespace dear::os::testing
