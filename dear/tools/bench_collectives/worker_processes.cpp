#include "dear/tools/bench_collectives/worker_processes.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <poll.h>
#include <string>
#include <sys/syscall.h>
#include <unistd.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dear/base/launch/pipe.h"
#include "dear/base/launch/rank_environment.h"
#include "dear/base/vocabulary/error.h"
#include "dear/tools/bench_collectives/start_barrier.h"

namespace dear::bench_collectives {
namespace {

constexpr std::array<std::string_view, 5> kLaunchVariables{"RANK", "WORLD_SIZE", "LOCAL_RANK",
                                                           "LOCAL_WORLD_SIZE", "DEAR_RENDEZVOUS"};
constexpr std::size_t kMostOutput = 4000;
// Libraries give up at the timeout themselves, and know more about the reason than we.
constexpr std::chrono::seconds kTimeToExplain{3};
// From the death of the ranks to that of what started them, which tidies up.
constexpr std::chrono::seconds kTimeToTidyUp{3};

std::vector<std::string> worker_command(const Library& library, const WorkersOptions& options,
                                        const std::string& control) {
  std::vector<std::string> words{options.program,
                                 "bench",
                                 "worker",
                                 "--library",
                                 std::string(library.name),
                                 "--control",
                                 control,
                                 "--timeout",
                                 fmt::format("{:g}s", options.timeout.count())};
  if (options.bind) {
    words.emplace_back("--bind");
  }
  if (options.reproducible) {
    words.emplace_back("--reproducible");
  }
  words.insert(words.end(), {"--ahead", std::to_string(options.ahead)});
  words.insert(words.end(), options.grid_words.begin(), options.grid_words.end());
  return words;
}

launch::RankProgram program_of(std::vector<std::string> command, std::vector<std::string> environment,
                               const launch::HeldSignals& signals) {
  launch::RankProgram program{
      .command = std::move(command), .environment = std::move(environment), .piped_output = true};
  program.signal_mask = signals.before();
  return program;
}

// What a launcher of MPI passes on: nothing that another launcher may have said about ranks.
std::vector<std::string> environment_of_launcher(const launch::Job& job) {
  std::vector<std::string> entries = launch::inherited_environment();
  std::erase_if(entries, [](const std::string& entry) {
    return std::any_of(kLaunchVariables.begin(), kLaunchVariables.end(),
                       [&](std::string_view name) { return entry.starts_with(fmt::format("{}=", name)); });
  });
  entries.push_back("DEAR_RENDEZVOUS=" + job.run_id);
  return entries;
}

// Now, or before `patience` is over.
bool has_ended(const launch::RankProcess& process, std::chrono::milliseconds patience = {}) {
  pollfd ended{.fd = process.pidfd(), .events = POLLIN, .revents = 0};
  return ::poll(&ended, 1, static_cast<int>(patience.count())) > 0;
}

}  // namespace

WorkerProcesses::WorkerProcesses(const Library& library, const WorkersOptions& options,
                                 const launch::HeldSignals& signals)
    : options_(options),
      time_to_answer_(options.timeout + kTimeToExplain),
      signals_(signals),
      start_barrier_(StartBarrier::make_memory()),
      ranks_(static_cast<std::size_t>(options.ranks)),
      keeper_(std::make_unique<launch::Keeper>()) {
  const launch::Job job = launch::describe_job(options.ranks);
  std::vector<std::string> command = worker_command(library, options, listener_.address());
  if (options.launcher) {
    std::vector<std::string> words = options.launcher->command;
    words.push_back(std::to_string(options.ranks));
    words.insert(words.end(), command.begin(), command.end());
    processes_.push_back(std::make_unique<launch::RankProcess>(
        program_of(words, environment_of_launcher(job), signals), *keeper_));
  } else {
    const std::vector<std::string> inherited = launch::inherited_environment();
    for (int rank = 0; rank < options.ranks; ++rank) {
      auto environment = launch::rank_environment(job, rank, inherited, {{"DEAR_RENDEZVOUS", job.run_id}});
      processes_.push_back(
          std::make_unique<launch::RankProcess>(program_of(command, environment, signals), *keeper_));
    }
  }
  ended_.resize(processes_.size());
}

WorkerProcesses::~WorkerProcesses() {
  for (const Rank& rank : ranks_) {
    if (rank.pidfd.is_open()) {
      ::syscall(SYS_pidfd_send_signal, rank.pidfd.get(), SIGKILL, nullptr, 0);
    }
  }
  if (options_.launcher) {
    processes_.front()->send(SIGTERM);
    try {
      await_processes(Deadline::after(kTimeToTidyUp));
    } catch (const TransportError&) {  // then it is killed as it is
    }
  }
}

std::string WorkerProcesses::wait_ready() {
  await_replies(Deadline::after(time_to_answer_));
  return ranks_.front().reply->text;
}

std::vector<Reply> WorkerProcesses::ask(const Command& command) {
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    ranks_[i].reply.reset();
    try {
      ranks_[i].connection->send(to_text(command));
    } catch (const TransportError&) {  // the rank has closed its side
      throw TransportError(how_it_ended(static_cast<int>(i)));
    }
  }
  await_replies(Deadline::after(time_to_answer_));
  std::vector<Reply> replies;
  for (Rank& rank : ranks_) {
    replies.push_back(std::move(*rank.reply));
  }
  return replies;
}

