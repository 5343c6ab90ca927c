#include "dear/base/charts/svg.h"

#include <array>

#include <fmt/format.h>

namespace dear::charts {
namespace {

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

std::string_view name_of(Anchor anchor) {
  switch (anchor) {
    case Anchor::start:
      return "start";
    case Anchor::middle:
      return "middle";
    case Anchor::end:
      break;
  }
  return "end";
}

std::string list_of(const std::vector<std::pair<double, double>>& points) {
  std::string list;
  for (const auto& [x, y] : points) list += fmt::format("{}{:.1f},{:.1f}", list.empty() ? "" : " ", x, y);
  return list;
}

// [Note: dark pictures] A style overrides the colours that attributes give, where the viewer asks for dark
// pictures. Converters to PDF and PNG do not ask, so they draw the light one.
constexpr std::array<std::pair<std::string_view, std::string_view>, 9> kDark{{{"white", "#0d1117"},
                                                                              {"black", "#e6edf3"},
                                                                              {kColours[6], "#f5f5f5"},
                                                                              {kRule, "#30363d"},
                                                                              {kFaintRule, "#21262d"},
                                                                              {kFrame, "#8b949e"},
                                                                              {kMuted, "#a5adb7"},
                                                                              {kIdle, "#57606a"},
                                                                              {kBand, "#1d3a52"}}};

std::string dark_style() {
  std::string rules = "text:not([fill]){fill:#e6edf3}";
  for (const auto& [light, dark] : kDark)
    for (const std::string_view attribute : {"fill", "stroke"})
      rules += fmt::format("[{0}=\"{1}\"]{{{0}:{2}}}", attribute, light, dark);
  return fmt::format("<style>@media (prefers-color-scheme: dark){{{}}}</style>\n", rules);
}

// Tells what is drawn, in white, on each square of 6 points of an area.
std::string_view strokes_of(Pattern pattern) {
  constexpr std::array<std::string_view, 7> kNames{
      "",          "M-1,1 L1,-1 M-1,7 L7,-1 M5,7 L7,5", "M-1,-1 L7,7 M-1,5 L1,7 M5,-1 L7,1",
      "M2,3 L4,3", "M-1,-1 L7,7 M-1,7 L7,-1",           "M3,0 L3,6",
      "M0,3 L6,3"};
  return kNames.at(static_cast<std::size_t>(pattern));
}

}  // namespace

std::string_view ink_on(std::string_view colour) {
  if (colour == kColours[6]) return "white";  // black, or nearly white on a dark picture
  return colour == kColours[0] ? "#ffffff" : "#111111";
}

Svg::Svg(double width, double height, std::string_view title) {
  text_ = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" "
      "font-family=\"sans-serif\" font-size=\"13\">\n<title>{2}</title>\n"
      "{3}<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
      width, height, escaped(title), dark_style());
}

Svg& Svg::text(double x, double y, std::string_view words, const TextStyle& style) {
  text_ += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\"", x, y, name_of(style.anchor));
  if (style.size != 13) text_ += fmt::format(" font-size=\"{}\"", style.size);
  if (style.colour != "black") text_ += fmt::format(" fill=\"{}\"", style.colour);
  if (style.upwards) text_ += fmt::format(" transform=\"rotate(-90 {:.1f} {:.1f})\"", x, y);
  text_ += fmt::format(">{}</text>\n", escaped(words));
  return *this;
}

Svg& Svg::line(double x1, double y1, double x2, double y2, std::string_view colour, double width) {
  text_ += fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\"", x1, y1,
                       x2, y2, colour);
  if (width != 1) text_ += fmt::format(" stroke-width=\"{:g}\"", width);
  text_ += "/>\n";
  return *this;
}

Svg& Svg::rectangle(double x, double y, double width, double height, std::string_view colour,
                    std::string_view hint, Pattern pattern) {
  std::string fill(colour);
  if (pattern != Pattern::solid) {
    const std::string name =
        fmt::format("pattern-{}-{}", static_cast<int>(pattern), colour.substr(colour.find('#') + 1));
    patterns_[name] = fmt::format(
        "<pattern id=\"{}\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\"><rect width=\"6\" "
        "height=\"6\" fill=\"{}\"/><path d=\"{}\" stroke=\"white\" stroke-width=\"1.5\"/></pattern>\n",
        name, colour, strokes_of(pattern));
    fill = fmt::format("url(#{})", name);
  }
  text_ += fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"{}\"", x, y,
                       width, height, fill);
  text_ += hint.empty() ? "/>\n" : fmt::format("><title>{}</title></rect>\n", escaped(hint));
  return *this;
}

Svg& Svg::circle(double x, double y, double radius, std::string_view colour) {
  text_ +=
      fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{:g}\" fill=\"{}\"/>\n", x, y, radius, colour);
  return *this;
}

Svg& Svg::marker(std::size_t series, double x, double y, double radius, std::string_view colour) {
  const std::string_view fill = series / 4 % 2 == 0 ? colour : "white";
  const double r = radius;
  const std::string paint =
      fmt::format("class=\"marker\" fill=\"{}\" stroke=\"{}\" stroke-width=\"1.5\"/>\n", fill, colour);
  switch (series % 4) {
    case 0:
      text_ += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{:g}\" {}", x, y, r, paint);
      break;
    case 1:
      text_ += fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:g}\" height=\"{:g}\" {}", x - r, y - r,
                           2 * r, 2 * r, paint);
      break;
    case 2:
      text_ += fmt::format("<polygon points=\"{}\" {}",
                           list_of({{x, y - 1.3 * r}, {x + 1.2 * r, y + r}, {x - 1.2 * r, y + r}}), paint);
      break;
    default:
      text_ += fmt::format("<polygon points=\"{}\" {}",
                           list_of({{x, y - 1.4 * r}, {x + 1.4 * r, y}, {x, y + 1.4 * r}, {x - 1.4 * r, y}}),
                           paint);
  }
  return *this;
}

Svg& Svg::interval(double x1, double y1, double x2, double y2, std::string_view colour) {
  const double across = x1 == x2 ? 3 : 0, along = 3 - across;
  return line(x1, y1, x2, y2, colour)
      .line(x1 - across, y1 - along, x1 + across, y1 + along, colour)
      .line(x2 - across, y2 - along, x2 + across, y2 + along, colour);
}

Svg& Svg::polygon(const std::vector<std::pair<double, double>>& points, std::string_view colour) {
  text_ += fmt::format("<polygon points=\"{}\" fill=\"{}\"/>\n", list_of(points), colour);
  return *this;
}

Svg& Svg::polyline(const std::vector<std::pair<double, double>>& points, std::string_view colour,
                   bool dashed) {
  text_ += fmt::format("<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\"{}/>\n",
                       list_of(points), colour, dashed ? " stroke-dasharray=\"6 3\"" : "");
  return *this;
}

std::string Svg::finish() && {
  for (const auto& [name, definition] : patterns_) text_ += definition;
  text_ += "</svg>\n";
  return std::move(text_);
}

}  // namespace dear::charts
