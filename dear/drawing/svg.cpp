#include "dear/drawing/svg.h"

#include <fmt/format.h>

namespace dear::drawing {
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

}  // namespace

Svg::Svg(double width, double height, std::string_view title) {
  text_ = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" "
      "font-family=\"sans-serif\" font-size=\"13\">\n<title>{2}</title>\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
      width, height, escaped(title));
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
                    std::string_view hint) {
  text_ += fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"{}\"", x, y,
                       width, height, colour);
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
  text_ += "</svg>\n";
  return std::move(text_);
}

}  // namespace dear::drawing
