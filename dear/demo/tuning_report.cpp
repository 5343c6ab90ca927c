#include "dear/demo/tuning_report.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "dear/base/units.h"
#include "dear/drawing/svg.h"

namespace dear::demo {
namespace {

using Json = nlohmann::ordered_json;

Json describe(const TuningReport& report, std::size_t candidate) {
  const tune::Candidate& one = report.sizes.candidates[candidate];
  Json json{{"candidate", one.name}};
  if (!one.values.empty()) json["bucket_bytes"] = std::llround(one.values.front());
  json["buckets"] = report.sizes.groupings[candidate].size();
  return json;
}

}  // namespace

std::size_t optimum_of(const TuningReport& report) {
  const std::vector<double>& seconds = report.true_seconds;
  return static_cast<std::size_t>(std::min_element(seconds.begin(), seconds.end()) - seconds.begin());
}

std::string to_json(const TuningReport& report) { return document_of(report).dump(2) + "\n"; }

Json document_of(const TuningReport& report) {
  Json trials = Json::array();
  for (const tune::Observation& trial : report.trials) {
    trials.push_back(describe(report, trial.candidate));
    trials.back()["seconds"] = trial.seconds;
  }
  Json json{{"model", report.model},    {"cluster", report.cluster},
            {"ranks", report.ranks},    {"policy", report.policy},
            {"method", report.method},  {"on", report.where},
            {"trials", trials},         {"choice", describe(report, report.choice)},
            {"settled", report.settled}};
  if (!report.true_seconds.empty()) {
    const std::size_t optimum = optimum_of(report);
    json["choice"]["true_seconds"] = report.true_seconds[report.choice];
    json["optimum"] = describe(report, optimum);
    json["optimum"]["true_seconds"] = report.true_seconds[optimum];
  }
  if (!report.expectations.empty()) {
    json["expected"] = Json::array();
    for (std::size_t i = 0; i < report.expectations.size(); ++i) {
      const tune::Expectation& expected = report.expectations[i];
      json["expected"].push_back(describe(report, i));
      json["expected"].back()["seconds"] = expected.seconds;
      json["expected"].back()["low_seconds"] = expected.low_seconds();
      json["expected"].back()["high_seconds"] = expected.high_seconds();
    }
  }
  return json;
}

namespace {

constexpr double kWidth = 860;
constexpr double kHeight = 480;
constexpr double kLeft = 90;
constexpr double kRight = kWidth - 30;
constexpr double kTop = 96;
constexpr double kBottom = kHeight - 66;
constexpr std::string_view kBand = "#cfe3f1";
constexpr std::string_view kFrame = "#888888";
constexpr std::string_view kRule = "#e6e6e6";

using Points = std::vector<std::pair<double, double>>;

class TuningPlot {
 public:
  explicit TuningPlot(const TuningReport& report)
      : report_(report), svg_(kWidth, kHeight, "Tuning of the bucket size") {
    for (std::size_t i = 0; i < report.sizes.candidates.size(); ++i)
      if (!report.sizes.candidates[i].values.empty()) sizes_.push_back(i);
    for (const tune::Observation& trial : report.trials) include(trial.seconds);
    for (const double seconds : report.true_seconds) include(seconds);
    // Beyond what was seen the band may reach far, and would leave no room for the rest.
    highest_ = std::min(highest_, 2 * lowest_);
    const double margin = 0.06 * (highest_ - lowest_) + 0.01 * lowest_;
    lowest_ -= margin;
    highest_ += margin;
  }

  std::string draw() && {
    axes();
    if (!report_.expectations.empty()) {
      band();
      svg_.polyline(curve([&](std::size_t i) { return report_.expectations[i].seconds; }),
                    drawing::kColours[0]);
    }
    if (!report_.true_seconds.empty())
      svg_.polyline(curve([&](std::size_t i) { return report_.true_seconds[i]; }), drawing::kColours[2],
                    true);
    trials();
    legend();
    return std::move(svg_).finish();
  }

 private:
  void include(double seconds) {
    lowest_ = std::min(lowest_, seconds);
    highest_ = std::max(highest_, seconds);
  }