void WorkerProcesses::end() {
  for (const Rank& rank : ranks_) {
    rank.connection->send(to_text(Command{.kind = Command::Kind::end}));
  }
  await_processes(Deadline::after(time_to_answer_));
  for (std::size_t i = 0; i < processes_.size(); ++i) {
    if (!has_ended(*processes_[i])) {
      throw TimeoutError(fmt::format("{} did not end within {:g} s of being told to; give a longer --timeout",
                                     name_of_process(static_cast<int>(i)), time_to_answer_.count()));
    }
    if (processes_[i]->ending().failed()) {
      throw TransportError(how_it_ended(static_cast<int>(i)));
    }
  }
}

const std::string& WorkerProcesses::output() {
  collect_output();
  return output_;
}

std::vector<int> WorkerProcesses::silent_ranks() const {
  std::vector<int> silent;
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    if (!ranks_[rank].reply) {
      silent.push_back(static_cast<int>(rank));
    }
  }
  return silent;
}

void WorkerProcesses::await_replies(Deadline deadline) {
  while (true) {
    const std::vector<int> silent = silent_ranks();
    if (silent.empty()) {
      return;
    }
    if (deadline.expired()) {
      throw TimeoutError(fmt::format(
          "rank {} did not answer within {:g} s; where that is too short, give a longer --timeout",
          fmt::join(silent, ", "), time_to_answer_.count()));
    }
    wait_for_something(deadline);
  }
}

// Sleeps until a rank or a process has something to say, and listens to it.
void WorkerProcesses::wait_for_something(Deadline deadline) {
  std::vector<pollfd> files{{.fd = listener_.fd(), .events = POLLIN, .revents = 0}};
  for (const Rank& rank : ranks_) {
    const bool awaited = rank.connection && !rank.reply;
    files.push_back({.fd = awaited ? rank.connection->fd() : -1, .events = POLLIN, .revents = 0});
  }
  for (std::size_t i = 0; i < processes_.size(); ++i) {
    for (const int fd :
         {ended_[i] ? -1 : processes_[i]->pidfd(), processes_[i]->output.get(), processes_[i]->error.get()}) {
      files.push_back({.fd = fd, .events = POLLIN, .revents = 0});
    }
  }
  files.push_back({.fd = signals_.fd(), .events = POLLIN, .revents = 0});
  launch::poll_until(files, deadline);
  if (const std::optional<int> signal = signals_.next()) {
    throw Interrupted{*signal};
  }
  collect_output();
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    if (files[1 + i].revents != 0) {
      hear(ranks_[i], static_cast<int>(i));
    }
  }
  if (files[0].revents != 0) {
    welcome_newcomer();
  }
  for (std::size_t i = 0; i < processes_.size(); ++i) {
    ended_[i] = ended_[i] || files[1 + ranks_.size() + 3 * i].revents != 0;
    // A rank that has come is heard on its connection, also when it ends.
    const bool awaited = options_.launcher ? !silent_ranks().empty() : !ranks_[i].connection.has_value();
    if (ended_[i] && awaited) {
      throw TransportError(how_it_ended(static_cast<int>(i)));
    }
  }
}

