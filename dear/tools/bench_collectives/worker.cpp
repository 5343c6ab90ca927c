#include "dear/tools/bench_collectives/worker.h"

#include <cstdlib>
#include <exception>
#include <memory>
#include <optional>
#include <thread>
#include <unistd.h>

#include "dear/base/launch/cores.h"
#include "dear/base/launch/pipe.h"
#include "dear/base/os/start_thread.h"
#include "dear/base/vocabulary/deadline.h"
#include "dear/base/vocabulary/error.h"
#include "dear/comm/backends/environment.h"
#include "dear/tools/bench_collectives/connection.h"
#include "dear/tools/bench_collectives/library.h"
#include "dear/tools/bench_collectives/protocol.h"
#include "dear/tools/bench_collectives/rank_runner.h"
#include "dear/tools/bench_collectives/start_barrier.h"

namespace dear::bench_collectives {
namespace {

// Between two measurements a coordinator may be away for as long as other libraries take.
Deadline never() { return Deadline::after(std::chrono::hours(24 * 365)); }

// Ends this process when the coordinator is gone, also while the library waits for ever.
class CoordinatorWatch {
 public:
  explicit CoordinatorWatch(const Connection& connection)
      : stop_(launch::make_pipe()),
        thread_(os::start_thread("that watches the coordinator of a benchmark", [this, &connection] {
          if (connection.wait_for_close(stop_.read)) ::_exit(EXIT_FAILURE);
        })) {}
  ~CoordinatorWatch() {
    stop_.write.close();
    thread_.join();
  }
  CoordinatorWatch(const CoordinatorWatch&) = delete;
  CoordinatorWatch& operator=(const CoordinatorWatch&) = delete;

 private:
  launch::Pipe stop_;
  std::thread thread_;
};

class Rank {
 public:
  Rank(const WorkerOptions& options, const Connection& connection, const LaunchEnvironment& environment)
      : options_(options),
        library_(find_library(options.library)),
        connection_(connection),
        rank_(environment.rank),
        size_(environment.size) {}

  void serve() {
    Connection::Message welcome = next();
    start_barrier_ = std::make_unique<StartBarrier>(std::move(welcome.file), size_);
    collectives_ = library_.open(options_.opening);
    RankRunner runner(*collectives_,
                      {.rank = rank_, .size = size_, .only_copies = library_.only_copies, .barrier = [this] {
                         start_barrier_->wait(Deadline::after(options_.opening.timeout));
                       }});
    const Command first = parse_command(welcome.text);
    runner.prepare(first.prepare_bytes, first.output_bytes);
    tell({.kind = Reply::Kind::ready, .text = collectives_->description()});
    while (true) {
      const Command command = parse_command(next().text);
      if (command.kind == Command::Kind::end) {
        return;
      }
      tell(runner.answer(command));
    }
  }

 private:
  Connection::Message next() const {
    std::optional<Connection::Message> message = connection_.receive(never());
    if (!message) {
      throw TransportError("the coordinator of this benchmark has ended; run `dear bench collective` again");
    }
    return std::move(*message);
  }
  void tell(const Reply& reply) const { connection_.send(to_text(reply)); }

  const WorkerOptions& options_;
  const Library& library_;
  const Connection& connection_;
  int rank_;
  int size_;
  std::unique_ptr<StartBarrier> start_barrier_;
  std::unique_ptr<Collectives> collectives_;
};

}  // namespace

void run_worker(const WorkerOptions& options) {
  const LaunchEnvironment environment = read_launch_environment();
  if (options.bind) {
    launch::bind_to(
        launch::cores_of_rank(launch::usable_cores(), environment.local_size, environment.local_rank));
  }
  const Connection connection = connect_to(options.control);
  connection.send(
      to_text(Reply{.kind = Reply::Kind::hello, .rank = environment.rank, .size = environment.size}));
  try {
    const CoordinatorWatch watch(connection);
    Rank(options, connection, environment).serve();
  } catch (const std::exception& error) {
    connection.send(to_text(Reply{.kind = Reply::Kind::failed, .text = error.what()}));
    throw;
  }
}

}  // namespace dear::bench_collectives
