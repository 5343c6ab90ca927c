#include "tests/readers/readers.h"

#include "studies/edge/partel.h"
#include "studies/fusionllm/digits.h"
#include "studies/fusionllm/published.h"
#include "studies/kfac/convergence.h"
#include "studies/kfac/published.h"
#include "studies/lancet/published.h"
#include "studies/paper/published.h"
#include "studies/rounds/published.h"
#include "studies/themis/published.h"
#include <cstddef>
#include <fstream>
#include <span>
#include <string_view>

#include "dear/base/archive/pickle.h"
#include "dear/base/archive/zip_reader.h"
#include "dear/base/archive/zip_writer.h"
#include "dear/base/os/atomic_file.h"
#include "dear/base/os/testing/paths.h"
#include "dear/base/trace/chrome.h"
#include "dear/base/trace/summary.h"
#include "dear/comm/mpi/measurements.h"
#include "dear/methods/edge/paba_file.h"
#include "dear/methods/pipeline/planner.h"
#include "dear/platform/cluster/cluster_file.h"
#include "dear/platform/cluster/pair_cluster.h"
#include "dear/platform/cost/cluster_times.h"
#include "dear/predict/sim/evaluate.h"
#include "dear/predict/tune/cache.h"
#include "dear/schedule/fusion/grouping.h"
#include "dear/schedule/policies/policy.h"
#include "dear/schedule/policies/schedule_file.h"
#include "dear/workload/layers/workload_file.h"

