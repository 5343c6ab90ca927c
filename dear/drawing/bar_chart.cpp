#include "dear/drawing/bar_chart.h"

#include <algorithm>
#include <cstddef>

#include <fmt/format.h>

#include "dear/base/error.h"
#include "dear/drawing/svg.h"

namespace dear::drawing {
namespace {

constexpr double kMargin = 24;
constexpr double kHead = 76;  // title and legend
constexpr double kLabels = 156;
constexpr double kField = 210;
constexpr double kValues = 70;
constexpr double kPanel = kLabels + kField + kValues;
constexpr double kRow = 18;
constexpr double kPanelTitle = 30;
constexpr std::string_view kSecondColour = "#e69f00";

void draw(const BarPanel& panel, const BarChartText& text, double left, double top, Svg& svg) {
  double most = 0;
  for (const Bar& bar : panel.bars) most = std::max({most, bar.first + bar.second, bar.mark});
  const double scale = most > 0 ? kField / most : 0;
  svg.text(left, top + 16, panel.title, {.size = 14});
  double y = top + kPanelTitle;
  for (const Bar& bar : panel.bars) {
    const double begin = left + kLabels;
    const double middle = begin + bar.first * scale;
    const double end = middle + bar.second * scale;
    svg.text(begin - 8, y + 12, bar.label, {.anchor = Anchor::end, .size = 12});
    svg.rectangle(begin, y + 2, middle - begin, kRow - 5, kColours[0],
                  fmt::format("{}: {}", text.first, text.format(bar.first)));
    if (!text.second.empty())
      svg.rectangle(middle, y + 2, end - middle, kRow - 5, kSecondColour,
                    fmt::format("{}: {}", text.second, text.format(bar.second)));
    if (bar.mark > 0)
      svg.line(begin + bar.mark * scale, y, begin + bar.mark * scale, y + kRow - 1, "black", 2);
    svg.text(std::max(end, begin + bar.mark * scale) + 6, y + 12, text.format(bar.first + bar.second),
             {.size = 12});
    y += kRow;
  }
  svg.line(left + kLabels, top + kPanelTitle - 2, left + kLabels, y, "#888888");
}

void draw_legend(const BarChartText& text, Svg& svg) {
  double x = kMargin;
  const auto entry = [&](std::string_view colour, double width, const std::string& words) {
    svg.rectangle(x, 46, width, 13, colour);
    svg.text(x + width + 6, 57, words);
    x += width + 30 + 7.5 * static_cast<double>(words.size());
  };
  entry(kColours[0], 18, text.first);
  if (!text.second.empty()) entry(kSecondColour, 18, text.second);
  if (!text.mark.empty()) entry("black", 2, text.mark);
}

}  // namespace

std::string bar_chart(const std::vector<BarPanel>& panels, const BarChartText& text) {
  std::size_t rows = 0;
  for (const BarPanel& panel : panels) rows = std::max(rows, panel.bars.size());
  if (rows == 0) throw ConfigError("there is nothing to draw bars of");
  const std::size_t columns = std::min<std::size_t>(panels.size(), panels.size() == 4 ? 2 : 3);
  const std::size_t lines = (panels.size() + columns - 1) / columns;
  const double height = kPanelTitle + kRow * static_cast<double>(rows) + 14;
  Svg svg(2 * kMargin + kPanel * static_cast<double>(columns),
          kHead + height * static_cast<double>(lines) + kMargin, text.title);
  svg.text(kMargin, 30, text.title, {.size = 16});
  draw_legend(text, svg);
  for (std::size_t i = 0; i < panels.size(); ++i)
    draw(panels[i], text, kMargin + kPanel * static_cast<double>(i % columns),
         kHead + height * static_cast<double>(i / columns), svg);
  return std::move(svg).finish();
}

}  // namespace dear::drawing
