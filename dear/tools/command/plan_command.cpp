#include <cmath>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <unistd.h>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "dear/base/charts/picture_file.h"
#include "dear/base/vocabulary/counted.h"
#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/units.h"
#include "dear/predict/plan/plan.h"
#include "dear/predict/sim/simulate.h"
#include "dear/schedule/policies/schedule_file.h"
#include "dear/tools/case_options/kfac_policies.h"
#include "dear/tools/case_options/mixture_options.h"
#include "dear/tools/case_options/policy_options.h"
#include "dear/tools/case_options/scenario.h"
#include "dear/tools/case_options/simulated_cases.h"
#include "dear/tools/cases/kfac_plan.h"
#include "dear/tools/cases/planned.h"
#include "dear/tools/command/commands.h"
#include "dear/tools/options/option_adder.h"
#include "dear/tools/options/option_checks.h"
#include "dear/tools/options/results_file.h"
#include "dear/tools/options/table.h"

namespace dear::cli {
namespace {

struct PlanArguments {
  ScenarioOptions scenarios;
  std::vector<std::string> policies;
  ModelOptions model;
  MixtureOptions mixtures;
  std::string optimizer = "adamw";
  std::string json;
  std::string plot;
  bool progress = false;
  std::string schedule;
};

std::string compressions_of(const std::vector<plan::CompressedRow>& rows) {
  Table table({"compression", "policy", "fusion", "buckets", "iteration", "without", "codec", "memory",
               "pays below", "speed-up"},
              {.left_columns = 3});
  for (const plan::CompressedRow& one : rows) {
    const sim::Evaluation& evaluation = one.row.evaluation;
    const double limit = one.crossover.bits_per_second;
    table.add({one.model.compression.text(), std::string(one.row.policy->name), one.row.fusion,
               std::to_string(one.row.grouping.size()), format_seconds(evaluation.iteration.seconds),
               format_seconds(one.dense_seconds), format_seconds(evaluation.codec_seconds),
               format_bytes(evaluation.memory.total()) + (one.row.fits ? "" : ", too much"),
               limit == 0          ? "nowhere"
               : std::isinf(limit) ? "everywhere"
                                   : sim::format_bandwidth(limit),
               fmt::format("{:.2f}", one.dense_seconds / evaluation.iteration.seconds)});
  }
  return table.to_string();
}

void print(const plan::Answer& answer) {
  Table table(
      {"policy", "here", "fusion", "collectives", "buckets", "iteration", "exposed comm.", "bound", "memory"},
      {.left_columns = 4});
  for (const plan::Row& row : answer.rows) {
    const sim::Evaluation& evaluation = row.evaluation;
    table.add({std::string(row.policy->name), row.runs() ? "trains" : "simulated", row.fusion, row.algorithm,
               std::to_string(row.grouping.size()), format_seconds(evaluation.iteration.seconds),
               format_seconds(evaluation.exposed_communication_seconds),
               format_seconds(evaluation.bound_seconds),
               format_bytes(evaluation.memory.total()) + (row.fits ? "" : ", too much")});
  }
  fmt::print("{}\n", table.to_string());
  Table reasons({"policy", "what it waits for"}, {.left_columns = 2});
  for (const plan::Row& row : answer.rows) reasons.add({std::string(row.policy->name), row.why});
  fmt::print("{}\n", reasons.to_string());
  for (const plan::LeftOut& one : answer.left_out)
    fmt::print("Left out: {}, because {}.\n", one.policy->name, one.reason);
  if (!answer.left_out.empty()) fmt::print("\n");
  if (!answer.compressed.empty()) fmt::print("{}\n", compressions_of(answer.compressed));
  for (const std::string& sentence : answer.verdict) fmt::print("{}\n", sentence);
  if (answer.sensitivities.empty()) return;
  fmt::print("\nWith {} as it is, and\n", answer.rows[answer.best].policy->name);
  for (const plan::Sensitivity& change : answer.sensitivities)
    if (change.fits) {
      fmt::print("  {:<25} {:>9} an iteration, {:.2f} times the samples a second\n", change.change + ":",
                 format_seconds(change.iteration_seconds), change.speed_up);
    } else {
      fmt::print("  {:<25} does not fit into memory: {}\n", change.change + ":",
                 format_bytes(change.memory_bytes));
    }
}

void print(const cases::PlannedRounds& rounds) {
  Table table({"steps a round", "mean step", "speed-up", "overlapped", "speed-up", "sent a step"},
              {.left_columns = 0});
  for (const cases::PlannedRounds::Row& row : rounds.rows)
    table.add({std::to_string(row.steps), format_seconds(row.waits.seconds),
               fmt::format("{:.2f}", rounds.policy_seconds / row.waits.seconds),
               format_seconds(row.overlaps.seconds),
               fmt::format("{:.2f}", rounds.policy_seconds / row.overlaps.seconds),
               format_bytes(static_cast<std::int64_t>(row.waits.sent_bytes))});
  fmt::print(
      "\n{}\n{}\nSamples are as many as without rounds; what rounds change in the loss is not modelled.\n",
      table.to_string(), rounds.sentence);
}

// Says on stderr which search is under way, where somebody looks: on a terminal on one line, which goes away
// at the end; else, where it was asked for, on lines.
class SearchProgress {
 public:
  explicit SearchProgress(bool asked) : terminal_(isatty(STDERR_FILENO) == 1), shown_(asked || terminal_) {}
  SearchProgress(const SearchProgress&) = delete;
  SearchProgress& operator=(const SearchProgress&) = delete;
  ~SearchProgress() {
    if (drawn_) std::fputs("\r\x1b[K", stderr);
  }

