// bench_tuning [JOBS]: how soon methods of tuning find the bucket size, on 200 simulated jobs.
//
// A job is one of the five models of arXiv 2302.12445 on one of 8 networks with 4 to 64 ranks, under policy
// dear. Candidates are the distinct groupings of sizes from 64 KiB to all in one. What a candidate takes is
// the simulator's time; a trial is the median of ten iterations with 5 % noise each, log-normal, so about 2
// %. The prior is the same simulator, told wrong numbers: alpha and beta each off by a factor of up to 1.3,
// all layers by one of up to 1.2, and each layer's forward and backward by others of up to 1.3 besides.
//
// Prints the share of jobs whose best candidate after k trials is within 2 % of the exhaustive optimum, and
// what live tuning costs (predict/tune/session.h) in 500 iterations from a bad start. Verifies that optimum
// against the critical cycle of its schedule, and that nothing that was chosen is better; a wrong one is a
// failure.
#include "bench/tuning/rivals.h"
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "dear/platform/cluster/presets.h"
#include "dear/platform/cost/cluster_times.h"
#include "dear/predict/sim/simulate.h"
#include "dear/predict/tune/draws.h"
#include "dear/predict/tune/session.h"
#include "dear/predict/tune/size_candidates.h"
#include "dear/predict/tune/tuner.h"
#include "dear/schedule/graph/critical_cycle.h"
#include "dear/schedule/policies/policy.h"
#include "dear/systems/train_command/simulated_tuning.h"
#include "dear/workload/zoo/make_workload.h"
#include "dear/workload/zoo/models.h"

