#include "studies/kfac/convergence.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dear/base/charts/line_plot.h"
#include "dear/base/json/json_field.h"
#include "dear/base/os/atomic_file.h"

namespace dear::studies::kfac {
namespace {

struct Curve {
  std::vector<double> steps, seconds, losses;
};

struct Searched {
  std::string setting;
  double last_loss = 0;
  std::optional<std::int64_t> steps_to_target;
};

struct Rival {
  std::string optimizer, best;
  std::vector<Searched> searched;
  std::vector<std::optional<double>> steps_to_target, seconds_to_target;  // by seed
  std::vector<Curve> curves;                                              // by seed
};

struct Task {
  std::string name;
  double target = 0;
  std::int64_t batch = 0, window = 0;
  std::vector<Rival> rivals;
};

struct Measured {
  std::int64_t ranks = 0;
  std::string torch, machine;
  std::vector<Task> tasks;
};

std::vector<double> numbers(const JsonField& field) {
  std::vector<double> all;
  for (const JsonField& one : field.elements()) all.push_back(one.number());
  return all;
}

std::vector<std::optional<double>> numbers_or_none(const JsonField& field) {
  std::vector<std::optional<double>> all;
  for (const JsonField& one : field.elements())
    all.push_back(one.is_null() ? std::nullopt : std::optional(one.number_from_0()));
  return all;
}

Rival rival_in(const JsonField& field) {
  field.expect_members({"optimizer", "searched", "best", "steps_to_target", "seconds_to_target", "curves"});
  Rival rival{.optimizer = field.member("optimizer").text(),
              .best = field.member("best").text(),
              .searched = {},
              .steps_to_target = numbers_or_none(field.member("steps_to_target")),
              .seconds_to_target = numbers_or_none(field.member("seconds_to_target")),
              .curves = {}};
  for (const JsonField& one : field.member("searched").elements()) {
    one.expect_members({"setting", "last_loss", "steps_to_target"});
    const JsonField steps = one.member("steps_to_target");
    rival.searched.push_back(
        {.setting = one.member("setting").text(),
         .last_loss = one.member("last_loss").number(),
         .steps_to_target = steps.is_null() ? std::nullopt : std::optional(steps.integer())});
  }
  for (const JsonField& one : field.member("curves").elements()) {
    one.expect_members({"losses", "seconds", "steps"});
    Curve curve{.steps = numbers(one.member("steps")),
                .seconds = numbers(one.member("seconds")),
                .losses = numbers(one.member("losses"))};
    if (curve.losses.empty() || curve.steps.size() != curve.losses.size() ||
        curve.seconds.size() != curve.losses.size())
      one.fail("expected as many losses as steps and seconds, one at least");
    rival.curves.push_back(std::move(curve));
  }
  return rival;
}

Measured measured_in(const std::string& path) {
  const Json document = parse_json(os::read_file(path), path);
  const JsonField root(document, path);
  root.expect_members({"ranks", "torch", "machine", "tasks"});
  Measured measured{.ranks = root.member("ranks").integer(1, 1 << 20),
                    .torch = root.member("torch").text(),
                    .machine = root.member("machine").text(),
                    .tasks = {}};
  for (const JsonField& field : root.member("tasks").elements()) {
    field.expect_members({"task", "target", "batch", "window", "rivals"});
    Task task{.name = field.member("task").text(),
              .target = field.member("target").number(),
              .batch = field.member("batch").integer(),
              .window = field.member("window").integer(),
              .rivals = {}};
    for (const JsonField& rival : field.member("rivals").elements()) task.rivals.push_back(rival_in(rival));
    measured.tasks.push_back(std::move(task));
  }
  return measured;
}

// Takes of all seeds the middle one; none where it did not reach the target.
std::optional<double> median(std::vector<std::optional<double>> values) {
  if (values.empty()) return std::nullopt;
  std::sort(values.begin(), values.end(),
            [](const auto& a, const auto& b) { return a.value_or(1e300) < b.value_or(1e300); });
  return values[values.size() / 2];
}

std::string text_of(const std::optional<double>& value, int digits) {
  return value ? fmt::format("{:.{}f}", *value, digits) : "not reached";
}

const Rival* find(const Task& task, std::string_view optimizer) {
  for (const Rival& rival : task.rivals)
    if (rival.optimizer == optimizer) return &rival;
  return nullptr;
}

std::string verdict_of(const Task& task) {
  const Rival* const kfac = find(task, "K-FAC");
  const Rival* const sgd = find(task, "SGD");
  if (kfac == nullptr || sgd == nullptr) return "";
  const std::optional<double> ours = median(kfac->steps_to_target), theirs = median(sgd->steps_to_target);
  if (!ours) return "K-FAC did not reach the target.\n";
  if (!theirs)
    return fmt::format("K-FAC reached the target after {:.0f} iterations, SGD not at all.\n", *ours);
  return fmt::format("K-FAC reached the target in {:.2f} times SGD's iterations: at most half of them {}.\n",
                     *ours / *theirs, *ours <= *theirs / 2 ? "holds" : "does not hold");
}

std::string page_of(const Measured& measured) {
  std::string text = fmt::format(
      "# K-FAC beside SGD and AdamW\n\n"
      "```sh\n"
      "PYTHONPATH=build/release/python build/release/dear launch -n {} python bench/kfac/convergence.py "
      "FILE\n"
      "dear study kfac --convergence FILE\n"
      "```\n\n"
      "Measured: {} ranks, PyTorch {}, {}. Every optimiser trains with every setting of its grid from the "
      "same parameters on the\n"
      "same batches; the setting that reaches the target first is trained with three seeds. Losses are means "
      "of ranks over the last\n"
      "steps (below). SGD and K-FAC have momentum 0.9.\n\n"
      "![Losses by iterations and by seconds](convergence.svg)\n\n",
      measured.ranks, measured.ranks, measured.torch, measured.machine);
  for (const Task& task : measured.tasks) {
    text += fmt::format("## {}\n\nTarget loss {}, batches of {} over all ranks, losses of {} steps.\n\n",
                        task.name, task.target, task.batch, task.window);
    text +=
        "| optimiser | best setting | iterations to the target, by seed | median | seconds, median "
        "|\n|---|---|---|---|---|\n";
    for (const Rival& rival : task.rivals) {
      std::vector<std::string> steps;
      for (const auto& one : rival.steps_to_target) steps.push_back(text_of(one, 0));
      text +=
          fmt::format("| {} | {} | {} | {} | {} |\n", rival.optimizer, rival.best, fmt::join(steps, ", "),
                      text_of(median(rival.steps_to_target), 0), text_of(median(rival.seconds_to_target), 2));
    }
    text += fmt::format(
        "\n{}\nThe search, with the first seed:\n\n| optimiser | setting | last loss | iterations to the "
        "target "
        "|\n|---|---|---|---|\n",
        verdict_of(task));
    for (const Rival& rival : task.rivals)
      for (const Searched& one : rival.searched)
        text += fmt::format("| {} | {} | {} | {} |\n", rival.optimizer, one.setting,
                            one.last_loss > 1e6 ? "diverged" : fmt::format("{:.3f}", one.last_loss),
                            one.steps_to_target ? fmt::format("{}", *one.steps_to_target) : "not reached");
    text += "\n";
  }
  return text;
}

charts::PlotPanel panel_of(const Task& task, std::vector<double> Curve::* across, const std::string& axis) {
  charts::PlotPanel panel{.title = task.name, .curves = {}, .across = axis};
  double furthest = 0;
  for (const Rival& rival : task.rivals)
    for (const Curve& curve : rival.curves) {
      panel.curves.push_back({.name = rival.optimizer, .points = {}});
      for (std::size_t i = 0; i < curve.losses.size(); ++i)
        panel.curves.back().points.emplace_back((curve.*across)[i], curve.losses[i]);
      furthest = std::max(furthest, (curve.*across).back());
    }
  panel.curves.push_back({.name = "target",
                          .points = {{0, task.target}, {furthest, task.target}},
                          .dashed = true,
                          .marked = false});
  return panel;
}

std::string picture_of(const Measured& measured) {
  std::vector<charts::PlotPanel> panels;
  for (const Task& task : measured.tasks) {
    panels.push_back(panel_of(task, &Curve::steps, "iterations"));
    panels.push_back(panel_of(task, &Curve::seconds, "time, s"));
  }
  const auto number = [](double value) { return fmt::format("{:g}", value); };
  return charts::line_plot(panels, {.title = "Loss by iterations and by time, a curve for each seed",
                                    .across = "",
                                    .upwards = "loss",
                                    .logarithmic = true,
                                    .logarithmic_x = false,
                                    .format_x = number,
                                    .format_y = number,
                                    .columns = 2});
}

}  // namespace

std::vector<studies::StudyFile> convergence_of(const std::string& path) {
  const Measured measured = measured_in(path);
  return {{"convergence.md", page_of(measured)}, {"convergence.svg", picture_of(measured)}};
}

}  // namespace dear::studies::kfac
