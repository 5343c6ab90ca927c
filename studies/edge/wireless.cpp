#include "studies/edge/wireless.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "dear/base/charts/line_plot.h"
#include "dear/methods/edge/classification.h"
#include "dear/methods/edge/over_the_air.h"

namespace dear::studies::edge {

using namespace dear::methods::edge;

namespace {

constexpr std::int64_t kElements = 210;  // of the model
constexpr int kRepeats = 5;  // channel uses for each pair of elements, in the comparison of errors
constexpr int kBits = 8;     // of an element over a digital link
constexpr const char* kSchedulers[] = {"random", "round-robin", "best-channel", "bn2", "bc-bn2", "age-based"};

EdgeSettings settings_of(const WirelessOptions& options, std::uint64_t seed) {
  // Updates as large as those of a model of 200,000 parameters over 10 MHz: the band shrinks with the model.
  EdgeSettings settings{.cohort = 4, .rounds = 100'000, .seconds = options.seconds, .seed = seed};
  settings.cell.bandwidth_hz = 2e4;
  return settings;
}

double last_accuracy(const std::vector<EdgeRound>& rounds) {
  const std::size_t tenth = std::max<std::size_t>(1, rounds.size() / 10);
  double sum = 0;
  for (std::size_t round = rounds.size() - tenth; round < rounds.size(); ++round)
    sum += rounds[round].accuracy;
  return sum / static_cast<double>(tenth);
}

const Learnt* found(const WirelessFindings& findings, std::string_view name, Split split) {
  for (const Learnt& one : findings.schedulers)
    if (one.name == name && one.split == split) return &one;
  return nullptr;
}

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

// Student's t of a 95 % interval around the mean of so many values; infinite for one.
double student(std::size_t count) {
  constexpr std::array kT{12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262};
  if (count < 2) return INFINITY;
  return count - 2 < kT.size() ? kT[count - 2] : 2.262;  // beyond, an interval that is too wide
}

// Seed by seed, of which luck is shared: how much larger the first are, and the half of the 95 % interval of
// that. Within it around 0 they are undecided.
struct Difference {
  double middle = 0, half = 0;
  [[nodiscard]] Judged judged() const {
    if (middle > half) return Judged::holds;
    return middle < -half ? Judged::fails : Judged::undecided;
  }
};
Difference difference_of(const std::vector<double>& one, const std::vector<double>& other) {
  std::vector<double> differences;
  for (std::size_t seed = 0; seed < one.size(); ++seed) differences.push_back(one[seed] - other[seed]);
  const double middle = mean(differences);
  double squares = 0;
  for (const double difference : differences) squares += std::pow(difference - middle, 2);
  const auto count = static_cast<double>(differences.size());
  const double half =
      count < 2 ? INFINITY : student(differences.size()) * std::sqrt(squares / (count - 1) / count);
  return {.middle = middle, .half = half};
}

Judged at_least(const Learnt& one, const Learnt& other, std::string& seen) {
  const Difference difference = difference_of(one.accuracies, other.accuracies);
  seen = fmt::format("{:+.1f} ± {:.1f} points beside {}", 100 * difference.middle, 100 * difference.half,
                     other.name);
  return difference.judged();
}

}  // namespace

WirelessOptions quick_wireless() { return {.seeds = 2, .seconds = 6, .noise_rounds = 60}; }

WirelessFindings find_wireless(const WirelessOptions& options, const Progress& progress) {
  WirelessFindings findings;
  Pieces pieces(progress, "training", 2 * std::size(kSchedulers) + 4);
  for (const Split split : {Split::iid, Split::sorted})
    for (const char* const name : kSchedulers) {
      Learnt& learnt = findings.schedulers.emplace_back(
          Learnt{.name = name, .split = split, .accuracies = {}, .first = {}});
      for (int seed = 1; seed <= options.seeds; ++seed) {
        const auto number = static_cast<std::uint64_t>(seed);
        const Classification task({.split = split, .tested = 500, .seed = number});
        EdgeSettings settings = settings_of(options, number);
        settings.scheduler = name;
        std::vector<EdgeRound> rounds = run_edge(settings, task);
        learnt.accuracies.push_back(last_accuracy(rounds));
        if (seed == 1) learnt.first = std::move(rounds);
      }
      pieces.done_one();
    }
  for (const int devices : {5, 10, 20, 80})
    for (double snr_db = -30; snr_db <= 44; snr_db += 2) {
      const double snr = std::pow(10, snr_db / 10);
      // Elements of variance 1, so that their mean has 1 / devices. Analogue symbols are repeated, and the
      // sum is scaled as errs least. A digital device has a part of the channel, and all its power in it; the
      // distortion of a normal source by its rate is the least that any code has.
      const double error = mean_squared_error({.threshold = 0.05, .snr = kRepeats * snr},
                                              std::vector<double>(static_cast<std::size_t>(devices), 1.0), 1);
      const double variance = 1.0 / devices;
      findings.errors.push_back({.devices = devices,
                                 .snr_db = snr_db,
                                 .analogue = variance * error / (variance + error),
                                 .digital = variance * std::pow(1 + devices * snr, -variance * kRepeats)});
    }
  const Classification task({.split = Split::sorted, .tested = 500});
  EdgeSettings flat = settings_of(options, 1);
  flat.cycles_per_sample = 2e4;  // the radio takes the time, not computing
  EdgeSettings small = flat;
  flat.cohort = 20;
  small.aggregator = "hierarchical";
  const std::vector<EdgeRound> in_one = run_edge(flat, task), in_cells = run_edge(small, task);
  const double common = 0.99 * std::min(last_accuracy(in_one), last_accuracy(in_cells));
  const auto when = [&](const std::vector<EdgeRound>& rounds) {
    return std::find_if(rounds.begin(), rounds.end(),
                        [&](const EdgeRound& one) { return one.accuracy >= common; })
        ->seconds;
  };
  findings.flat_seconds = when(in_one);
  findings.hierarchical_seconds = when(in_cells);
  pieces.done_one();
  small.cell.bandwidth_hz *= small.cells;  // each cell has the whole band
  findings.reusing_seconds = when(run_edge(small, task));
  pieces.done_one();
  for (const char* const name : {"over-the-air", "over-the-air-fixed"}) {
    for (int seed = 1; seed <= options.seeds; ++seed) {
      EdgeSettings settings = settings_of(options, static_cast<std::uint64_t>(seed));
      settings.aggregator = name;
      settings.cohort = 20;
      settings.batch = 0;
      settings.local_steps = 1;
      settings.seconds = 0;
      settings.rounds = options.noise_rounds;
      settings.air.snr = 0.1;
      (name == std::string_view("over-the-air") ? findings.following_losses : findings.fixed_losses)
          .push_back(
              run_edge(settings, Classification({.tested = 10, .seed = static_cast<std::uint64_t>(seed)}))
                  .back()
                  .loss);
    }
    pieces.done_one();
  }
  return findings;
}

std::vector<Statement> statements_of(const WirelessFindings& findings) {
  std::vector<Statement> all;
  Cases update("With sorted samples bc-bn2 is at least as accurate as either of its criteria (2001.10402)");
  for (const char* const other : {"best-channel", "bn2"}) {
    const Learnt *one = found(findings, "bc-bn2", Split::sorted),
                 *beside = found(findings, other, Split::sorted);
    if (one == nullptr || beside == nullptr) continue;
    std::string seen;
    const Judged judged = at_least(*one, *beside, seen);
    update.add(judged, seen);
  }
  all.push_back(update.finish());
  Cases classes(
      "Devices with the best channels alone do not teach all classes: with sorted samples random ones are "
      "more accurate");
  if (const Learnt *one = found(findings, "random", Split::sorted),
      *other = found(findings, "best-channel", Split::sorted);
      one != nullptr && other != nullptr) {
    std::string seen;
    const Judged judged = at_least(*one, *other, seen);
    classes.add(judged, seen);
  }
  all.push_back(classes.finish());
  Cases crossing(
      "At equal channel uses analogue sums err less at low, digital links at high signal-to-noise ratios");
  Cases many("The more devices, the higher the ratio from which on digital links err less");
  double before = -INFINITY;
  bool grows = true, looked = false;
  for (const int devices : {5, 10, 20}) {
    double cross = INFINITY;
    bool low = false;
    for (const AirOrDigital& one : findings.errors) {
      if (one.devices != devices) continue;
      if (cross == INFINITY && one.digital < one.analogue) cross = one.snr_db;
      low = low || (cross == INFINITY && one.analogue < one.digital);
    }
    crossing.add(low && cross < INFINITY, cross < INFINITY
                                              ? fmt::format("{} devices: from {:g} dB on", devices, cross)
                                              : fmt::format("{} devices: nowhere", devices));
    grows = grows && cross >= before && cross < INFINITY;
    before = cross;
    looked = true;
  }
  if (looked) many.add(grows, "see above");
  all.push_back(crossing.finish());
  all.push_back(many.finish());
  Cases cells("Averages in small cells reach an accuracy sooner than one cell (1909.02362)");
  const bool sooner = findings.hierarchical_seconds < findings.flat_seconds;
  const bool reusing = findings.reusing_seconds < findings.flat_seconds;
  cells.add(
      sooner != reusing ? Judged::not_comparable
      : sooner          ? Judged::holds
                        : Judged::fails,
      fmt::format("{:.2f} s with a part of the band each, {:.2f} s with the whole, {:.2f} s in one cell",
                  findings.hierarchical_seconds, findings.reusing_seconds, findings.flat_seconds));
  all.push_back(cells.finish());
  Cases precoding(
      "Symbols whose scale follows the updates reach a lower loss than a fixed scale (2009.12787)");
  const Difference lower = difference_of(findings.fixed_losses, findings.following_losses);
  precoding.add(lower.judged(), fmt::format("{:.4f} ± {:.4f} lower than {:.4f}", lower.middle, lower.half,
                                            mean(findings.fixed_losses)));
  all.push_back(precoding.finish());
  return all;
}

namespace {

std::string number(double value) { return fmt::format("{:.3g}", value); }

std::string accuracy_plot(const WirelessFindings& findings) {
  std::vector<charts::PlotPanel> panels;
  for (const Split split : {Split::iid, Split::sorted}) {
    charts::PlotPanel& panel = panels.emplace_back(charts::PlotPanel{
        .title = split == Split::iid ? "samples at random" : "samples sorted by class", .curves = {}});
    for (const Learnt& one : findings.schedulers) {
      if (one.split != split) continue;
      charts::Curve& curve = panel.curves.emplace_back(charts::Curve{.name = one.name, .points = {}});
      const std::size_t step = std::max<std::size_t>(1, one.first.size() / 60);
      for (std::size_t round = 0; round < one.first.size(); round += step)
        curve.points.emplace_back(one.first[round].seconds, one.first[round].accuracy);
    }
  }
  return charts::line_plot(panels, {.title = "Accuracy on other samples, of one seed",
                                    .across = "virtual time in seconds",
                                    .upwards = "accuracy",
                                    .logarithmic_x = false,
                                    .format_x = number,
                                    .format_y = number});
}

std::string error_plot(const WirelessFindings& findings) {
  charts::PlotPanel panel{.title = "", .curves = {}};
  for (const int devices : {5, 20, 80})
    for (const bool analogue : {true, false}) {
      charts::Curve& curve = panel.curves.emplace_back(
          charts::Curve{.name = fmt::format("{}, {} devices", analogue ? "over the air" : "digital", devices),
                        .points = {},
                        .dashed = !analogue});
      for (const AirOrDigital& one : findings.errors)
        if (one.devices == devices)
          curve.points.emplace_back(one.snr_db, analogue ? one.analogue : one.digital);
    }
  return charts::line_plot({panel}, {.title = "Error of a mean at equal channel uses",
                                     .across = "signal-to-noise ratio in dB",
                                     .upwards = "mean squared error",
                                     .logarithmic = true,
                                     .logarithmic_x = false,
                                     .format_x = number,
                                     .format_y = number});
}

}  // namespace

std::vector<StudyFile> study_of_wireless(const WirelessOptions& options, const Progress& progress) {
  const WirelessFindings findings = find_wireless(options, progress);
  std::string page = fmt::format(R"(# The study of learning over wireless networks

What papers on learning over radio state, each statement beside virtual time of `dear edge run`. Written by `dear study wireless`, the same bytes everywhere that
rounds alike. Nothing was sent over a radio, samples are drawn, and of the papers the abstracts were read: this tries their statements in a cell of
this project's, not their experiments. 20 devices, logistic regression on 10 classes, {} seeds, {:g} s of virtual time; the band is 20 kHz, so that
210 parameters take as long as 105,000 over 10 MHz. A verdict is computed, never typed; a difference within its 95 % interval is undecided.

{}
Digital links take {:.2f} times as many channel uses as analogue sums for each device ({} bits an element, 20 dB), whatever their number: that they grow in proportion (1812.11494) is
how both are counted, and nothing could have spoken against it.

## Schedulers

Mean accuracy at the end. [What each takes](../../edge.md#train-over-radio).

![Accuracy against virtual time by scheduler](schedulers.svg)

| scheduler | samples at random | sorted by class |
|---|---|---|
)",
                                 options.seeds, options.seconds, table_of(statements_of(findings)),
                                 digital_uses(kBits * kElements, 100) / analogue_uses(kElements), kBits);
  nlohmann::ordered_json results{{"seeds", options.seeds}, {"seconds", options.seconds}};
  for (const char* const name : kSchedulers)
    page +=
        fmt::format("| {} | {:.3f} | {:.3f} |\n", name, mean(found(findings, name, Split::iid)->accuracies),
                    mean(found(findings, name, Split::sorted)->accuracies));
  for (const Learnt& one : findings.schedulers)
    results["schedulers"].push_back({{"scheduler", one.name},
                                     {"split", one.split == Split::iid ? "iid" : "sorted"},
                                     {"accuracies", one.accuracies}});
  for (const AirOrDigital& one : findings.errors)
    results["errors"].push_back({{"devices", one.devices},
                                 {"snr_db", one.snr_db},
                                 {"analogue", one.analogue},
                                 {"digital", one.digital}});
  page += R"(
## Small cells

Four cells of half the radius have a quarter of the band and of the devices each, so no two disturb each other; they average four times before their base stations do.
Where nothing of the band is used twice, what the shorter ways gain is lost again, for the slowest cell counts. Where each cell has the whole band, and none disturbs another, they are as near to
the paper's, which share one band, as this model comes: it has no interference. So the statement is compared under both, and where they differ it is not comparable.

## Over the air or digital

Five channel uses for each pair of elements, for all devices together. A digital device has an equal part of them and the least error that any code has;
analogue sums repeat their symbols, by truncated inversion with a threshold of 0.05, whose silent devices are an error that no power removes. With 80 devices
digital links err more at every ratio of the picture.

![Error over the signal-to-noise ratio](errors.svg)
)";
  return {{"README.md", page},
          {"results.json", results.dump(2) + "\n"},
          {"schedulers.svg", accuracy_plot(findings)},
          {"errors.svg", error_plot(findings)}};
}

}  // namespace dear::studies::edge