namespace {

using dear::Cluster;
using dear::Workload;
using dear::tune::Draws;

constexpr int kTrials = 10;
constexpr int kWindow = 10;
constexpr double kNoise = 0.05;
constexpr double kWithin = 1.02;
constexpr double kPriorError = 0.3;

struct Job {
  std::string name;
  dear::SizeCandidates sizes;
  std::vector<double> seconds;  // by candidate: the truth
  std::vector<double> prior;    // what a simulator with wrong numbers says
  double optimum = 0;
};

bool verified(const Job& job, const Workload& workload, const Cluster& cluster) {
  const auto best = std::min_element(job.seconds.begin(), job.seconds.end()) - job.seconds.begin();
  const dear::Grouping& grouping = job.sizes.groupings[static_cast<std::size_t>(best)];
  const dear::cost::CollectiveTimes times = dear::cost::times_on(cluster);
  const dear::Schedule schedule = make_schedule(dear::find_policy("dear"), workload, grouping, times);
  const double critical =
      critical_cycle(schedule.graph(), dear::sim::step_seconds(schedule, workload, grouping, times)).seconds;
  const bool right = std::abs(critical - job.optimum) <= 1e-6 * critical;
  if (!right)
    fmt::print("WRONG: {}: optimum {:.6g} s, critical cycle {:.6g} s\n", job.name, job.optimum, critical);
  return right;
}

bool make_jobs(std::size_t count, std::vector<Job>& jobs) {
  bool right = true;
  for (const char* const network :
       {"10gbe", "100gbib", "1gbit", "bandwidth=25gbit,latency=20us", "bandwidth=10gbit,latency=200us",
        "bandwidth=40gbit,latency=10us", "10gbe-64", "100gbib-64"}) {
    for (const char* const model : {"resnet50", "densenet201", "inception-v4", "bert-base", "bert-large"}) {
      const Workload workload =
          dear::zoo::make_workload(dear::zoo::find_model(model), dear::zoo::find_device("rtx2080ti"));
      const dear::SizeCandidates sizes = dear::size_candidates(workload);
      for (const int ranks : {4, 8, 16, 32, 64}) {
        if (jobs.size() == count) return right;
        const Cluster cluster = dear::find_cluster(network, ranks);
        Draws draws(jobs.size() + 1);
        Job job{.name = fmt::format("{} on {}, {} ranks", model, network, ranks), .sizes = sizes};
        job.seconds =
            dear::train_command::simulated_seconds(sizes, dear::find_policy("dear"), workload, cluster);
        Workload wrong_workload = workload;
        Cluster wrong_cluster = cluster;
        dear::train_command::misjudge(wrong_workload, wrong_cluster, kPriorError, draws);
        job.prior = dear::train_command::simulated_seconds(sizes, dear::find_policy("dear"), wrong_workload,
                                                           wrong_cluster);
        job.optimum = *std::min_element(job.seconds.begin(), job.seconds.end());
        right = verified(job, workload, cluster) && right;
        jobs.push_back(std::move(job));
      }
    }
  }
  return right;
}

// Tells what was chosen after 1, 2, ... trials, over the optimum; and how many trials it wanted.
struct Course {
  std::vector<double> ratios;
  int trials = 0;
};

Course run(const Job& job, const dear::tune::Method& method, bool prior, int trials, std::uint64_t seed) {
  dear::tune::TunerOptions options{.trials = trials, .seed = seed};
  if (prior) options.prior = {.seconds = job.prior};
  const auto tuner = method.make(job.sizes.candidates, options);
  Draws draws(seed + 7919);
  Course course;
  while (const auto candidate = tuner->suggest()) {
    tuner->observe(*candidate,
                   dear::train_command::noisy_seconds(job.seconds[*candidate], kNoise, kWindow, draws));
    course.ratios.push_back(job.seconds[*tuner->best()] / job.optimum);
    ++course.trials;
  }
  while (static_cast<int>(course.ratios.size()) < trials) course.ratios.push_back(course.ratios.back());
  return course;
}

struct Row {
  std::string_view label;
  const dear::tune::Method& method;
  bool prior = false;
  bool depends_on_trials = false;  // what it tries first depends on how many there are
};

bool print_courses(const std::vector<Job>& jobs) {
  fmt::print("{:<22}", "within 2 % after");
  for (int k = 1; k <= kTrials; ++k) fmt::print("{:>6}", k);
  fmt::print("{:>10}{:>10}{:>10}\n", "trials", "worst", "mean");
  bool right = true;
  const dear::tune::Method& bayesian = dear::tune::find_method("bayesian");
  std::vector<Row> rows{{"bayesian", bayesian},
                        {"bayesian, prior", bayesian, true},
                        {"grid", dear::tune::find_method("grid"), false, true}};
  for (const dear::tune::Method& rival : dear::bench::rivals()) rows.push_back({rival.name, rival});
  for (const Row& row : rows) {
    std::vector<int> within(kTrials, 0);
    double trials = 0;
    double worst = 0;
    double mean = 0;
    for (std::size_t j = 0; j < jobs.size(); ++j) {
      Course course = run(jobs[j], row.method, row.prior, kTrials, j + 1);
      for (int k = 1; k < kTrials && row.depends_on_trials; ++k)
        course.ratios[static_cast<std::size_t>(k) - 1] =
            run(jobs[j], row.method, row.prior, k, j + 1).ratios.back();
      for (std::size_t k = 0; k < kTrials; ++k) {
        within[k] += course.ratios[k] <= kWithin ? 1 : 0;
        right = right && course.ratios[k] >= 1;
      }
      trials += course.trials;
      worst = std::max(worst, course.ratios.back());
      mean += course.ratios.back();
    }
    const auto count = static_cast<double>(jobs.size());
    fmt::print("{:<22}", row.label);
    for (const int jobs_within : within) fmt::print("{:>5.1f}%", 100 * jobs_within / count);
    fmt::print("{:>10.1f}{:>9.1f}%{:>9.2f}%\n", trials / count, 100 * (worst - 1), 100 * (mean / count - 1));
  }
  return right;
}

// 500 iterations from a bad start, each with noise, with a session that decides. What all of them take beyond
// 500 of the optimum, and how far from the optimum it ends.
void print_sessions(const std::vector<Job>& jobs) {
  constexpr int kRun = 500;
  fmt::print("\n{:<32}{:>14}{:>14}{:>16}{:>14}{:>12}\n", "500 iterations live, from", "cost, median",
             "cost, 95 %", "all in 5 %", "end in 2 %", "worst end");
  for (const bool prior : {false, true}) {
    for (const bool smallest : {true, false}) {
      std::vector<double> costs;
      int cheap = 0;
      int near = 0;
      double worst = 0;
      for (std::size_t j = 0; j < jobs.size(); ++j) {
        const Job& job = jobs[j];
        dear::tune::SessionOptions options;
        if (prior) options.tuner.prior = {.seconds = job.prior};
        const std::size_t start = smallest ? 0 : job.seconds.size() - 1;
        dear::tune::Session session(job.sizes.candidates, start, options);
        Draws draws(j + 104729);
        double cost = 0;
        for (int i = 0; i < kRun; ++i) {
          const double mean = job.seconds[session.current()];
          cost += mean / job.optimum - 1;
          session.iteration(dear::train_command::noisy_seconds(mean, kNoise, 1, draws));
        }
        const double end = job.seconds[session.current()] / job.optimum;
        costs.push_back(cost / kRun);
        cheap += costs.back() <= 0.05 ? 1 : 0;
        near += end <= kWithin ? 1 : 0;
        worst = std::max(worst, end);
      }
      std::sort(costs.begin(), costs.end());
      const auto count = static_cast<double>(jobs.size());
      fmt::print("{:<32}{:>13.2f}%{:>13.2f}%{:>15.1f}%{:>13.1f}%{:>11.1f}%\n",
                 fmt::format("{}{}", smallest ? "64 KiB" : "all in one", prior ? ", prior" : ""),
                 100 * costs[costs.size() / 2], 100 * costs[costs.size() * 95 / 100], 100 * cheap / count,
                 100 * near / count, 100 * (worst - 1));
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::size_t count = argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 200;
  std::vector<Job> jobs;
  bool right = make_jobs(count, jobs);
  if (jobs.empty()) return EXIT_FAILURE;
  std::size_t fewest = SIZE_MAX;
  std::size_t most = 0;
  for (const Job& job : jobs) {
    fewest = std::min(fewest, job.seconds.size());
    most = std::max(most, job.seconds.size());
  }
  fmt::print(
      "{} jobs, {} to {} candidates each; a trial is the median of {} iterations with {:.0f} % noise\n\n",
      jobs.size(), fewest, most, kWindow, 100 * kNoise);
  right = print_courses(jobs) && right;
  print_sessions(jobs);
  return right ? EXIT_SUCCESS : EXIT_FAILURE;
}