  // The place of a candidate: a size stands on the scale, a candidate that is no size at the right.
  [[nodiscard]] double x(std::size_t candidate) const {
    const double wide = sizes_.size() < report_.sizes.candidates.size() ? kRight - 60 : kRight;
    if (report_.sizes.candidates[candidate].values.empty()) return kRight - 20;
    return kLeft + (wide - kLeft) * report_.sizes.candidates[candidate].position.front();
  }
  [[nodiscard]] double y(double seconds) const {
    const double part = (std::clamp(seconds, lowest_, highest_) - lowest_) / (highest_ - lowest_);
    return kBottom - part * (kBottom - kTop);
  }

  [[nodiscard]] Points curve(const std::function<double(std::size_t)>& seconds) const {
    Points points;
    for (const std::size_t i : sizes_) points.emplace_back(x(i), y(seconds(i)));
    return points;
  }

  void band() {
    Points outline = curve([&](std::size_t i) { return report_.expectations[i].high_seconds(); });
    const Points low = curve([&](std::size_t i) { return report_.expectations[i].low_seconds(); });
    outline.insert(outline.end(), low.rbegin(), low.rend());
    svg_.polygon(outline, kBand);
  }

  void axes() {
    svg_.text(24, 30,
              fmt::format("Bucket size of {} on {}, {} ranks: policy {}, {}", report_.model, report_.cluster,
                          report_.ranks, report_.policy, report_.method),
              {.size = 16});
    const double step = std::pow(10, std::floor(std::log10((highest_ - lowest_) / 2)));
    const double each = (highest_ - lowest_) / step > 8   ? 2 * step
                        : (highest_ - lowest_) / step < 4 ? step / 2
                                                          : step;
    for (double seconds = std::ceil(lowest_ / each) * each; seconds < highest_; seconds += each) {
      svg_.line(kLeft, y(seconds), kRight, y(seconds), kRule);
      svg_.text(kLeft - 8, y(seconds) + 4, format_seconds(seconds),
                {.anchor = drawing::Anchor::end, .size = 12});
    }
    double last = -1e9;
    for (const std::size_t i : sizes_) {
      if (x(i) - last < 76 && i != sizes_.front()) continue;
      last = x(i);
      svg_.line(last, kBottom, last, kBottom + 5, kFrame);
      svg_.text(last, kBottom + 20, report_.sizes.candidates[i].name,
                {.anchor = drawing::Anchor::middle, .size = 12});
    }
    for (std::size_t i = 0; i < report_.sizes.candidates.size(); ++i)
      if (report_.sizes.candidates[i].values.empty())
        svg_.text(x(i), kBottom + 20, report_.sizes.candidates[i].name,
                  {.anchor = drawing::Anchor::middle, .size = 12});
    svg_.line(kLeft, kBottom, kRight, kBottom, kFrame);
    svg_.line(kLeft, kTop, kLeft, kBottom, kFrame);
    svg_.text((kLeft + kRight) / 2, kHeight - 18, "bucket size", {.anchor = drawing::Anchor::middle});
    svg_.text(20, (kTop + kBottom) / 2, "iteration", {.anchor = drawing::Anchor::middle, .upwards = true});
  }

  void trials() {
    svg_.line(x(report_.choice), kTop, x(report_.choice), kBottom, "black");
    for (std::size_t t = 0; t < report_.trials.size(); ++t) {
      const auto& [candidate, seconds] = report_.trials[t];
      svg_.circle(x(candidate), y(seconds), 5, drawing::kColours[1]);
      svg_.text(x(candidate) + 8, y(seconds) - 5, std::to_string(t + 1), {.size = 12});
    }
  }

  void legend() {
    double at = kLeft;
    const auto entry = [&](std::string_view colour, double height, std::string_view words) {
      svg_.rectangle(at, 57 - height / 2, 20, height, colour);
      svg_.text(at + 26, 61, words);
      at += 60 + 7 * static_cast<double>(words.size());
    };
    entry(drawing::kColours[1], 10, "trials");
    if (!report_.expectations.empty()) {
      entry(drawing::kColours[0], 3, "expected");
      entry(kBand, 13, "one deviation");
    }
    if (!report_.true_seconds.empty()) entry(drawing::kColours[2], 3, "truth");
    entry("black", 2, "choice");
  }

  const TuningReport& report_;
  drawing::Svg svg_;
  std::vector<std::size_t> sizes_;
  double lowest_ = std::numeric_limits<double>::infinity();
  double highest_ = 0;
};

}  // namespace

std::string plot(const TuningReport& report) { return TuningPlot(report).draw(); }

}  // namespace dear::demo
