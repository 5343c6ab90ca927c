#include "dear/cli/bench/worker.h"

#include <cstring>
#include <exception>
#include <memory>
#include <optional>
#include <thread>
#include <unistd.h>

#include <fmt/format.h>

#include "dear/base/deadline.h"
#include "dear/base/error.h"
#include "dear/cli/bench/connection.h"
#include "dear/cli/bench/contents.h"
#include "dear/cli/bench/contestant.h"
#include "dear/cli/bench/protocol.h"
#include "dear/cli/bench/starting_gate.h"
#include "dear/cli/cores.h"
#include "dear/cli/exit_status.h"
#include "dear/collective/environment.h"

namespace dear::cli::bench {
namespace {

// Between two measurements a coordinator may be away for as long as the other contestants take.
Deadline never() { return Deadline::after(std::chrono::hours(24 * 365)); }

// Ends this process when the coordinator goes, though it be inside an engine that waits without an end. The
// thread sleeps until then, or ends with the process.
void end_with(const std::shared_ptr<const Connection>& connection) {
  std::thread([connection] {
    connection->wait_for_close();
    ::_exit(kExitFailure);
  }).detach();
}

class Rank {
 public:
  Rank(const WorkerOptions& options, const Connection& connection, const LaunchEnvironment& environment)
      : options_(options),
        contestant_(find_contestant(options.contestant)),
        connection_(connection),
        rank_(environment.rank),
        size_(environment.size) {}

  void serve() {
    Connection::Message welcome = next();
    gate_ = std::make_unique<StartingGate>(std::move(welcome.file), size_);
    engine_ = contestant_.open({.timeout = options_.timeout});
    const Command first = parse_command(welcome.text);
    const std::int64_t rounding =
        std::int64_t{8} * size_;  // counts are rounded up to a multiple of the ranks
    engine_->prepare(first.prepare_bytes + rounding,
                     first.output_bytes > 0 ? first.output_bytes + rounding : 0);
    tell({.kind = Reply::Kind::ready, .text = engine_->description()});
    while (true) {
      const Command command = parse_command(next().text);
      if (command.kind == Command::Kind::end) {
        return;
      }
      tell(answer(command));
    }
  }

 private:
  Connection::Message next() const {
    std::optional<Connection::Message> message = connection_.receive(never());
    if (!message) {
      throw TransportError("the bench has gone");
    }
    return std::move(*message);
  }
  void tell(const Reply& reply) const { connection_.send(to_text(reply)); }

  Reply answer(const Command& command) {
    if (const std::string why = engine_->refusal(command.operation, command.dtype); !why.empty()) {
      return {.kind = Reply::Kind::refused, .text = why};
    }
    const Work work{.operation = command.operation, .dtype = command.dtype, .count = count_of(command)};
    return command.kind == Command::Kind::verify ? verify(work) : measure(command, work);
  }

  std::int64_t count_of(const Command& command) const {
    if (command.operation == MeasuredOperation::barrier) {
      return 0;
    }
    const std::int64_t unit = size_of(command.dtype) * engine_->granularity(command.operation);
    return (command.bytes + unit - 1) / unit * engine_->granularity(command.operation);
  }

  // Zeros stay zeros however often they are added.
  Reply measure(const Command& command, const Work& work) {
    std::memset(engine_->data(), 0, static_cast<std::size_t>(work.count * size_of(work.dtype)));
    Reply reply{.kind = Reply::Kind::spans};
    for (int i = -command.unmeasured; i < command.repetitions; ++i) {
      gate_->wait(Deadline::after(options_.timeout));
      const double begin = now_seconds();
      for (int j = 0; j < command.batch; ++j) {
        engine_->run(work);
      }
      const double end = now_seconds();
      if (i >= 0) {
        reply.spans.push_back({.begin_seconds = begin, .end_seconds = end});
      }
    }
    // Whoever answers first wakes the coordinator, which may take the core of one that is not done.
    gate_->wait(Deadline::after(options_.timeout));
    return reply;
  }

  Reply verify(const Work& work) {
    const Contents contents(work.dtype, size_);
    contents.fill(engine_->data(), {0, work.count}, rank_);
    if (engine_->output() != nullptr) {
      std::memset(engine_->output(), 0xff, static_cast<std::size_t>(work.count * size_of(work.dtype)));
    }
    gate_->wait(Deadline::after(options_.timeout));
    engine_->run(work);
    const std::optional<std::string> difference = first_difference(contents, work);
    // A rank that goes on must not write into what another still reads.
    gate_->wait(Deadline::after(options_.timeout));
    return difference ? Reply{.kind = Reply::Kind::wrong, .text = *difference}
                      : Reply{.kind = Reply::Kind::right};
  }

  std::optional<std::string> first_difference(const Contents& contents, const Work& work) const {
    const Range all{0, work.count};
    if (contestant_.only_copies) {
      return contents.differs_from_rank(engine_->output(), all, rank_);
    }
    switch (work.operation) {
      case MeasuredOperation::pair:
      case MeasuredOperation::all_reduce:
        return contents.differs_from_sum(engine_->data(), all);
      case MeasuredOperation::reduce_scatter:
        return contents.differs_from_sum(engine_->reduced_shard(work), engine_->shard(work, rank_));
      case MeasuredOperation::broadcast:
        return contents.differs_from_rank(engine_->data(), all, 0);
      case MeasuredOperation::all_gather:
        return of_each_peer([&](int peer) {
          const Range theirs = engine_->shard(work, peer);
          return contents.differs_from_rank(at(engine_->data(), work, theirs.begin), theirs, peer);
        });
      case MeasuredOperation::all_to_all:
        // Block q of the output is what rank q had in its block of this rank's number.
        return of_each_peer([&](int peer) {
          const std::int64_t block = work.count / size_;
          return contents.differs_from_rank(at(engine_->output(), work, peer * block),
                                            {rank_ * block, (rank_ + 1) * block}, peer);
        });
      case MeasuredOperation::barrier:
        break;
    }
    return std::nullopt;
  }

  static const std::byte* at(const std::byte* vector, const Work& work, std::int64_t element) {
    return vector + element * size_of(work.dtype);
  }
  template <typename Difference>
  std::optional<std::string> of_each_peer(Difference difference) const {
    for (int peer = 0; peer < size_; ++peer) {
      if (auto found = difference(peer)) {
        return found;
      }
    }
    return std::nullopt;
  }

  const WorkerOptions& options_;
  const Contestant& contestant_;
  const Connection& connection_;
  int rank_;
  int size_;
  std::unique_ptr<StartingGate> gate_;
  std::unique_ptr<Engine> engine_;
};

}  // namespace

void run_worker(const WorkerOptions& options) {
  const LaunchEnvironment environment = read_launch_environment();
  if (options.bind) {
    bind_to(cores_of_rank(usable_cores(), environment.local_size, environment.local_rank));
  }
  const auto connection = std::make_shared<const Connection>(connect_to(options.control));
  end_with(connection);
  connection->send(
      to_text(Reply{.kind = Reply::Kind::hello, .rank = environment.rank, .size = environment.size}));
  try {
    Rank(options, *connection, environment).serve();
  } catch (const std::exception& error) {
    connection->send(to_text(Reply{.kind = Reply::Kind::failed, .text = error.what()}));
    throw;
  }
}

}  // namespace dear::cli::bench
