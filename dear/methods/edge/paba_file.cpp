#include "dear/methods/edge/paba_file.h"

#include <algorithm>
#include <array>
#include <string_view>

#include <fmt/format.h>

#include "dear/base/json/json_field.h"
#include "dear/base/os/atomic_file.h"

namespace dear::methods::edge {
namespace {

constexpr JsonFormat kFormat = {.name = "dear-edge-groups", .version = 1, .kind = "file of groups"};
constexpr std::int64_t kMostParameters = 1'000'000'000'000;
// Their loss depends on parameters through A w alone, so that a block's gradient needs no other block.
constexpr std::array<std::string_view, 3> kDecomposable{"logistic", "linear", "svm"};

Worker read_worker(const JsonField& field) {
  field.expect_members({"cycles_per_parameter", "frequency_hz", "efficiency_down", "efficiency_up"},
                       {"overhead_seconds"});
  Worker worker{.cycles_per_parameter = field.member("cycles_per_parameter").number_from_0(),
                .frequency_hz = field.member("frequency_hz").number_from_0(),
                .efficiency_down = field.member("efficiency_down").number_from_0(),
                .efficiency_up = field.member("efficiency_up").number_from_0()};
  if (field.has("overhead_seconds"))
    worker.overhead_seconds = field.member("overhead_seconds").number_from_0();
  return worker;
}

}  // namespace

PabaFile parse_groups(std::string_view text, const std::string& source) {
  const Json document = parse_json_file(text, source, kFormat);
  const JsonField file(document, source);
  file.expect_members(
      {"format", "version", "objective", "parameters", "bandwidth_down_hz", "bandwidth_up_hz", "groups"},
      {"bits_per_parameter", "deadline_seconds", "lost"});
  const JsonField objective = file.member("objective");
  if (std::find(kDecomposable.begin(), kDecomposable.end(), objective.text()) == kDecomposable.end())
    objective.fail(
        "must be logistic, linear or svm: the gradient of a block of any other model needs the other blocks");
  PabaFile found;
  PabaProblem& problem = found.problem;
  problem.parameters = file.member("parameters").integer(0, kMostParameters);
  problem.bandwidth_down_hz = file.member("bandwidth_down_hz").number_from_0();
  problem.bandwidth_up_hz = file.member("bandwidth_up_hz").number_from_0();
  if (file.has("bits_per_parameter"))
    problem.bits_per_parameter = file.member("bits_per_parameter").number_from_0();
  if (file.has("deadline_seconds")) found.deadline_seconds = file.member("deadline_seconds").number_from_0();
  for (const JsonField& group : file.member("groups").elements()) {
    std::vector<Worker>& workers = problem.groups.emplace_back();
    for (const JsonField& worker : group.elements()) workers.push_back(read_worker(worker));
  }
  if (file.has("lost"))
    for (const JsonField& one : file.member("lost").elements()) {
      one.expect_members({"group", "worker"});
      found.lost.push_back({static_cast<int>(one.member("group").integer(0, 1'000'000)),
                            static_cast<int>(one.member("worker").integer(0, 1'000'000))});
    }
  return found;
}

PabaFile read_groups(const std::string& path) { return parse_groups(os::read_file(path), path); }

std::string groups_json(const PabaProblem& problem) {
  Json groups = Json::array();
  for (const std::vector<Worker>& group : problem.groups) {
    Json& workers = groups.emplace_back(Json::array());
    for (const Worker& worker : group) {
      workers.push_back({{"cycles_per_parameter", worker.cycles_per_parameter},
                         {"frequency_hz", worker.frequency_hz},
                         {"efficiency_down", worker.efficiency_down},
                         {"efficiency_up", worker.efficiency_up}});
      if (worker.overhead_seconds > 0) workers.back()["overhead_seconds"] = worker.overhead_seconds;
    }
  }
  return Json{{"format", kFormat.name},
              {"version", kFormat.version},
              {"objective", "logistic"},
              {"parameters", problem.parameters},
              {"bits_per_parameter", problem.bits_per_parameter},
              {"bandwidth_down_hz", problem.bandwidth_down_hz},
              {"bandwidth_up_hz", problem.bandwidth_up_hz},
              {"groups", groups}}
             .dump(2) +
         "\n";
}

}  // namespace dear::methods::edge
