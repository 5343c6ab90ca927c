#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "dear/base/charts/layout.h"
#include "dear/base/charts/svg.h"
#include "dear/base/vocabulary/counted.h"
#include "dear/base/vocabulary/ids.h"
#include "dear/systems/train_command/tuning_report.h"

namespace dear::train_command {
namespace {

using charts::Anchor;
using charts::kColours;
using charts::kMargin;
using charts::Svg;

constexpr double kFieldWidth = 740, kFieldHeight = 320;
constexpr double kBelowField = 66, kApart = 60;  // kApart: room for candidates that are no size
constexpr int kSteps = 7;                        // at most, of the seconds' axis
constexpr std::string_view kChosen = "black";

using Points = std::vector<std::pair<double, double>>;

// Seconds of an axis from `low` to `high`, in one unit and with as many digits as its steps need.
class Seconds {
 public:
  explicit Seconds(const TuningReport& report) {
    for (const tune::Observation& trial : report.trials) include(trial.seconds);
    for (const double seconds : report.true_seconds) include(seconds);
    if (low_ > high_)
      for (const tune::Expectation& expected : report.expectations) include(expected.seconds);
    if (low_ > high_) low_ = high_ = 1;
    high_ = std::min(high_, 2 * low_);  // one slow trial would leave no room for the rest
    const double margin = 0.06 * (high_ - low_) + 0.01 * low_;
    low_ -= margin;
    high_ += margin;
    step_ = charts::round_step((high_ - low_) / kSteps);
    for (const auto& [seconds, unit] : {std::pair{1.0, "s"}, {1e-3, "ms"}, {1e-6, "us"}}) {
      scale_ = seconds;
      unit_ = unit;
      if (high_ >= seconds) break;
    }
  }
  [[nodiscard]] double part(double seconds) const {
    return (std::clamp(seconds, low_, high_) - low_) / (high_ - low_);
  }
  [[nodiscard]] bool beyond(double seconds) const { return seconds > high_; }
  [[nodiscard]] std::vector<double> ticks() const {
    std::vector<double> ticks;
    for (double i = std::ceil(low_ / step_); i * step_ <= high_; ++i) ticks.push_back(i * step_);
    return ticks;
  }
  [[nodiscard]] std::string text(double seconds) const {
    int digits = 0;
    for (double step = step_ / scale_; digits < 6 && std::abs(step - std::round(step)) > 1e-6 * step;
         step *= 10)
      ++digits;
    return fmt::format("{:.{}f} {}", seconds / scale_, digits, unit_);
  }

 private:
  void include(double seconds) {
    if (!std::isfinite(seconds) || seconds <= 0) return;
    low_ = std::min(low_, seconds);
    high_ = std::max(high_, seconds);
  }
  double low_ = std::numeric_limits<double>::infinity(), high_ = 0, step_ = 0, scale_ = 1;
  std::string_view unit_;
};

struct Key {
  std::function<void(Svg& svg, double x, double y)> sign;
  std::string words;
};
constexpr double kSign = 32;

std::vector<Key> legend_of(const TuningReport& report, const Seconds& axis) {
  std::vector<Key> keys{{[](Svg& svg, double x, double y) { svg.circle(x + 12, y, 5, kColours[1]); },
                         "trials, in their order"}};
  if (!report.expectations.empty()) {
    keys.push_back(
        {[](Svg& svg, double x, double y) { svg.polyline({{x, y}, {x + 24, y}}, kColours[0]); }, "expected"});
    keys.push_back({[](Svg& svg, double x, double y) { svg.rectangle(x, y - 6, 24, 13, charts::kBand); },
                    "one standard deviation"});
  }
  if (!report.true_seconds.empty())
    keys.push_back(
        {[](Svg& svg, double x, double y) { svg.polyline({{x, y}, {x + 24, y}}, kColours[2], true); },
         "true time"});
  keys.push_back({[](Svg& svg, double x, double y) { svg.line(x + 12, y - 7, x + 12, y + 7, kChosen, 2); },
                  report.settled ? "choice" : "best so far"});
  if (std::any_of(report.trials.begin(), report.trials.end(),
                  [&axis](const tune::Observation& trial) { return axis.beyond(trial.seconds); }))
    keys.push_back({[](Svg& svg, double x, double y) {
                      svg.polygon({{x + 12, y - 6}, {x + 18, y + 5}, {x + 6, y + 5}}, kColours[1]);
                    },
                    "a trial that took longer than the axis reaches"});
  return keys;
}

class TuningPlot {
 public:
  explicit TuningPlot(const TuningReport& report)
      : report_(report),
        seconds_(report),
        keys_(legend_of(report, seconds_)),
        left_(kMargin + 40 + width_of_ticks()),
        width_(left_ + kFieldWidth + kMargin),
        title_(charts::wrapped(
            fmt::format("Bucket size of {} on {}, {}: policy {}, {}", report.model, report.cluster,
                        counted(index_of(report.ranks), "rank"), report.policy, report.method),
            charts::kTitleSize, width_ - 2 * kMargin)),
        flow_(charts::flow(widths(), width_ - 2 * kMargin, 22)),
        legend_(34 + charts::kTitleRow * static_cast<double>(title_.size())),
        top_(legend_ + flow_.height + 14),
        bottom_(top_ + kFieldHeight),
        svg_(width_, bottom_ + kBelowField, "Tuning of the bucket size") {
    for (std::size_t i = 0; i < report.sizes.candidates.size(); ++i)
      if (!report.sizes.candidates[i].values.empty()) sizes_.push_back(i);
  }

