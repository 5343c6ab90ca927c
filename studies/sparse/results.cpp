#include "studies/sparse/report.h"
#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "dear/base/charts/line_plot.h"

namespace dear::studies::sparse {
namespace {

using Json = nlohmann::ordered_json;

Json json_of(const MethodAccuracy& one) {
  Json rates = Json::array();
  for (const AccuracyAtRate& at_rate : one.rates) {
    Json validation = Json::array(), test = Json::array(), diverged = Json::array();
    for (const TrainedAccuracy& run : at_rate.by_seed) {
      validation.push_back(run.validation);
      test.push_back(run.test);
      diverged.push_back(run.diverged);
    }
    rates.push_back({{"learning_rate", at_rate.learning_rate},
                     {"validation", std::move(validation)},
                     {"test", std::move(test)},
                     {"diverged", std::move(diverged)}});
  }
  return {{"compression", name_of(one.setting)},
          {"best_learning_rate", one.at_best().learning_rate},
          {"mean_test", one.at_best().mean_test()},
          {"deviation", one.at_best().deviation()},
          {"rates", std::move(rates)}};
}

Json json_of(const StabilityLimit& one) {
  return {{"p", one.p},
          {"law", one.law},
          {"feedback", one.feedback},
          {"no_feedback", one.no_feedback},
          {"momentum_after", one.momentum_after},
          {"momentum_before", one.momentum_before}};
}

Json json_of(const SparseOptions& options, const CodecSpeed& one) {
  const double loses =
      studies::loses_from(line_of(options.traffic, one), studies::dense_line(options.traffic, one.ranks));
  return {{"compression", one.compression.text()},
          {"ranks", one.ranks},
          {"payload_bytes", payload_bytes(options.traffic, one.compression)},
          {"encode_seconds_per_byte", one.times.encode_seconds_per_byte},
          {"decode_seconds_per_byte", one.times.decode_seconds_per_byte},
          {"loses_from_bytes_per_second", std::isinf(loses) ? Json() : Json(loses)}};
}

// With the mean of the seeds and one standard deviation to each side.
void add_point(const AccuracyAtRate& at_rate, charts::Curve& curve) {
  const double mean = at_rate.mean_test(), deviation = at_rate.deviation();
  curve.points.emplace_back(at_rate.learning_rate, mean);
  curve.intervals.emplace_back(mean - deviation, mean + deviation);
}

studies::StudyFile learning_rates(const Findings& findings) {
  std::vector<charts::PlotPanel> panels;
  for (const std::string ratio : kRatios) {
    charts::PlotPanel panel{.title = "ratio " + ratio, .curves = {}};
    const auto add = [&](const std::string& name, const Method& method) {
      charts::Curve curve{.name = name, .points = {}, .dashed = method && !method->feedback};
      for (const AccuracyAtRate& at_rate : findings.accuracy_of(method).rates) add_point(at_rate, curve);
      panel.curves.push_back(std::move(curve));
    };
    add("dense", {});
    for (const char* const scheme : {"top-k", "random-k", "random-block"}) {
      add(fmt::format("{}, error feedback", scheme), compression_of(scheme, ratio, ",ef"));
      add(scheme, compression_of(scheme, ratio));
    }
    panels.push_back(std::move(panel));
  }
  return {"learning-rates.svg",
          charts::line_plot(panels, {.title = "Accuracy by learning rate, mean of seeds",
                                     .across = "learning rate",
                                     .upwards = "test accuracy",
                                     .format_x = [](double x) { return fmt::format("{:g}", x); },
                                     .format_y = [](double y) { return fmt::format("{:.2f}", y); },
                                     .intervals = "one standard deviation of the seeds to each side"})};
}

studies::StudyFile stability(const Findings& findings) {
  charts::PlotPanel panel{.title = "", .curves = {}};
  const auto add = [&](const char* name, double StabilityLimit::* limit, bool dashed) {
    charts::Curve curve{.name = name, .points = {}, .dashed = dashed};
    for (const StabilityLimit& one : findings.limits) curve.points.emplace_back(one.p, one.*limit);
    panel.curves.push_back(std::move(curve));
  };
  add("error feedback", &StabilityLimit::feedback, false);
  add("the law 2p/(2-p)", &StabilityLimit::law, true);
  add("without feedback", &StabilityLimit::no_feedback, false);
  add("momentum 0.9 after", &StabilityLimit::momentum_after, false);
  add("momentum 0.9 before", &StabilityLimit::momentum_before, true);
  const auto number = [](double value) { return fmt::format("{:g}", value); };
  return {"stability.svg",
          charts::line_plot({panel}, {.title = "Largest stable learning rate times curvature",
                                      .across = "p, the probability that a coordinate travels",
                                      .upwards = "limit",
                                      .logarithmic = true,
                                      .format_x = number,
                                      .format_y = number})};
}

studies::StudyFile speed(const SparseOptions& options, const Findings& findings) {
  const int ranks = options.ranks.front();
  std::vector<charts::PlotPanel> panels;
  for (const std::string ratio : kRatios) {
    charts::PlotPanel panel{.title = fmt::format("ratio {}, {} ranks", ratio, ranks), .curves = {}};
    const auto add = [&](const std::string& name, const studies::Line& line, bool dashed) {
      charts::Curve curve{.name = name, .points = {}, .dashed = dashed};
      for (const double bits : options.bits_per_second)
        curve.points.emplace_back(1e-9 * bits, 1e3 * line.seconds(bits / 8));
      panel.curves.push_back(std::move(curve));
    };
    add("dense", studies::dense_line(options.traffic, ranks), true);
    for (const char* const scheme : kSchemes)
      add(scheme, line_of(options.traffic, findings.speed_of(compression_of(scheme, ratio, ",ef"), ranks)),
          false);
    panels.push_back(std::move(panel));
  }
  const auto number = [](double value) { return fmt::format("{:g}", value); };
  return {"speed.svg", charts::line_plot(panels, {.title = "Encode, send and decode, with error feedback",
                                                  .across = "bandwidth, Gb/s",
                                                  .upwards = "milliseconds",
                                                  .logarithmic = true,
                                                  .format_x = number,
                                                  .format_y = number})};
}

}  // namespace

std::string to_json(const SparseOptions& options, const Findings& findings) {
  Json statements = Json::array(), accuracies = Json::array(), limits = Json::array(), speeds = Json::array();
  for (const studies::Statement& one : judge(findings))
    statements.push_back({{"statement", one.says},
                          {"seen", one.seen},
                          {"held", one.held},
                          {"cases", one.cases},
                          {"undecided", one.undecided},
                          {"verdict", one.verdict()}});
  for (const MethodAccuracy& one : findings.accuracies) accuracies.push_back(json_of(one));
  for (const StabilityLimit& one : findings.limits) limits.push_back(json_of(one));
  for (const CodecSpeed& one : findings.speeds.codecs) speeds.push_back(json_of(options, one));
  const Json document{
      {"statements", std::move(statements)},  {"steps", options.accuracy.steps},
      {"batch", options.accuracy.batch},      {"seeds", options.accuracy.seeds},
      {"accuracies", std::move(accuracies)},  {"stability", std::move(limits)},
      {"machine", findings.speeds.machine},   {"load", findings.speeds.load},
      {"elements", options.traffic.elements}, {"alpha_seconds", options.traffic.alpha_seconds},
      {"speeds", std::move(speeds)}};
  return document.dump(2) + "\n";
}

std::vector<studies::StudyFile> pictures_of(const SparseOptions& options, const Findings& findings) {
  return {learning_rates(findings), stability(findings), speed(options, findings)};
}

}  // namespace dear::studies::sparse