namespace dear::readers_test {
namespace {

constexpr const char* kSource = "mutant";

Workload small_workload() {
  return {.name = "three layers",
          .tensors = {{.name = "a.weight", .elements = 1000},
                      {.name = "a.bias", .elements = 10},
                      {.name = "b.weight", .elements = 500, .dtype = DType::bf16}},
          .layers = {{.name = "a", .tensors = {0, 1}, .forward_seconds = 0.001, .backward_seconds = 0.002},
                     {.name = "b", .tensors = {2}, .forward_seconds = 0.003, .backward_seconds = 0.004},
                     {.name = "c",
                      .tensors = {},
                      .forward_seconds = 0.001,
                      .backward_seconds = 0.001,
                      .activation_bytes = 4096}},
          .update_seconds = 0.0005};
}

Cluster small_cluster() {
  return {.name = "two nodes",
          .dimensions = {{.name = "node",
                          .size = 2,
                          .link = {.alpha_seconds = 1e-6, .beta_seconds_per_byte = 1e-10}},
                         {.name = "network",
                          .size = 2,
                          .link = {.alpha_seconds = 5e-5, .beta_seconds_per_byte = 1e-9},
                          .oversubscription = 2}},
          .device = "a100",
          .stragglers = {{.rank = 1, .slowdown = 1.5}},
          .interference = {.communication = 1.1, .computation = 1.2},
          .software = {.launch_seconds = 1e-5, .hold_seconds = 1e-6},
          .fit = FitRecord{.backend = "shm",
                           .operation = "all-reduce",
                           .dtype = "fp32",
                           .model = "ring",
                           .rms_residual = 0.1,
                           .worst_residual = 0.2,
                           .samples = {{.bytes = 4, .seconds = 1e-5, .modelled_seconds = 1e-5}}}};
}

Trace small_trace() {
  Trace trace{.title = "dear train, policy dear, 2 ranks", .network = "", .spans = {}};
  for (int rank = 0; rank < 2; ++rank)
    for (int iteration = 0; iteration < 4; ++iteration) {
      const double begin = iteration * 0.1;
      trace.spans.push_back(
          {rank, "compute", "forward a", Activity::forward, iteration, 0, begin, begin + 0.02});
      trace.spans.push_back(
          {rank, "compute", "backward a", Activity::backward, iteration, 1, begin + 0.03, begin + 0.06});
      trace.spans.push_back({rank, "network", "all-gather bucket 0", Activity::communication, iteration, 2,
                             begin + 0.05, begin + 0.09});
    }
  return trace;
}

// What `dear simulate` computes.
void simulate(const Workload& workload, const Cluster& cluster, const Grouping& grouping) {
  for (const char* const policy : {"serial", "dear"})
    sim::evaluate(find_policy(policy), workload, grouping, cluster, cost::times_on(cluster, {}));
}
void simulate(const Workload& workload, const Cluster& cluster) {
  simulate(workload, cluster, Fusion()(workload));
}

namespace pipeline = methods::pipeline;

PairCluster small_pair_cluster() {
  return {.name = "two rooms",
          .devices = {{.name = "a", .flops_per_second = 1e12, .memory_bytes = 1 << 20},
                      {.name = "b", .flops_per_second = 2e12, .memory_bytes = 1 << 20}},
          .bytes_per_second = {{0, 1e6}, {2e6, 0}},
          .latency_seconds = {{0, 0.01}, {0.02, 0}}};
}

pipeline::OperatorDag small_operators() {
  return {"a block",
          {{.name = "first", .forward_work = 1e9, .parameter_bytes = 400, .output_bytes = 4000},
           {.name = "mask", .inputs = {0}, .output_bytes = 800, .dtype = DType::i64},
           {.name = "sum", .inputs = {0, 1}, .forward_work = 1e9, .output_bytes = 4000, .tied = 0}}};
}

// Plans with what was read, and plays what was planned.
pipeline::Plan plan_and_play(const pipeline::OperatorDag& dag, const PairCluster& cluster) {
  const pipeline::StageCosts costs(dag, cluster);
  pipeline::Plan plan = pipeline::make_plan(
      costs, {.compression = {.rule = pipeline::CompressionRule::ada_top_k, .ratio = 10}});
  pipeline::play(pipeline::times_of(plan, costs));
  return plan;
}

std::string small_plan() {
  const pipeline::OperatorDag dag = small_operators();
  const PairCluster cluster = small_pair_cluster();
  return to_json(plan_and_play(dag, cluster), pipeline::StageCosts(dag, cluster));
}

std::string write(const std::string& folder, const std::string& content) {
  std::string path = folder + "/mutant";
  std::ofstream(path, std::ios::binary | std::ios::trunc) << content;
  return path;
}

archive::Value state() {
  const archive::TensorRecord tensor{.key = "0",
                                     .storage = "FloatStorage",
                                     .storage_elements = 4,
                                     .offset = 0,
                                     .sizes = {2, 2},
                                     .strides = {2, 1}};
  return archive::Value(archive::Value::Dict{
      {archive::Value("model"),
       archive::Value(archive::Value::Dict{{archive::Value("weight"), archive::Value(tensor)}})},
      {archive::Value("step"), archive::Value(7)},
      {archive::Value("lr"), archive::Value(0.1)},
      {archive::Value("shape"),
       archive::Value(archive::Value::Tuple{{archive::Value(1), archive::Value(true)}})}});
}

std::string checkpoint(const std::string& folder) {
  const std::string path = folder + "/good.pt";
  archive::ZipWriter writer(path);
  const std::vector<std::byte> elements(16, std::byte{1});
  writer.add("data.pkl", archive::pickle(state()));
  writer.add("data/0", elements);
  writer.finish();
  return os::read_file(path);
}

// As torch.save() writes it, which knows no seal: then the directory alone says what is in the file.
std::string without_seal(std::string file) {
  const std::string seal = archive::kSeal;
  for (std::size_t at = 0; (at = file.find(seal, at)) != std::string::npos;) file[at] = 'x';
  return file;
}

void read_checkpoint(const std::string& path) {
  const archive::ZipReader reader(path);
  for (const char* const name : {"data.pkl", "data/0"}) static_cast<void>(reader.extent_of(name));
  archive::unpickle(reader.read_text("data.pkl"), path);
  reader.verify();
}

std::string findings() {
  backends::Measurements found;
  found.set(Collective::reduce_scatter, 3, {.choice = {.algorithm = "ring"}, .seconds = 1e-3, .second = {}});
  return found.format("this machine");
}

std::string cache() {
  tune::Cache made;
  made.put("a job",
           {.choice = "planned",
            .measured = {{.candidate = "25 MiB", .seconds = 0.1}, {.candidate = "planned", .seconds = 0.09}},
            .planned = {{"a.weight"}, {"a.bias", "b.weight"}},
            .planned_chunk_bytes = {0, 4096}});
  return made.to_json();
}

std::string schedule() {
  return to_json(ScheduleFile{
      .model = "three layers",
      .cluster = "two nodes",
      .ranks = 4,
      .policy = "dear",
      .buckets = {
          .buckets = {{"a.weight", "a.bias"}, {"b.weight"}}, .chunk_bytes = {0, 1024}, .source = ""}});
}

}  // namespace

std::vector<Reader> readers(const std::string& folder) {
  const std::string study = dear::testing::source_file("docs/study/");
  return {
      {.name = "workload",
       .good = to_json(small_workload()),
       .use = [](const std::string& text) { simulate(parse_workload(text, kSource), small_cluster()); },
       .command = {"simulate", "--model", "FILE", "--cluster", "1gbit", "--ranks", "4"}},
      {.name = "cluster",
       .good = to_json(small_cluster()),
       .use = [](const std::string& text) { simulate(small_workload(), parse_cluster(text, kSource)); },
       .command = {"simulate", "--model", "resnet50", "--cluster", "FILE"}},
      {.name = "schedule",
       .good = schedule(),
       .use =
           [](const std::string& text) {
             const ScheduleFile file = parse_schedule_file(text, kSource);
             const Workload workload = small_workload();
             find_policy(file.policy);
             simulate(workload, small_cluster(), Fusion(file.buckets)(workload));
           },
       .command = {"simulate", "--model", "resnet50", "--cluster", "1gbit", "--ranks", "4", "--schedule",
                   "FILE"}},
      {.name = "cluster with a link for each pair",
       .good = to_json(small_pair_cluster()),
       .use =
           [](const std::string& text) {
             plan_and_play(small_operators(), parse_pair_cluster(text, kSource));
           }},
      {.name = "operators",
       .good = to_json(small_operators()),
       .use =
           [](const std::string& text) {
             plan_and_play(pipeline::parse_operators(text, kSource), small_pair_cluster());
           }},
      {.name = "plan of a pipeline",
       .good = small_plan(),
       .use =
           [](const std::string& text) {
             const pipeline::OperatorDag dag = small_operators();
             const PairCluster cluster = small_pair_cluster();
             const pipeline::StageCosts costs(dag, cluster);
             pipeline::play(pipeline::times_of(pipeline::parse_plan(text, kSource, costs), costs));
           }},
      {.name = "trace",
       .good = to_chrome_json(small_trace()),
       .use =
           [](const std::string& text) {
             const Trace trace = parse_chrome_trace(text, kSource);
             to_text(summarize(trace), trace);
           },
       .command = {"trace", "summary", "FILE"}},
      {.name = "tuning cache",
       .good = cache(),
       .use =
           [](const std::string& text) { static_cast<void>(tune::Cache::parse(text, kSource).to_json()); }},
      {.name = "figures of papers",
       .good = os::read_file(study + "published.json"),
       .use = [](const std::string& text) { studies::parse_published(text, kSource); }},
      {.name = "figures of Themis",
       .good = os::read_file(study + "themis/published.json"),
       .use = [](const std::string& text) { studies::themis::parse_published_themis(text, kSource); }},
      {.name = "figures of PARTEL",
       .good = os::read_file(study + "partel/published.json"),
       .use = [](const std::string& text) { studies::edge::parse_published_partel(text, kSource); }},
      {.name = "file of groups",
       .good = os::read_file(dear::testing::source_file("examples/edge_groups.json")),
       .use = [](const std::string& text) { methods::edge::parse_groups(text, kSource); },
       .command = {"edge", "plan", "FILE"}},
      {.name = "figures of K-FAC",
       .good = os::read_file(study + "kfac/published.json"),
       .use = [](const std::string& text) { studies::kfac::parse_published_kfac(text, kSource); }},
      {.name = "figures of Lancet",
       .good = os::read_file(study + "lancet/published.json"),
       .use = [](const std::string& text) { studies::lancet::parse_published_lancet(text, kSource); }},
      {.name = "figures of FusionLLM",
       .good = os::read_file(study + "fusionllm/published.json"),
       .use = [](const std::string& text) { studies::fusionllm::parse_published_fusionllm(text, kSource); }},
      {.name = "figures of training by rounds",
       .good = os::read_file(study + "diloco/published.json"),
       .use = [](const std::string& text) { studies::rounds::parse_published_rounds(text, kSource); }},
      {.name = "images of digits",
       .json = false,
       .good = os::read_file(study + "fusionllm/digits.txt"),
       .use = [](const std::string& text) { studies::fusionllm::parse_digits(text, kSource); }},
      {.name = "convergence of K-FAC",
       .good = os::read_file(study + "kfac/convergence.json"),
       .use = [folder](const std::string& text) { studies::kfac::convergence_of(write(folder, text)); },
       .command = {"study", "kfac", "--out", "written", "--convergence", "FILE"}},
      {.name = "choices of MPI",
       .good = findings(),
       .use = [](const std::string& text) { backends::Measurements::parse(text, "this machine"); }},
      {.name = "checkpoint",
       .json = false,
       .good = checkpoint(folder),
       .use = [folder](const std::string& bytes) { read_checkpoint(write(folder, bytes)); }},
      {.name = "file of torch.save()",
       .json = false,
       .good = without_seal(checkpoint(folder)),
       .use = [folder](const std::string& bytes) { read_checkpoint(write(folder, bytes)); }},
      {.name = "pickle",
       .json = false,
       .good = archive::pickle(state()),
       .use = [](const std::string& bytes) { archive::unpickle(bytes, kSource); }},
  };
}

}  // namespace dear::readers_test
