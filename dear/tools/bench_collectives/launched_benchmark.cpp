#include "dear/tools/bench_collectives/launched_benchmark.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "dear/comm/backends/backends.h"
#include "dear/comm/backends/init.h"
#include "dear/comm/group/exchange.h"
#include "dear/tools/bench_collectives/group_collectives.h"
#include "dear/tools/bench_collectives/rank_runner.h"

namespace dear::bench_collectives {
namespace {

constexpr std::string_view kAuto = "auto";

// This process's part of the workers; the others run the same code at the same time.
class LaunchedWorkers final : public Workers {
 public:
  LaunchedWorkers(std::unique_ptr<Collectives> collectives, const Group& group, bool only_copies)
      : collectives_(std::move(collectives)),
        group_(group),
        runner_(*collectives_,
                {.rank = group.rank(), .size = group.size(), .only_copies = only_copies, .barrier = [this] {
                   group_.perform({.collective = Collective::barrier});
                 }}) {}

  void prepare(std::int64_t bytes, std::int64_t output_bytes) { runner_.prepare(bytes, output_bytes); }

  std::string wait_ready() override { return collectives_->description(); }

  std::vector<Reply> ask(const Command& command) override {
    Reply mine = runner_.answer(command);
    for (Interval& interval : mine.intervals) {
      interval = {.begin_seconds = 0, .end_seconds = interval.end_seconds - interval.begin_seconds};
    }
    std::vector<Reply> all;
    for (const std::string& text : all_gather_text(group_, to_text(mine))) {
      all.push_back(parse_reply(text));
    }
    return all;
  }

  void end() override {}
  const std::string& output() override { return nothing_; }

 private:
  std::unique_ptr<Collectives> collectives_;
  Group group_;
  RankRunner runner_;
  std::string nothing_;  // it goes where the launcher sends it
};

}  // namespace

const std::vector<Library>& launched_backends() {
  static const std::vector<Library> kTable = [] {
    std::vector<Library> all{{.name = kAuto, .summary = "what DeAR chooses for these ranks"}};
    for (const BackendEntry& entry : backend_table()) {
      if (entry.name == "single") continue;
      all.push_back({.name = entry.name, .summary = entry.summary, .missing = entry.missing});
    }
    return all;
  }();
  return kTable;
}

std::string missing_here(const Library& rival, const LaunchEnvironment& environment) {
  if (std::string why = rival.missing(); !why.empty()) {
    return why;
  }
  const bool of_mpi = rival.starter != Starter::bench;
  const std::string_view launcher = rival.starter == Starter::openmpi ? "Open MPI" : "MPICH";
  if (of_mpi && environment.launcher != launcher) {
    return fmt::format("these ranks were started by {}, not by {}", environment.launcher, launcher);
  }
  if (rival.name == "gloo-own" && environment.master_port == 0) {
    return "it meets at rank 0's address: set MASTER_ADDR and MASTER_PORT on all ranks";
  }
  return "";
}

BenchmarkOutcome run_launched_benchmark(const BenchmarkSettings& settings,
                                        const LaunchEnvironment& environment,
                                        const std::function<void(std::int64_t bytes)>& progress) {
  const std::int64_t most = *std::max_element(settings.sizes.begin(), settings.sizes.end());
  const std::int64_t output = has_output(settings.operation) ? most : 0;
  std::optional<Group> group;
  const auto start_workers = [&](const SelectedLibrary& selected) {
    const Library& library = *selected.library;
    std::unique_ptr<Collectives> collectives;
    if (library.rival) {
      collectives = library.open({.timeout = settings.timeout});
    } else {
      Group made = init({.timeout = settings.timeout,
                         .grid = selected.grid,
                         .backend = std::string(library.name == kAuto ? "" : library.name),
                         .reproducible = settings.reproducible});
      group = group ? group : made;
      collectives = make_group_collectives(made, settings.ahead);
    }
    auto workers = std::make_unique<LaunchedWorkers>(std::move(collectives), *group, library.only_copies);
    workers->prepare(most, output);
    return workers;
  };
  return run_benchmark_on(
      settings, start_workers,
      environment.rank == 0 ? progress : std::function<void(std::int64_t)>([](std::int64_t) {}));
}

}  // namespace dear::bench_collectives
