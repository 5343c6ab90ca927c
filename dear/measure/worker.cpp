#include "dear/measure/worker.h"

#include <cstdlib>
#include <exception>
#include <memory>
#include <optional>
#include <thread>
#include <unistd.h>

#include <fmt/format.h>

#include "dear/base/deadline.h"
#include "dear/base/error.h"
#include "dear/collective/environment.h"
#include "dear/launch/cores.h"
#include "dear/measure/connection.h"
#include "dear/measure/contestant.h"
#include "dear/measure/protocol.h"
#include "dear/measure/responder.h"
#include "dear/measure/starting_gate.h"

namespace dear::measure {
namespace {

// Between two measurements a coordinator may be away for as long as the other contestants take.
Deadline never() { return Deadline::after(std::chrono::hours(24 * 365)); }

// Ends this process when the coordinator goes, though it be inside an engine that waits without an end. The
// thread sleeps until then, or ends with the process.
void end_with(const std::shared_ptr<const Connection>& connection) {
  std::thread([connection] {
    connection->wait_for_close();
    ::_exit(EXIT_FAILURE);
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
    engine_ = contestant_.open(
        {.timeout = options_.timeout, .reproducible = options_.reproducible, .ahead = options_.ahead});
    Responder responder(
        *engine_, {.rank = rank_, .size = size_, .only_copies = contestant_.only_copies, .meet = [this] {
                     gate_->wait(Deadline::after(options_.timeout));
                   }});
    const Command first = parse_command(welcome.text);
    responder.prepare(first.prepare_bytes, first.output_bytes);
    tell({.kind = Reply::Kind::ready, .text = engine_->description()});
    while (true) {
      const Command command = parse_command(next().text);
      if (command.kind == Command::Kind::end) {
        return;
      }
      tell(responder.answer(command));
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
    launch::bind_to(
        launch::cores_of_rank(launch::usable_cores(), environment.local_size, environment.local_rank));
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

}  // namespace dear::measure
