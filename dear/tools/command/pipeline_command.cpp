#include <cstdint>
#include <cstdio>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "dear/base/charts/picture_file.h"
#include "dear/base/trace/chrome.h"
#include "dear/base/vocabulary/counted.h"
#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/units.h"
#include "dear/platform/cluster/cluster_file.h"
#include "dear/tools/case_options/pipeline_tables.h"
#include "dear/tools/case_options/policy_options.h"
#include "dear/tools/case_options/simulated_cases.h"
#include "dear/tools/cases/pipeline_picture.h"
#include "dear/tools/cases/pipeline_plan.h"
#include "dear/tools/command/commands.h"
#include "dear/tools/options/option_adder.h"
#include "dear/tools/options/option_checks.h"
#include "dear/tools/options/results_file.h"

namespace dear::cli {
namespace {

struct PipelineArguments {
  cases::PipelineNames names;
  std::vector<std::string> models, clusters, plan_files;
  std::vector<int> micro_batches;
  cases::PipelinePlanNames plans;
  std::string json, output, picture, plot, timeline, trace;
};

void add_job_to(const OptionAdder& add, cases::PipelineNames& names) {
  add("--seed", names.seed, "N", "Of a cluster that is drawn, fusionllm-48")->default_str("1");
  add("--batch", names.batch, "N",
      "Samples of an iteration, a multiple of the micro-batches (default: the model's own, or the next "
      "multiple)");
  add("--size", names.size, "N", "Side of an image, or length of a sequence (default: the model's own)");
  add("--dtype", names.dtype, "TYPE",
      "Of parameters and activations: fp32, fp16 or bf16 (default: the model's own)");
  add.with_default("--optimizer-states", names.optimizer_states, "N",
                   "Copies of parameters that the optimiser keeps: AdamW 2, SGD with momentum 1");
}

void add_plans_to(const OptionAdder& add, cases::PipelinePlanNames& plans) {
  add.with_default(
      "--ratio", plans.ratio, "R",
      "With compression, elements there are to those that travel; of ada-top-k on the slowest link");
  add.with_default("--devices", plans.devices, "NAME",
                   "all, or with op-fence fastest: sites without which an iteration is faster are left out");
  add("--stages-per-device", plans.stages_per_device, "N", "With schedule interleaved, stages of each device")
      ->default_str("2");
}

constexpr const char* kPlannerHelp =
    "op-fence (devices with fast links beside each other, slow links where little crosses), plain-dp (the "
    "best "
    "cuts for devices as listed), equal-number (of operators), or equal-work (of operations)";
constexpr const char* kScheduleHelp =
    "gpipe (all forwards, then all backwards), 1f1b (in turn), interleaved (in turn, several stages a "
    "device), "
    "or zb-h1 (weight gradients fill the waits)";
constexpr const char* kCompressHelp =
    "Of activations and gradients on links: none, top-k (the largest elements, at one ratio), or ada-top-k "
    "(a larger "
    "ratio the slower the link)";
constexpr const char* kModelHelp =
    "A GPT-2 or ResNet by name, such as gpt2-xl or resnet101, or a file of operators (docs/formats.md)";
constexpr const char* kClusterHelp =
    "Devices with a link for each pair: two-sites, three-sites, fusionllm-48, or a file that `dear pipeline "
    "clusters --output` writes";

void print_plan(const cases::PipelineAnswer& answer) {
  const cases::PipelineCase& plan = answer.plan;
  fmt::print("\n{} on {}, {}, {}, compression {}: {} an iteration\n\n", plan.job->dag.name(),
             plan.job->cluster.name, plan.planner, name_of(plan.plan.schedule), plan.compression,
             format_seconds(plan.seconds()));
  fmt::print("{}\n{}\n", stages_table(plan), links_table(plan));
  for (const std::string& sentence : answer.why) fmt::print("{}\n", sentence);
  std::vector<double> speed_ups;
  for (const cases::PipelineCase& rival : answer.rivals)
    speed_ups.push_back(rival.seconds() / plan.seconds());
  fmt::print("\n{}\n", plans_table(answer.rivals, "plan faster by", speed_ups));
  print_left_out(answer.left_out);
  for (const std::string& sentence : answer.verdict) fmt::print("{}\n", sentence);
}

void run_plan(const PipelineArguments& arguments) {
  check_outputs(
      {{"--json", arguments.json}, {"--output", arguments.output}, {"--picture", arguments.picture}});
  const cases::PipelineJob job(arguments.names);
  const cases::PipelineAnswer answer = cases::plan_pipeline(job, arguments.plans);
  write_checked([&] {
    if (!arguments.json.empty()) write_results(arguments.json, cases::to_json(answer), kAllModelled);
    if (!arguments.output.empty()) write_plan(answer.plan.plan, job.costs, arguments.output);
    if (!arguments.picture.empty()) charts::write_picture(arguments.picture, cases::picture_of(answer.plan));
  });
  print_jobs({cases::describe(job)});
  print_plan(answer);
  if (!arguments.output.empty())
    fmt::print("\nplan: {} (for `dear pipeline simulate --plan`)\n", arguments.output);
}

// The jobs of plans that are made, every model on every cluster.
std::deque<cases::PipelineJob> jobs_of(const PipelineArguments& arguments) {
  std::deque<cases::PipelineJob> jobs;
  for (const std::string& model : arguments.models)
    for (const std::string& cluster : arguments.clusters)
      for (const int micro_batches : arguments.micro_batches) {
        cases::PipelineNames names = arguments.names;
        names.model = model;
        names.cluster = cluster;
        names.micro_batches = micro_batches;
        // One batch for all numbers, so that iterations can be compared.
        if (arguments.names.batch == 0 && !names_file(model))
          names.batch = cases::usual_batch(model, arguments.micro_batches);
        jobs.emplace_back(names);
      }
  return jobs;
}

// Plays plans of files. `jobs` gets one for each number of micro-batches.
cases::PlayedPlans play_files(const PipelineArguments& arguments, std::deque<cases::PipelineJob>& jobs) {
  refuse_several("--plan is of one model on one cluster", arguments.models.size() * arguments.clusters.size(),
                 "--model and --cluster");
  cases::PipelineNames names = arguments.names;
  names.model = arguments.models.front();
  names.cluster = arguments.clusters.front();
  cases::PlayedPlans plans;
  std::map<int, const cases::PipelineJob*> job_of;
  for (const std::string& path : arguments.plan_files) {
    names.micro_batches = methods::pipeline::read_micro_batches(path);
    const cases::PipelineJob*& job = job_of[names.micro_batches];
    if (job == nullptr) job = &jobs.emplace_back(names);
    methods::pipeline::Plan plan = methods::pipeline::read_plan(path, job->costs);
    const std::string compression = plan.messages.empty() ? "none" : "as in the file";
    plans.cases.push_back(cases::play_plan(*job, std::move(plan), path, compression));
  }
  return plans;
}

void run_simulate(const CLI::App& command, const PipelineArguments& arguments) {
  check_outputs({{"--json", arguments.json},
                 {"--plot", arguments.plot},
                 {"--picture", arguments.picture},
                 {"--timeline", arguments.timeline},
                 {"--trace", arguments.trace}});
  const bool of_files = !arguments.plan_files.empty();
  if (of_files)
    refuse_beside("--plan", command,
                  {"--planner", "--schedule", "--compress", "--ratio", "--devices", "--stages-per-device",
                   "--micro-batches"});
  std::deque<cases::PipelineJob> jobs;
  if (!of_files) jobs = jobs_of(arguments);
  const cases::PlayedPlans plans =
      of_files ? play_files(arguments, jobs) : cases::play_plans(jobs, arguments.plans);
  for (const auto& [option, path] :
       {std::pair("--picture", &arguments.picture), std::pair("--timeline", &arguments.timeline),
        std::pair("--trace", &arguments.trace)})
    if (!path->empty())
      refuse_several(fmt::format("{} is of one plan", option), plans.cases.size(),
                     "--model, --cluster, --planner, --schedule, --compress and --micro-batches");
  const cases::PipelineCase& first = plans.cases.front();
  write_checked([&] {
    if (!arguments.json.empty()) write_results(arguments.json, cases::to_json(plans), kAllModelled);
    if (!arguments.plot.empty())
      charts::write_picture(arguments.plot,
                            cases::plot(plans.cases, "Iteration times of pipelines, simulated"));
    if (!arguments.picture.empty()) charts::write_picture(arguments.picture, cases::picture_of(first));
    if (!arguments.timeline.empty()) charts::write_picture(arguments.timeline, cases::timeline_of(first));
    if (!arguments.trace.empty()) write_chrome_trace(cases::trace_of(first), arguments.trace);
  });
  std::vector<std::string> lines;
  for (const cases::PipelineJob& job : jobs) lines.push_back(cases::describe(job));
  print_jobs(lines);
  fmt::print("\n{}", plans_table(plans.cases, "speed-up", cases::speed_ups(plans.cases)));
  print_left_out(plans.left_out);
}

void add_plan(CLI::App& parent) {
  CLI::App* const command =
      parent.add_subcommand("plan", "Say which device takes which operators, and what bounds an iteration");
  const auto arguments = std::make_shared<PipelineArguments>();
  const OptionAdder add(*command);
  cases::PipelinePlanNames& plans = arguments->plans;
  add("--model", arguments->names.model, "MODEL", kModelHelp)->required();
  add("--cluster", arguments->names.cluster, "CLUSTER", kClusterHelp)->required();
  add.with_default("--micro-batches", arguments->names.micro_batches, "N", "Parts of the batch");
  add_job_to(add, arguments->names);
  add("--planner", plans.planners.front(), "NAME", kPlannerHelp)->default_str("op-fence");
  add("--schedule", plans.schedules.front(), "NAME", kScheduleHelp)->default_str("1f1b");
  add("--compress", plans.compressions.front(), "NAME", kCompressHelp)->default_str("none");
  add_plans_to(add, plans);
  add("--output", arguments->output, "FILE",
      "Write the plan to FILE, for --plan of `dear pipeline simulate`");
  add("--json", arguments->json, "FILE", "Write the answer to FILE");
  add("--picture", arguments->picture, "FILE",
      "Draw who holds what and which link carries what, as SVG, PDF or PNG by its ending");
  command->callback([arguments] { run_plan(*arguments); });
}

void add_simulate(CLI::App& parent) {
  CLI::App* const command =
      parent.add_subcommand("simulate", "Predict iteration times of pipelines, made here or read from files");
  const auto arguments = std::make_shared<PipelineArguments>();
  arguments->micro_batches = {8};
  const OptionAdder add(*command);
  cases::PipelinePlanNames& plans = arguments->plans;
  add.list("--model", arguments->models, "MODEL[,MODEL...]", kModelHelp)->required();
  add.list("--cluster", arguments->clusters, "CLUSTER[,CLUSTER...]", kClusterHelp)->required();
  add.list("--plan", arguments->plan_files, "FILE[,FILE...]",
           "Plans that `dear pipeline plan --output` wrote, also after an edit, instead of planning");
  add.list("--micro-batches", arguments->micro_batches, "N[,N...]", "Parts of the batch")->default_str("8");
  add_job_to(add, arguments->names);
  add.list("--planner", plans.planners, "NAME[,NAME...]", kPlannerHelp)->default_str("op-fence");
  add.list("--schedule", plans.schedules, "NAME[,NAME...]", kScheduleHelp)->default_str("1f1b");
  add.list("--compress", plans.compressions, "NAME[,NAME...]", kCompressHelp)->default_str("none");
  add_plans_to(add, plans);
  add("--json", arguments->json, "FILE", "Write the results to FILE");
  add("--plot", arguments->plot, "FILE", "Draw the results, as SVG, PDF or PNG by its ending");
  add("--picture", arguments->picture, "FILE",
      "Draw who holds what and which link carries what, likewise (one plan only)");
  add("--timeline", arguments->timeline, "FILE",
      "Draw what each device and link does when, likewise (one plan only)");
  add("--trace", arguments->trace, "FILE", "Write a timeline for https://ui.perfetto.dev (one plan only)");
  command->callback([arguments, command] { run_simulate(*command, *arguments); });
}

}  // namespace

void add_pipeline_command(CLI::App& app) {
  CLI::App* const command =
      app.add_subcommand("pipeline", "Plan and train one model over devices that are far apart")
          ->require_subcommand(1);
  add_plan(*command);
  add_simulate(*command);
  add_pipeline_train(*command);
  add_pipeline_clusters(*command);
}

}  // namespace dear::cli
