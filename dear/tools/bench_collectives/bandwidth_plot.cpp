#include "dear/tools/bench_collectives/bandwidth_plot.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "dear/base/charts/layout.h"
#include "dear/base/charts/svg.h"
#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/units.h"

namespace dear::bench_collectives {
namespace {

// The size of the whole picture, and the borders of the field in which lines are drawn.
constexpr double kWidth = 960;
constexpr double kHeight = 560;
constexpr double kLeft = 80;
constexpr double kRight = 660;
constexpr double kTop = 56;
constexpr double kBottom = 490;
constexpr double kNames = 52;  // from the field to the names of lines
constexpr std::string_view kIntervals = "upright: p10 to p90";

using charts::Anchor;
using charts::kColours;

struct Point {
  double bytes;
  double bandwidth;
  double low, high;  // at p90 and p10 of the seconds
};
struct Line {
  std::string name;
  std::vector<Point> points;
};

std::vector<Line> lines_of(const std::vector<Result>& results) {
  std::vector<Line> lines;
  for (const Result& result : results) {
    if (result.bytes <= 0 || result.bus_bandwidth() <= 0) {
      continue;
    }
    const std::string name = result.operation == results.front().operation
                                 ? result.label()
                                 : fmt::format("{}, {}", result.label(), name_of(result.operation));
    auto line =
        std::find_if(lines.begin(), lines.end(), [&](const Line& other) { return other.name == name; });
    if (line == lines.end()) {
      line = lines.insert(lines.end(), {.name = name, .points = {}});
    }
    const double bandwidth = result.bus_bandwidth();
    const auto [median, p10, p90] = result.seconds;
    line->points.push_back({.bytes = static_cast<double>(result.bytes),
                            .bandwidth = bandwidth,
                            .low = p90 > median ? bandwidth * median / p90 : bandwidth,
                            .high = p10 > 0 && p10 < median ? bandwidth * median / p10 : bandwidth});
  }
  return lines;
}

// Numbers from `low` to `high`, which differ, on a logarithmic axis from `begin` to `end`.
struct Axis {
  double low;
  double high;
  double begin;
  double end;
  [[nodiscard]] double at(double value) const {
    return begin + (end - begin) * std::log(value / low) / std::log(high / low);
  }
};

double width_for(const std::vector<Line>& lines, const std::string& title) {
  double width = std::max(kWidth, kLeft + charts::text_width(title, 16) + 16);
  for (const Line& line : lines)
    width = std::max(width, kRight + kNames + charts::text_width(line.name) + 16);
  return width;
}

class Picture {
 public:
  Picture(const std::vector<Line>& lines, const std::string& title)
      : svg_(width_for(lines, title), std::max(kHeight, kTop + 22 * static_cast<double>(lines.size() + 1)),
             title),
        bytes_{.low = 1e300, .high = 0, .begin = kLeft, .end = kRight},
        bandwidth_{.low = 1e300, .high = 0, .begin = kBottom, .end = kTop} {
    for (const Line& line : lines) {
      for (const Point& point : line.points) {
        bytes_.low = std::min(bytes_.low, point.bytes);
        bytes_.high = std::max(bytes_.high, point.bytes);
        bandwidth_.low = std::min(bandwidth_.low, point.low);
        bandwidth_.high = std::max(bandwidth_.high, point.high);
      }
    }
    if (bytes_.low == bytes_.high) {
      bytes_.low /= 2;
      bytes_.high *= 2;
    }
    // The axis spans whole decades, so that the labels frame the lines.
    bandwidth_.low = std::pow(10, std::floor(std::log10(bandwidth_.low)));
    bandwidth_.high = std::pow(10, std::ceil(std::log10(bandwidth_.high * 1.0001)));
    svg_.text(kLeft, 30, title, {.size = 16});
    draw_axes();
    for (std::size_t i = 0; i < lines.size(); ++i) {
      draw(lines[i], i);
    }
    name_lines(lines);
  }
  [[nodiscard]] std::string text() && { return std::move(svg_).finish(); }

 private:
  void draw_axes() {
    // There are so few marks that labels do not touch.
    double factor = 2;
    while (std::log(bytes_.high / bytes_.low) / std::log(factor) > 8) {
      factor *= 2;
    }
    for (double bytes = bytes_.low; bytes <= bytes_.high * 1.0001; bytes *= factor) {
      svg_.line(bytes_.at(bytes), kTop, bytes_.at(bytes), kBottom, charts::kRule);
      svg_.text(bytes_.at(bytes), kBottom + 20, format_bytes(static_cast<std::int64_t>(bytes)),
                {.anchor = Anchor::middle});
    }
    for (double decade = bandwidth_.low; decade <= bandwidth_.high * 1.0001; decade *= 10) {
      svg_.line(kLeft, bandwidth_.at(decade), kRight, bandwidth_.at(decade), charts::kRule);
      svg_.text(kLeft - 8, bandwidth_.at(decade) + 4, fmt::format("{:g}", decade / 1e9),
                {.anchor = Anchor::end});
      for (int part = 2; part < 10 && decade * part < bandwidth_.high; ++part) {
        svg_.line(kLeft, bandwidth_.at(decade * part), kRight, bandwidth_.at(decade * part),
                  charts::kFaintRule);
      }
    }
    svg_.line(kLeft, kBottom, kRight, kBottom).line(kLeft, kTop, kLeft, kBottom);
    svg_.text((kLeft + kRight) / 2, kBottom + 48, "size of the vector on each rank",
              {.anchor = Anchor::middle});
    svg_.text(22, (kTop + kBottom) / 2, "bus bandwidth, GB/s", {.anchor = Anchor::middle, .upwards = true});
  }

  void draw(const Line& line, std::size_t series) {
    const std::string_view colour = kColours.at(series % kColours.size());
    std::vector<std::pair<double, double>> points;
    for (const Point& point : line.points) {
      points.emplace_back(bytes_.at(point.bytes), bandwidth_.at(point.bandwidth));
      const double x = points.back().first;
      svg_.interval(x, bandwidth_.at(point.low), x, bandwidth_.at(point.high), colour);
    }
    svg_.polyline(points, colour, series >= kColours.size());
    for (const auto& [x, y] : points) {
      svg_.marker(series, x, y, 3, colour);
    }
  }

  // Names the lines in the order in which they end, so that a name stands about where its line does.
  void name_lines(const std::vector<Line>& lines) {
    std::vector<std::size_t> order(lines.size());
    for (std::size_t i = 0; i < order.size(); ++i) {
      order[i] = i;
    }
    std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return lines[a].points.back().bandwidth > lines[b].points.back().bandwidth;
    });
    double y = kTop + 10;
    for (const std::size_t i : order) {
      const std::string_view colour = kColours.at(i % kColours.size());
      svg_.polyline({{kRight + 20, y - 4}, {kRight + 44, y - 4}}, colour, i >= kColours.size());
      svg_.marker(i, kRight + 32, y - 4, 3, colour);
      svg_.text(kRight + kNames, y, lines[i].name);
      y += 22;
    }
    svg_.text(kRight + 20, y, std::string(kIntervals), {.size = 12, .colour = charts::kMuted});
  }

  charts::Svg svg_;
  Axis bytes_;
  Axis bandwidth_;
};

}  // namespace

std::string bandwidth_plot(const std::vector<Result>& results, const std::string& title) {
  const std::vector<Line> lines = lines_of(results);
  if (lines.empty()) {
    throw ConfigError("nothing was measured that has a bandwidth, so there is nothing to plot");
  }
  return Picture(lines, title).text();
}

}  // namespace dear::bench_collectives
