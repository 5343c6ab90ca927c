#include "studies/sparse/report.h"

#include "studies/sparse/sweeps.h"
#include "studies/training/paired.h"
#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dear/base/vocabulary/units.h"

namespace dear::studies::sparse {
namespace {

constexpr const char* kIntroduction = R"(# The study of sparse communication

What is said of sparse communication (Eghlidi and Jaggi 2020, arXiv 2009.09271), each statement beside
what DeAR's own codecs show. Written by `dear study sparse`. The paper's numbers were not available to us, so
every table here is ours alone; but for the one of the abstract, the statements are those that follow from the
algorithms. A verdict is computed, never typed: the rules stand below the table.

)";

std::string rules() {
  return fmt::format(
      "Methods are compared task by task: a figure is the mean of the differences in accuracy and half the "
      "width of its interval of 95 % (Student's t). Accuracies are close where the whole interval is within "
      "{} of 0, and not where all of it is beyond; something learns better where the whole interval is above "
      "0, and does not where none of it is; all else is undecided. Learning rates are chosen on other "
      "samples. "
      "Of "
      "so many intervals one in twenty misses by chance. A learning rate is about another where "
      "neither is more than {} times the other; a limit is the law's to {} of it. The learning rates "
      "searched "
      "are about 3.3 times apart.\n\n",
      kClose, kAbout, kOfTheLaw);
}

std::string statements_of(const std::vector<studies::Statement>& statements) {
  return "## What is said, and what we saw\n\n" + studies::table_of(statements) + "\n" + rules();
}

std::string accuracies_of(const AccuracyOptions& options, const Findings& findings) {
  const PerceptronShape& model = options.task.model;
  std::string text = fmt::format(
      "## Accuracy\n\nA perceptron of {} parameters ({} inputs, two hidden layers of {}, {} classes) learns "
      "Gaussian inputs that a random teacher of the same shape labels: {} samples for each of {} workers, {} "
      "steps of batches of {} a worker, momentum 0.9. Each worker encodes its own gradient, and the "
      "optimiser "
      "gets the mean of what they carry. Every tensor is encoded, biases as well. Momentum acts after the "
      "communication unless the compression has its own. Of learning rates {} the best is that of the "
      "highest "
      "mean accuracy on {} samples for validation; the accuracy is that on as many others: mean and standard "
      "deviation over {} seeds, each of a task, initial parameters and batches of its own. The "
      "deviation is more that of tasks than of methods: to compare two of them, see the differences "
      "above.\n\n"
      "![Accuracy by learning rate](learning-rates.svg)\n\n"
      "| compression | best learning rate | accuracy | at dense SGD's rate | diverged "
      "|\n|---|---|---|---|---|\n",
      model.parameters(), model.inputs, model.hidden, model.classes, options.task.samples_of_worker,
      options.task.workers, options.steps, options.batch, fmt::join(options.learning_rates, ", "),
      options.task.samples_of_validation, options.seeds);
  const std::size_t dense = findings.accuracy_of({}).best;
  for (const MethodAccuracy& one : findings.accuracies) {
    if (is_of_sweeps_alone(one.setting)) continue;
    int diverged = 0;
    for (const AccuracyAtRate& at_rate : one.rates)
      for (const TrainedAccuracy& run : at_rate.by_seed) diverged += run.diverged ? 1 : 0;
    text += fmt::format(
        "| `{}` | {} | {} | {:.3f} | {} of {} |\n", name_of(one.setting), one.at_best().learning_rate,
        training::mean_text(one.at_best().mean_test(), one.at_best().deviation(),
                            one.at_best().by_seed.size()),
        one.rates[dense].mean_test(), diverged, one.rates.size() * static_cast<std::size_t>(options.seeds));
  }
  return text + "\n";
}

std::string sweeps_of(const Findings& findings) {
  std::string text = fmt::format(
      "## Around the communication\n\nThe same task, at ratio {}, with error feedback: accuracy at the best "
      "learning rate, and this rate.\n\n",
      kRatios[0]);
  for (const Sweep& sweep : sweeps(findings)) text += text_of(sweep, findings);
  return text;
}

std::string limits_of(const std::vector<StabilityLimit>& limits) {
  std::string text =
      "## Stability\n\nThe largest learning rate times curvature with which gradient descent on a parabola "
      "is "
      "stable in mean square, where the gradient travels with probability p (a coordinate's under random-k "
      "of "
      "ratio p): found by bisection on the operator of the second moments of what `codec::Feedback` does. "
      "The "
      "law is of error feedback without momentum. Without feedback the limit does not depend on p; momentum "
      "costs the same on either side of the communication.\n\n![Stability](stability.svg)\n\n"
      "| p | law 2p/(2-p) | error feedback | without feedback | with feedback, momentum 0.9 after | and "
      "before "
      "|\n|---|---|---|---|---|---|\n";
  for (const StabilityLimit& one : limits)
    text += fmt::format("| {} | {:.6f} | {:.6f} | {:.4f} | {:.6f} | {:.6f} |\n", one.p, one.law, one.feedback,
                        one.no_feedback, one.momentum_after, one.momentum_before);
  return text + "\n";
}

std::string codecs_of(const SparseOptions& options, const Findings& findings) {
  const double bytes = 4 * static_cast<double>(options.traffic.elements);
  std::string text = fmt::format(
      "## Speed\n\nSelecting and packing (encoding) and decoding, with a look for NaN and infinity at each "
      "mean, were measured on this machine, {}, load "
      "{:.1f}, on "
      "one thread, and are given for gradients of {}, in milliseconds: medians. Under a load above 1 times "
      "are "
      "too long, and not all by the same factor: other programs ran. With error feedback a residual is added "
      "before and what remains is kept.\n\n| compression | a rank's payload | select and pack | with "
      "error feedback |",
      findings.speeds.machine, findings.speeds.load, format_bytes(static_cast<std::int64_t>(bytes)));
  std::string rule = "\n|---|---|---|---|";
  for (const int ranks : options.ranks) {
    text += fmt::format(" decode, {} ranks |", ranks);
    rule += "---|";
  }
  text += rule + "\n";
  for (const Compression& compression : options.measured) {
    if (compression.feedback) continue;
    Compression fed_back = compression;
    fed_back.feedback = true;
    const auto encode = [&](const Compression& one) {
      return studies::milliseconds(
          bytes * findings.speed_of(one, options.ranks.front()).times.encode_seconds_per_byte);
    };
    text += fmt::format("| `{}` | {} | {} | {} |", compression.text(),
                        format_bytes(payload_bytes(options.traffic, compression)), encode(compression),
                        encode(fed_back));
    for (const int ranks : options.ranks)
      text += fmt::format(
          " {} |",
          studies::milliseconds(bytes * findings.speed_of(compression, ranks).times.decode_seconds_per_byte));
    text += "\n";
  }
  return text + "\n";
}

std::string sending_of(const SparseOptions& options, const Findings& findings) {
  const int ranks = options.ranks.front();
  std::string text = fmt::format(
      "An iteration's communication in milliseconds, nothing hidden under computation, {} ranks: encode with "
      "error feedback, send, decode. Sending is computed, not measured: a ring all-reduce of the payload "
      "where "
      "indices are shared, else a ring all-gather of all payloads, in closed form, {} a message. The last "
      "columns say from which bandwidth on a scheme takes longer than a dense all-reduce.\n\n"
      "![Time by bandwidth](speed.svg)\n\n| compression |",
      ranks, format_seconds(options.traffic.alpha_seconds));
  std::string rule = "\n|---|";
  for (const double bits : options.bits_per_second) {
    text += fmt::format(" {:g} Gb/s |", 1e-9 * bits);
    rule += "---|";
  }
  for (const int size : options.ranks) {
    text += fmt::format(" loses from, {} ranks |", size);
    rule += "---|";
  }
  text += rule + "\n";
  const auto row = [&](const std::string& name, const studies::Line& line) {
    text += fmt::format("| `{}` |", name);
    for (const double bits : options.bits_per_second)
      text += fmt::format(" {} |", studies::milliseconds(line.seconds(bits / 8)));
  };
  row("dense", studies::dense_line(options.traffic, ranks));
  for (std::size_t i = 0; i < options.ranks.size(); ++i) text += " |";
  text += "\n";
  for (const Compression& compression : options.measured) {
    if (!compression.feedback) continue;
    row(compression.text(), line_of(options.traffic, findings.speed_of(compression, ranks)));
    for (const int size : options.ranks)
      text += fmt::format(" {} |", studies::bandwidth_text(studies::loses_from(
                                       line_of(options.traffic, findings.speed_of(compression, size)),
                                       studies::dense_line(options.traffic, size))));
    text += "\n";
  }
  return text +
         "\nHow much of it is hidden under computation, which moves these borders, is what `dear plan "
         "--compress` says of a model and a network.\n";
}

}  // namespace

std::string report_of(const SparseOptions& options, const Findings& findings) {
  return kIntroduction + statements_of(judge(findings)) + accuracies_of(options.accuracy, findings) +
         sweeps_of(findings) + limits_of(findings.limits) + codecs_of(options, findings) +
         sending_of(options, findings);
}

}  // namespace dear::studies::sparse
