#include "dear/base/charts/layout.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace dear::charts {
namespace {

// Times the median: a value above the first squeezes the rest, and the axis ends at the second.
constexpr double kSqueezes = 5, kRest = 3;
constexpr double kSlack = 1e-9;

// In parts of the size, of DejaVu Sans, which is wider than most.
double width_of(char letter) {
  const auto code = static_cast<unsigned char>(letter);
  if (code >= 0x80 && code < 0xc0) return 0;  // goes on a letter
  constexpr std::string_view kNarrow = "iljI.,:;'|! ";
  constexpr std::string_view kSlim = "frt()[]-/\"";
  constexpr std::string_view kWide = "mwMW@%+=<>~";
  if (kNarrow.find(letter) != std::string_view::npos) return 0.36;
  if (kSlim.find(letter) != std::string_view::npos) return 0.46;
  if (kWide.find(letter) != std::string_view::npos || code >= 0xc0) return 1;
  return letter >= 'A' && letter <= 'Z' ? 0.76 : 0.64;
}

}  // namespace

double text_width(std::string_view words, int size) {
  double width = 0;
  for (const char letter : words) width += width_of(letter);
  return width * size;
}

std::vector<std::string> wrapped(std::string_view text, int size, double width) {
  std::vector<std::string> lines(1);
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    const std::string word(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    std::string& line = lines.back();
    const std::string longer = line.empty() ? word : line + " " + word;
    if (line.empty() || text_width(longer, size) <= width)
      line = longer;
    else
      lines.push_back(word);
  }
  return lines;
}

Flow flow(const std::vector<double>& widths, double width, double row) {
  Flow flow;
  double x = 0;
  for (const double item : widths) {
    if (x > 0 && x + item > width) {
      x = 0;
      flow.height += row;
    }
    flow.places.emplace_back(x, flow.height);
    x += item;
  }
  if (!widths.empty()) flow.height += row;
  return flow;
}

double round_step(double step) {
  if (!(step > 0)) return 0;
  const double power = std::pow(10, std::floor(std::log10(step)));
  for (const double times : {1.0, 2.0, 2.5, 5.0})
    if (times * power >= step * (1 - kSlack)) return times * power;
  return 10 * power;
}

double end_of_axis(std::vector<double> values) {
  std::erase_if(values, [](double value) { return !(value > 0); });
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const double median = values[values.size() / 2];
  return values.back() > kSqueezes * median ? kRest * median : values.back();
}

}  // namespace dear::charts
