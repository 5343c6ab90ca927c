#include "studies/edge/partel.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "dear/base/charts/bar_chart.h"
#include "dear/base/json/json_field.h"
#include "dear/base/os/atomic_file.h"
#include "dear/methods/edge/classification.h"
#include "dear/methods/edge/drawn_groups.h"
#include "dear/methods/edge/draws.h"

namespace dear::studies::edge {

using namespace dear::methods::edge;

namespace {

constexpr JsonFormat kFormat = {.name = "dear-published-partel", .kind = "file of figures of PARTEL"};
constexpr double kCloseLatency = 0.05, kCloseAccuracy = 0.02;
constexpr double kRounding = 1e-9;

std::size_t scheme(std::string_view name) {
  const auto& all = paba_schemes();
  return static_cast<std::size_t>(
      std::find_if(all.begin(), all.end(), [&](const PabaScheme& one) { return one.name == name; }) -
      all.begin());
}

PartelPlan plan_all(const PabaProblem& problem) {
  PartelPlan all;
  for (const PabaScheme& one : paba_schemes()) {
    const PabaPlan plan = solve_paba(problem, one.name);
    all.seconds.push_back(plan.seconds);
    if (one.name != "joint") continue;
    all.gap = plan.seconds / plan.bound_seconds - 1;
    all.residual = plan.residual;
  }
  return all;
}

// Gradient descent on all samples, which iterations of blocks compute, until the deadline.
double accuracy_after(const Classification& task, std::int64_t iterations) {
  std::vector<double> point = task.start(), mean(point.size()), one(point.size());
  codec::Draw draw = draws_of(1, Purpose::samples, 0);
  for (std::int64_t iteration = 0; iteration < iterations; ++iteration) {
    std::fill(mean.begin(), mean.end(), 0.0);
    for (int device = 0; device < task.shape().devices; ++device) {
      task.gradient(device, point, 0, draw, one);
      for (std::size_t i = 0; i < mean.size(); ++i) mean[i] += one[i] / task.shape().devices;
    }
    for (std::size_t i = 0; i < point.size(); ++i) point[i] -= 0.02 * mean[i];
  }
  return task.accuracy(point);
}

}  // namespace

PublishedPartel parse_published_partel(std::string_view text, const std::string& source) {
  const Json document = parse_json_file(text, source, kFormat);
  const JsonField root(document, source);
  root.expect_members({"format", "version", "source", "less_latency", "more_accuracy", "deadline_seconds"});
  return {.source = root.member("source").text(),
          .less_latency = root.member("less_latency").number_from_0(),
          .more_accuracy = root.member("more_accuracy").number_from_0(),
          .deadline_seconds = root.member("deadline_seconds").number_from_0()};
}

PublishedPartel read_published_partel(const std::string& path) {
  return parse_published_partel(os::read_file(path), path);
}

PartelFindings find_partel(const PublishedPartel& published, const PartelOptions& options) {
  PartelFindings findings;
  for (const auto& [groups, workers] : {std::pair{20, 1}, {10, 2}, {5, 4}}) {
    PartelCell cell{.groups = groups, .workers = workers, .seconds = {}, .half_width = {}};
    std::vector<double> saved;
    std::vector<PartelPlan> plans;
    for (int seed = 1; seed <= options.seeds; ++seed)
      plans.push_back(plan_all(
          draw_groups({.groups = groups, .workers = workers, .seed = static_cast<std::uint64_t>(seed)})));
    for (const PartelPlan& plan : plans)
      saved.push_back(1 - plan.seconds[scheme("joint")] / plan.seconds[scheme("equal")]);
    std::nth_element(saved.begin(), saved.begin() + static_cast<std::ptrdiff_t>(saved.size() / 2),
                     saved.end());
    cell.less = saved[saved.size() / 2];
    for (std::size_t number = 0; number < paba_schemes().size(); ++number) {
      double sum = 0, squares = 0;
      for (const PartelPlan& plan : plans) {
        sum += plan.seconds[number];
        squares += plan.seconds[number] * plan.seconds[number];
      }
      const double count = options.seeds, mean = sum / count;
      cell.seconds.push_back(mean);
      cell.half_width.push_back(1.96 * std::sqrt(std::max(0.0, squares / count - mean * mean) / count));
    }
    findings.cells.push_back(cell);
    findings.plans.insert(findings.plans.end(), plans.begin(), plans.end());
  }
  for (int seed = 1; seed <= options.trained; ++seed) {
    const Classification task({.samples = 20, .seed = static_cast<std::uint64_t>(seed)});
    std::vector<double> accuracies;
    for (const double seconds : findings.plans[static_cast<std::size_t>(seed - 1)].seconds)
      accuracies.push_back(
          accuracy_after(task, static_cast<std::int64_t>(published.deadline_seconds / seconds)));
    findings.accuracies.push_back(accuracies);
  }
  return findings;
}

std::vector<Statement> statements_of(const PublishedPartel& published, const PartelFindings& findings) {
  const std::size_t equal = scheme("equal"), parameters = scheme("parameters"),
                    bandwidth = scheme("bandwidth"), after = scheme("bandwidth-then-parameters"),
                    joint = scheme("joint");
  Cases less(fmt::format("Joint allocation takes {} less time than equal parts, or less still (published)",
                         percent(published.less_latency)));
  for (const PartelCell& cell : findings.cells) {
    const double share = cell.less;
    less.add(share >= published.less_latency - kCloseLatency,
             fmt::format("{} in {} groups of {}", percent(share), cell.groups, cell.workers));
  }
  Cases parts("Both allocations together are never slower than either part, and no part than equal parts");
  Cases nothing("Blocks after bandwidth gain nothing over bandwidth alone");
  Cases optimal("No plan is faster than the joint one, by its bound and the conditions of an optimum");
  int ordered = 0, same = 0, proven = 0;
  double gap = 0, residual = 0;
  for (const PartelPlan& plan : findings.plans) {
    const std::vector<double>& t = plan.seconds;
    const double most = 1 + kRounding;
    ordered += t[joint] <= most * std::min(t[parameters], t[bandwidth]) &&
                       std::max(t[parameters], t[bandwidth]) <= most * t[equal]
                   ? 1
                   : 0;
    same += std::abs(t[after] / t[bandwidth] - 1) <= kRounding ? 1 : 0;
    proven += plan.gap <= kRounding && plan.residual <= 1e-6 ? 1 : 0;
    gap = std::max(gap, plan.gap);
    residual = std::max(residual, plan.residual);
  }
  const auto all = static_cast<int>(findings.plans.size());
  parts.add(ordered == all, fmt::format("{} of {} plans", ordered, all));
  nothing.add(same == all, fmt::format("the same time in {} of {} plans", same, all));
  optimal.add(proven == all,
              fmt::format("{} of {} plans; the bound is {:.0e} below at most, the residual {:.0e}", proven,
                          all, gap, residual));
  Cases accuracy(fmt::format("At {:g} s it is {} more accurate (published)", published.deadline_seconds,
                             percent(published.more_accuracy)));
  double more = 0;
  for (const std::vector<double>& one : findings.accuracies)
    more += (one[joint] - one[equal]) / static_cast<double>(findings.accuracies.size());
  accuracy.add(std::abs(more - published.more_accuracy) <= kCloseAccuracy,
               fmt::format("{} on drawn samples", percent(more)));
  return {less.finish(), parts.finish(), nothing.finish(), optimal.finish(), accuracy.finish()};
}

std::vector<StudyFile> study_of_partel(const PublishedPartel& published, const PartelOptions& options) {
  const PartelFindings findings = find_partel(published, options);
  std::string page = fmt::format(R"(# The study of PARTEL

What was published of partitioned learning at the edge, each statement beside plans of `dear edge plan`. Written by `dear study partel`, the same bytes
everywhere that rounds alike. Nothing was sent over a radio. Of the paper only the abstract was read: cells, processors and the formulation are
this project's ({} seeds of 10 MHz up and down, 50 to 500 m, processors of 0.1 to 1 GHz). A verdict is computed, never typed.

{}
A share of time may be {} short of the published one, an accuracy differ by {}. Published figures: {}.

## Seconds of an iteration

Means over seeds, with their 95 % intervals; the first statement is of medians, since a channel in a deep fade rules the means of equal parts.

![Seconds of an iteration by allocation](latency.svg)

| cell |)",
                                 options.seeds, table_of(statements_of(published, findings)),
                                 percent(kCloseLatency), percent(kCloseAccuracy), published.source);
  std::string rule = "\n|---|";
  for (const PabaScheme& one : paba_schemes()) {
    page += fmt::format(" {} |", one.name);
    rule += "---|";
  }
  page += rule;
  nlohmann::ordered_json cells = nlohmann::ordered_json::array();
  std::vector<charts::BarPanel> panels;
  for (const PartelCell& cell : findings.cells) {
    const std::string name = fmt::format("{} groups of {}", cell.groups, cell.workers);
    page += fmt::format("\n| {} |", name);
    charts::BarPanel& panel = panels.emplace_back(charts::BarPanel{.title = name, .bars = {}});
    for (std::size_t number = 0; number < cell.seconds.size(); ++number) {
      page += fmt::format(" {:.3f} ± {:.3f} |", cell.seconds[number], cell.half_width[number]);
      panel.bars.push_back({.label = std::string(paba_schemes()[number].name),
                            .first = cell.seconds[number],
                            .half_width = cell.half_width[number]});
      cells.push_back({{"groups", cell.groups},
                       {"workers", cell.workers},
                       {"scheme", paba_schemes()[number].name},
                       {"seconds", cell.seconds[number]},
                       {"half_width", cell.half_width[number]}});
    }
  }
  page += "\n\nHow to plan for your own groups: [learning at the edge](../../edge.md).\n";
  nlohmann::ordered_json results{
      {"seeds", options.seeds}, {"cells", cells}, {"accuracies", findings.accuracies}};
  const std::string picture =
      charts::bar_chart(panels, {.title = "Seconds of an iteration, by what is allocated",
                                 .first = "mean over cells",
                                 .second = "",
                                 .mark = "",
                                 .interval = "95 % interval",
                                 .format = [](double value) { return fmt::format("{:.2f} s", value); }});
  return {{"README.md", page}, {"results.json", results.dump(2) + "\n"}, {"latency.svg", picture}};
}

}  // namespace dear::studies::edge