  void update(std::string_view model, const Cluster& cluster, std::size_t done, std::size_t all,
              std::string_view next) {
    if (!shown_) return;
    const std::string text =
        fmt::format("plan of {} on {}: {} of {} searched, next {}", model, cluster.name, done, all, next);
    std::fputs((terminal_ ? "\r" + text + "\x1b[K" : text + "\n").c_str(), stderr);
    std::fflush(stderr);
    drawn_ = terminal_;
  }

 private:
  const bool terminal_;
  const bool shown_;
  bool drawn_ = false;
};

void write_schedule(const cases::PlannedScenario& planned, const std::string& path) {
  const ScheduleFile schedule = cases::schedule_of(planned);
  write_checked([&] { write_schedule_file(schedule, path); });
  const Policy& policy = *planned.answer.rows[planned.answer.best].policy;
  fmt::print("\nschedule of {}: {} (for --schedule of {}dear simulate)\n", policy.name, path,
             policy.trains ? "dear train and " : "");
}

void print(const cases::KfacAnswer& answer) {
  Table table({"policy", "fusion", "placement", "passes", "gradients", "factors", "factors sent", "inverses",
               "inverses sent", "iteration", "what it waits for"},
              {.left_columns = 3});
  for (const cases::KfacAnswer::Row& row : answer.rows) {
    const methods::kfac::Breakdown& parts = row.one.prediction.parts;
    table.add({row.one.strategy.name, row.fusion, row.placement, format_seconds(parts.passes),
               format_seconds(parts.gradients), format_seconds(parts.factors),
               format_seconds(parts.factors_sent), format_seconds(parts.inverses),
               format_seconds(parts.inverses_sent), format_seconds(row.one.prediction.iteration_seconds),
               row.why});
  }
  fmt::print("{}\n", table.to_string());
  for (const std::string& sentence : answer.verdict) fmt::print("{}\n", sentence);
}

void run_kfac_plan(const CLI::App& command, const PlanArguments& arguments) {
  if (!arguments.schedule.empty())
    throw ConfigError("--schedule is of SGD: K-FAC plans its own order while it trains, leave it out");
  refuse_beside("K-FAC", command,
                {"--optimizer-states", "--accumulate", "--scale-compute", "--checkpoint-activations",
                 "--compress", "--codec", "--union-density", "--plot"});
  cases::KfacPlanOptions options;
  options.times.algorithm = arguments.model.algorithm;
  for (const std::string& name : arguments.policies)
    options.strategies.push_back(methods::kfac::find_strategy(name));
  const std::vector<cases::Scenario> all = scenarios(arguments.scenarios);
  std::vector<cases::KfacAnswer> answers;
  for (const cases::Scenario& scenario : all) answers.push_back(cases::plan_kfac(scenario, options));
  print_scenarios(all);
  for (const cases::KfacAnswer& answer : answers) {
    const cases::Scenario& scenario = *answer.on.scenario;
    const std::string left_out = left_out_of({answer.rows.front().one});
    fmt::print("\n{} on {}, {}, with K-FAC\n\n{}{}", scenario.workload.name, scenario.cluster.name,
               counted(static_cast<std::size_t>(answer.on.costs.ranks), "rank"), left_out,
               left_out.empty() ? "" : "\n");
    print(answer);
  }
  if (!arguments.json.empty())
    write_checked([&] { write_results(arguments.json, cases::to_json(answers), kAllModelled); });
}

std::vector<cases::MixtureAnswer> answers_of(const std::vector<cases::MixtureScenario>& all, bool asked) {
  SearchProgress progress(asked);
  std::vector<cases::MixtureAnswer> answers;
  for (const cases::MixtureScenario& scenario : all)
    answers.push_back(
        cases::plan_mixture(scenario, [&](std::size_t done, std::size_t count, std::string_view next) {
          progress.update(scenario.model.name, scenario.cluster, done, count, next);
        }));
  return answers;
}

void run_mixture_plan(const PlanArguments& arguments) {
  const std::vector<cases::MixtureScenario> all =
      cases::mixture_scenarios(asked_by(arguments.scenarios), arguments.mixtures.names());
  const std::vector<cases::MixtureAnswer> answers = answers_of(all, arguments.progress);
  print_scenarios(all);
  for (const cases::MixtureAnswer& answer : answers) {
    const Cluster& cluster = answer.scenario->cluster;
    fmt::print("\n{} on {}, {}\n\n{}\n", answer.scenario->model.name, cluster.name,
               counted(static_cast<std::size_t>(cluster.ranks()), "rank"), table_of(answer));
    for (const std::string& sentence : answer.verdict) fmt::print("{}\n", sentence);
  }
  write_checked([&] {
    if (!arguments.json.empty()) write_results(arguments.json, cases::to_json(answers), kAllModelled);
    if (!arguments.plot.empty()) charts::write_picture(arguments.plot, cases::plot(answers));
  });
}

std::vector<cases::PlannedScenario> planned_of(const std::vector<cases::Scenario>& all, plan::Options options,
                                               const PlanArguments& arguments) {
  cases::Compressions compressions(arguments.model.compression);
  SearchProgress progress(arguments.progress);
  std::vector<cases::PlannedScenario> planned;
  for (const cases::Scenario& scenario : all) {
    options.progress = [&](std::size_t done, std::size_t count, std::string_view next) {
      progress.update(scenario.workload.name, scenario.cluster, done, count, next);
    };
    planned.push_back(cases::plan(scenario, options, compressions.in(scenario, scenario.cluster.ranks())));
  }
  return planned;
}

void run_plan(const CLI::App& command, PlanArguments& arguments) {
  check_outputs({{"--json", arguments.json}, {"--plot", arguments.plot}, {"--schedule", arguments.schedule}});
  if (are_mixtures(arguments.scenarios.models, arguments.mixtures)) {
    refuse_beside_mixtures(command);
    run_mixture_plan(arguments);
    return;
  }
  const bool sgd =
      arguments.optimizer != "adamw";  // K-FAC changes gradients, and SGD with momentum applies them
  if (sgd && command.count("--optimizer-states") == 0) arguments.model.optimizer_states = 1;
  arguments.scenarios.model.optimizer_states = arguments.model.optimizer_states;
  if (arguments.optimizer == "kfac") {
    run_kfac_plan(command, arguments);
    return;
  }
  const plan::Options options = cases::find_options({.policies = arguments.policies,
                                                     .algorithm = arguments.model.algorithm,
                                                     .optimizer_states = arguments.model.optimizer_states,
                                                     .micro_batches = arguments.model.micro_batches});
  const std::vector<cases::Scenario> all = scenarios(arguments.scenarios);
  if (!arguments.schedule.empty())
    refuse_several("--schedule writes one schedule", all.size(), "--model, --cluster and number of --ranks");
  const std::vector<cases::PlannedScenario> planned = planned_of(all, options, arguments);
  print_scenarios(all);
  for (const cases::PlannedScenario& one : planned) {
    const int passes = arguments.model.micro_batches;
    fmt::print("\n{} on {}, {}{}\n", one.scenario->workload.name, one.scenario->cluster.name,
               counted(static_cast<std::size_t>(one.scenario->cluster.ranks()), "rank"),
               passes > 1 ? fmt::format(", gradients of {} passes in an iteration", passes) : "");
    for (const std::string& codec : one.codecs) fmt::print("{}\n", codec);
    fmt::print("\n");
    print(one.answer);
    if (one.rounds) print(*one.rounds);
    if (!arguments.schedule.empty()) write_schedule(one, arguments.schedule);
  }
  write_checked([&] {
    if (!arguments.json.empty()) write_results(arguments.json, cases::to_json(planned), kAllModelled);
    if (!arguments.plot.empty()) charts::write_picture(arguments.plot, cases::plot(planned));
  });
}

}  // namespace

void add_plan_command(CLI::App& app) {
  auto arguments = std::make_shared<PlanArguments>();
  CLI::App* const command =
      app.add_subcommand("plan", "Find the policy, buckets and collectives for a model on a cluster");
  const OptionAdder add(*command);
  arguments->scenarios.add_to(*command);
  add.list("--policy", arguments->policies, "NAME[,NAME...]", "Policies to choose from; default: all");
  add.with_default(
         "--optimizer", arguments->optimizer, "NAME",
         "Whose states and updates are reckoned with, sgd with momentum; kfac searches the strategies of "
         "K-FAC, fusions of factors, placements of inverses and intervals, and says when K-FAC pays")
      ->check(CLI::IsMember({"adamw", "sgd", "kfac"}));
  arguments->model.add_to(*command);
  arguments->mixtures.add_to(*command);
  add("--json", arguments->json, "FILE", "Write the answer to FILE");
  add("--plot", arguments->plot, "FILE", "Draw the best of each policy, as SVG, PDF or PNG by its ending");
  command->add_flag("--progress", arguments->progress,
                    "Say on stderr what is searched, as on a terminal, also where that is none");
  add("--schedule", arguments->schedule, "FILE",
      "Write the policy and the buckets to use to FILE, for --schedule of train and simulate (one "
      "model on one cluster only)");
  command->callback([arguments, command] { run_plan(*command, *arguments); });
}

}  // namespace dear::cli
