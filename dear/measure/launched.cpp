#include "dear/measure/launched.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "dear/collective/backends.h"
#include "dear/collective/exchange.h"
#include "dear/collective/init.h"
#include "dear/measure/group_engine.h"
#include "dear/measure/responder.h"

namespace dear::measure {
namespace {

constexpr std::string_view kAuto = "auto";

// This process's part of a team; the others run the same code at the same time.
class LaunchedTeam final : public Team {
 public:
  LaunchedTeam(std::unique_ptr<Engine> engine, const Group& group, bool only_copies)
      : engine_(std::move(engine)),
        group_(group),
        responder_(*engine_,
                   {.rank = group.rank(), .size = group.size(), .only_copies = only_copies, .meet = [this] {
                      group_.perform({.operation = Operation::barrier});
                    }}) {}

  void prepare(std::int64_t bytes, std::int64_t output_bytes) { responder_.prepare(bytes, output_bytes); }

  std::string wait_ready() override { return engine_->description(); }

  std::vector<Reply> ask(const Command& command) override {
    Reply mine = responder_.answer(command);
    for (Span& span : mine.spans) {
      span = {.begin_seconds = 0, .end_seconds = span.end_seconds - span.begin_seconds};
    }
    std::vector<Reply> all;
    for (const std::string& text : all_gather_text(group_, to_text(mine))) {
      all.push_back(parse_reply(text));
    }
    return all;
  }

  void dismiss() override {}
  const std::string& output() override { return nothing_; }

 private:
  std::unique_ptr<Engine> engine_;
  Group group_;
  Responder responder_;
  std::string nothing_;  // it goes where the launcher sends it
};

}  // namespace

const std::vector<Contestant>& launched_backends() {
  static const std::vector<Contestant> kTable = [] {
    std::vector<Contestant> all{{.name = kAuto, .summary = "what DeAR chooses for these ranks"}};
    for (const BackendEntry& entry : backends()) {
      if (entry.name == "single") continue;
      all.push_back({.name = entry.name, .summary = entry.summary, .missing = entry.missing});
    }
    return all;
  }();
  return kTable;
}

std::string unfit(const Contestant& rival, const LaunchEnvironment& environment) {
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

ContestOutcome hold_launched_contest(const ContestSettings& settings, const LaunchEnvironment& environment,
                                     const std::function<void(std::int64_t bytes)>& progress) {
  const std::int64_t most = *std::max_element(settings.sizes.begin(), settings.sizes.end());
  const std::int64_t output = settings.operation == MeasuredOperation::all_to_all ? most : 0;
  std::optional<Group> group;
  const auto make_team = [&](const Entrant& entrant) {
    const Contestant& contestant = *entrant.contestant;
    std::unique_ptr<Engine> engine;
    if (contestant.rival) {
      engine = contestant.open({.timeout = settings.timeout});
    } else {
      Group made = init({.timeout = settings.timeout,
                         .backend = std::string(contestant.name == kAuto ? "" : contestant.name),
                         .reproducible = settings.reproducible});
      group = group ? group : made;
      engine = make_group_engine(made, settings.ahead);
    }
    auto team = std::make_unique<LaunchedTeam>(std::move(engine), *group, contestant.only_copies);
    team->prepare(most, output);
    return team;
  };
  return hold_contest_among(
      settings, make_team,
      environment.rank == 0 ? progress : std::function<void(std::int64_t)>([](std::int64_t) {}));
}

}  // namespace dear::measure