  std::string draw() && {
    if (!report_.expectations.empty()) band();
    axes();
    if (!report_.expectations.empty())
      svg_.polyline(curve([&](std::size_t i) { return report_.expectations[i].seconds; }), kColours[0]);
    if (!report_.true_seconds.empty())
      svg_.polyline(curve([&](std::size_t i) { return report_.true_seconds[i]; }), kColours[2], true);
    trials();
    for (std::size_t i = 0; i < title_.size(); ++i)
      svg_.text(kMargin, 30 + charts::kTitleRow * static_cast<double>(i), title_[i],
                {.size = charts::kTitleSize});
    for (std::size_t i = 0; i < keys_.size(); ++i) {
      const double x = kMargin + flow_.places[i].first, y = legend_ + flow_.places[i].second;
      keys_[i].sign(svg_, x, y);
      svg_.text(x + kSign, y + 4, keys_[i].words);
    }
    return std::move(svg_).finish();
  }

 private:
  [[nodiscard]] double width_of_ticks() const {
    double width = 0;
    for (const double tick : seconds_.ticks())
      width = std::max(width, charts::text_width(seconds_.text(tick), 12));
    return width;
  }
  [[nodiscard]] std::vector<double> widths() const {
    std::vector<double> widths;
    for (const Key& key : keys_) widths.push_back(kSign + charts::text_width(key.words) + 24);
    return widths;
  }

  // The place of a candidate: a size stands on the scale, a candidate that is no size at the right.
  [[nodiscard]] double x(std::size_t candidate) const {
    const bool apart = sizes_.size() < report_.sizes.candidates.size();
    if (report_.sizes.candidates[candidate].values.empty()) return left_ + kFieldWidth - kApart / 3;
    return left_ +
           (kFieldWidth - (apart ? kApart : 0)) * report_.sizes.candidates[candidate].position.front();
  }
  [[nodiscard]] double y(double seconds) const { return bottom_ - seconds_.part(seconds) * kFieldHeight; }

  [[nodiscard]] Points curve(const std::function<double(std::size_t)>& seconds) const {
    Points points;
    for (const std::size_t i : sizes_) points.emplace_back(x(i), y(seconds(i)));
    return points;
  }

  void band() {
    Points outline = curve([&](std::size_t i) { return report_.expectations[i].high_seconds(); });
    const Points low = curve([&](std::size_t i) { return report_.expectations[i].low_seconds(); });
    outline.insert(outline.end(), low.rbegin(), low.rend());
    svg_.polygon(outline, charts::kBand);
  }

  void axes() {
    for (const double tick : seconds_.ticks()) {
      svg_.line(left_, y(tick), left_ + kFieldWidth, y(tick), charts::kRule);
      svg_.text(left_ - 8, y(tick) + 4, seconds_.text(tick), {.anchor = Anchor::end, .size = 12});
    }
    double free = -1e9;  // where the next name may begin
    for (std::size_t i = report_.sizes.candidates.size(); i-- > 0;)
      if (report_.sizes.candidates[i].values.empty()) name(i);
    for (const std::size_t i : sizes_) {
      const double half = charts::text_width(report_.sizes.candidates[i].name, 12) / 2;
      if (x(i) - half < free) continue;
      free = x(i) + half + 8;
      name(i);
    }
    svg_.line(left_, bottom_, left_ + kFieldWidth, bottom_).line(left_, top_, left_, bottom_);
    svg_.text(left_ + kFieldWidth / 2, bottom_ + 46, "bucket size", {.anchor = Anchor::middle});
    svg_.text(kMargin + 8, (top_ + bottom_) / 2, "time of an iteration",
              {.anchor = Anchor::middle, .upwards = true});
  }

  void name(std::size_t candidate) {
    svg_.line(x(candidate), bottom_, x(candidate), bottom_ + 5);
    svg_.text(x(candidate), bottom_ + 20, report_.sizes.candidates[candidate].name,
              {.anchor = Anchor::middle, .size = 12});
  }

  // Trials that lie on each other have one label with all their numbers.
  void trials() {
    svg_.line(x(report_.choice), top_, x(report_.choice), bottom_, kChosen, 2);
    struct Label {
      double x, y;
      std::string numbers;
    };
    std::vector<Label> labels;
    for (std::size_t t = 0; t < report_.trials.size(); ++t) {
      const auto& [candidate, seconds] = report_.trials[t];
      const double across = x(candidate), up = y(seconds);
      if (seconds_.beyond(seconds))
        svg_.polygon({{across, up - 6}, {across + 6, up + 5}, {across - 6, up + 5}}, kColours[1]);
      else
        svg_.circle(across, up, 5, kColours[1]);
      const auto near = std::find_if(labels.begin(), labels.end(), [&](const Label& label) {
        return std::abs(label.x - across) < 12 && std::abs(label.y - up) < 12;
      });
      if (near == labels.end())
        labels.push_back({across, up, std::to_string(t + 1)});
      else
        near->numbers += fmt::format(", {}", t + 1);
    }
    for (const Label& label : labels) {
      const bool right = label.x + 8 + charts::text_width(label.numbers, 12) < width_;
      svg_.text(label.x + (right ? 8 : -8), label.y - 5, label.numbers,
                {.anchor = right ? Anchor::start : Anchor::end, .size = 12});
    }
  }

  const TuningReport& report_;
  Seconds seconds_;
  std::vector<Key> keys_;
  double left_, width_;
  std::vector<std::string> title_;
  charts::Flow flow_;
  double legend_, top_, bottom_;
  Svg svg_;
  std::vector<std::size_t> sizes_;
};

}  // namespace

std::string plot(const TuningReport& report) { return TuningPlot(report).draw(); }

}  // namespace dear::train_command
