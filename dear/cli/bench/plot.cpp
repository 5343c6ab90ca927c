#include "dear/cli/bench/plot.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <string_view>

#include <fmt/format.h>

#include "dear/base/error.h"
#include "dear/base/units.h"

namespace dear::cli::bench {
namespace {

// Of the whole picture and of the field that the lines are drawn in.
constexpr double kWidth = 960;
constexpr double kHeight = 560;
constexpr double kLeft = 80;
constexpr double kRight = 660;
constexpr double kTop = 56;
constexpr double kBottom = 490;

// Told apart by most eyes, also without red and green (Okabe and Ito 2008).
constexpr std::array<std::string_view, 8> kColours{"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                                   "#e69f00", "#56b4e9", "#000000", "#999999"};

struct Point {
  double bytes;
  double bandwidth;
};
struct Line {
  std::string name;
  std::vector<Point> points;
};

std::string escaped(std::string_view text) {
  std::string result;
  for (const char letter : text) {
    switch (letter) {
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      default:
        result += letter;
    }
  }
  return result;
}

std::vector<Line> lines_of(const std::vector<Result>& results) {
  std::vector<Line> lines;
  for (const Result& result : results) {
    if (result.bytes <= 0 || result.bus_bandwidth() <= 0) {
      continue;
    }
    const std::string name = result.operation == results.front().operation
                                 ? result.backend
                                 : fmt::format("{}, {}", result.backend, name_of(result.operation));
    auto line =
        std::find_if(lines.begin(), lines.end(), [&](const Line& other) { return other.name == name; });
    if (line == lines.end()) {
      line = lines.insert(lines.end(), {.name = name, .points = {}});
    }
    line->points.push_back({static_cast<double>(result.bytes), result.bus_bandwidth()});
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

class Picture {
 public:
  Picture(const std::vector<Line>& lines, const std::string& title)
      : bytes_{.low = 1e300, .high = 0, .begin = kLeft, .end = kRight},
        bandwidth_{.low = 1e300, .high = 0, .begin = kBottom, .end = kTop} {
    for (const Line& line : lines) {
      for (const Point& point : line.points) {
        bytes_.low = std::min(bytes_.low, point.bytes);
        bytes_.high = std::max(bytes_.high, point.bytes);
        bandwidth_.low = std::min(bandwidth_.low, point.bandwidth);
        bandwidth_.high = std::max(bandwidth_.high, point.bandwidth);
      }
    }
    if (bytes_.low == bytes_.high) {
      bytes_.low /= 2;
      bytes_.high *= 2;
    }
    // Whole decades, so that the labels frame the lines.
    bandwidth_.low = std::pow(10, std::floor(std::log10(bandwidth_.low)));
    bandwidth_.high = std::pow(10, std::ceil(std::log10(bandwidth_.high * 1.0001)));
    begin(title);
    draw_axes();
    for (std::size_t i = 0; i < lines.size(); ++i) {
      draw(lines[i], kColours.at(i % kColours.size()), i >= kColours.size());
    }
    name_lines(lines);
    text_ += "</svg>\n";
  }
  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  void begin(const std::string& title) {
    text_ = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" "
        "font-family=\"sans-serif\" font-size=\"13\">\n<title>{2}</title>\n"
        "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
        kWidth, kHeight, escaped(title));
    write(kLeft, 30, "start", title, "font-size=\"16\"");
  }

  void write(double x, double y, std::string_view anchor, std::string_view words,
             std::string_view attributes = "") {
    text_ += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\" {}>{}</text>\n", x, y, anchor,
                         attributes, escaped(words));
  }
  void stroke(double x1, double y1, double x2, double y2, std::string_view colour) {
    text_ += fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\"/>\n",
                         x1, y1, x2, y2, colour);
  }

  void draw_axes() {
    // Few enough for labels not to touch.
    double factor = 2;
    while (std::log(bytes_.high / bytes_.low) / std::log(factor) > 8) {
      factor *= 2;
    }
    for (double bytes = bytes_.low; bytes <= bytes_.high * 1.0001; bytes *= factor) {
      stroke(bytes_.at(bytes), kTop, bytes_.at(bytes), kBottom, "#e4e4e4");
      write(bytes_.at(bytes), kBottom + 20, "middle", format_bytes(static_cast<std::int64_t>(bytes)));
    }
    for (double decade = bandwidth_.low; decade <= bandwidth_.high * 1.0001; decade *= 10) {
      stroke(kLeft, bandwidth_.at(decade), kRight, bandwidth_.at(decade), "#c8c8c8");
      write(kLeft - 8, bandwidth_.at(decade) + 4, "end", fmt::format("{:g}", decade / 1e9));
      for (int part = 2; part < 10 && decade * part < bandwidth_.high; ++part) {
        stroke(kLeft, bandwidth_.at(decade * part), kRight, bandwidth_.at(decade * part), "#f0f0f0");
      }
    }
    stroke(kLeft, kBottom, kRight, kBottom, "black");
    stroke(kLeft, kTop, kLeft, kBottom, "black");
    write((kLeft + kRight) / 2, kBottom + 48, "middle", "size of the vector on each rank");
    const double middle = (kTop + kBottom) / 2;
    write(22, middle, "middle", "bus bandwidth, GB/s",
          fmt::format("transform=\"rotate(-90 22 {:.1f})\"", middle));
  }

  void draw(const Line& line, std::string_view colour, bool dashed) {
    std::string points;
    for (const Point& point : line.points) {
      points += fmt::format("{}{:.1f},{:.1f}", points.empty() ? "" : " ", bytes_.at(point.bytes),
                            bandwidth_.at(point.bandwidth));
    }
    text_ += fmt::format("<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\"{}/>\n",
                         points, colour, dashed ? " stroke-dasharray=\"6 3\"" : "");
    for (const Point& point : line.points) {
      text_ += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\" fill=\"{}\"/>\n",
                           bytes_.at(point.bytes), bandwidth_.at(point.bandwidth), colour);
    }
  }

  // In the order in which the lines end, so that a name stands about where its line does.
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
      text_ += fmt::format(
          "<line x1=\"{0:.1f}\" y1=\"{1:.1f}\" x2=\"{2:.1f}\" y2=\"{1:.1f}\" stroke=\"{3}\" "
          "stroke-width=\"2\"{4}/>\n",
          kRight + 20, y - 4, kRight + 44, colour, i >= kColours.size() ? " stroke-dasharray=\"6 3\"" : "");
      write(kRight + 52, y, "start", lines[i].name);
      y += 22;
    }
  }

  Axis bytes_;
  Axis bandwidth_;
  std::string text_;
};

}  // namespace

std::string bandwidth_plot(const std::vector<Result>& results, const std::string& title) {
  const std::vector<Line> lines = lines_of(results);
  if (lines.empty()) {
    throw ConfigError("nothing was measured that has a bandwidth, so there is nothing to plot");
  }
  return Picture(lines, title).text();
}

}  // namespace dear::cli::bench