void WorkerProcesses::welcome_newcomer() {
  Connection newcomer = listener_.accept();
  const auto message = newcomer.receive(Deadline::after(options_.timeout));
  const Reply hello = message ? parse_reply(message->text) : Reply{};
  const bool known = hello.kind == Reply::Kind::hello && hello.size == options_.ranks && hello.rank >= 0 &&
                     hello.rank < options_.ranks && !ranks_[static_cast<std::size_t>(hello.rank)].connection;
  if (!known) {
    throw TransportError(
        fmt::format("a process came as rank {} of {}, but {} ranks were started{}: the launcher of another "
                    "MPI is in use; put the launcher "
                    "of that MPI first in PATH",
                    hello.rank, hello.size, options_.ranks,
                    options_.launcher ? " by " + options_.launcher->version : ""));
  }
  Rank& rank = ranks_[static_cast<std::size_t>(hello.rank)];
  rank.pidfd = newcomer.pidfd();
  newcomer.send(to_text(Command{.kind = Command::Kind::welcome,
                                .prepare_bytes = options_.prepare_bytes,
                                .output_bytes = options_.output_bytes}),
                start_barrier_->file());
  rank.connection.emplace(std::move(newcomer));
}

void WorkerProcesses::hear(Rank& rank, int number) {
  const auto message = rank.connection->receive(Deadline::after(options_.timeout));
  if (!message) {
    throw TransportError(how_it_ended(number));
  }
  Reply reply = parse_reply(message->text);
  if (reply.kind == Reply::Kind::failed) {
    throw TransportError(fmt::format("rank {}: {}", number, reply.text));
  }
  rank.reply = std::move(reply);
}

std::string WorkerProcesses::how_it_ended(int rank) const {
  const launch::RankProcess& process = *processes_[options_.launcher ? 0 : static_cast<std::size_t>(rank)];
  // Its socket closes a moment before it has ended.
  return has_ended(process, std::chrono::seconds(1))
             ? fmt::format("{} {}", name_of_process(rank), process.ending().to_string())
             : fmt::format("rank {} ended", rank);
}

std::string WorkerProcesses::name_of_process(int rank) const {
  return options_.launcher
             ? fmt::format("{} of {}", options_.launcher->command.front(), options_.launcher->version)
             : fmt::format("rank {}", rank);
}

void WorkerProcesses::collect_output() {
  for (const auto& process : processes_) {
    for (os::FileDescriptor* const source : {&process->output, &process->error}) {
      std::array<char, 1 << 14> bytes;
      while (source->is_open()) {
        const ssize_t got = ::read(source->get(), bytes.data(), bytes.size());
        if (got > 0) {
          output_.append(bytes.data(), static_cast<std::size_t>(got));
        } else if (got == 0) {
          source->close();
        } else {
          break;
        }
      }
    }
  }
  if (output_.size() > kMostOutput) {
    output_.erase(0, output_.size() - kMostOutput);
  }
}

void WorkerProcesses::await_processes(Deadline deadline) {
  while (!deadline.expired()) {
    std::vector<pollfd> files;
    for (const auto& process : processes_) {
      if (has_ended(*process)) {
        continue;
      }
      files.push_back({.fd = process->pidfd(), .events = POLLIN, .revents = 0});
      files.push_back({.fd = process->output.get(), .events = POLLIN, .revents = 0});
      files.push_back({.fd = process->error.get(), .events = POLLIN, .revents = 0});
    }
    if (files.empty()) {
      return collect_output();
    }
    launch::poll_until(files, deadline);
    collect_output();
  }
}

}  // namespace dear::bench_collectives
