#include "studies/report/machine.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <fstream>
#include <thread>

#include <fmt/format.h>

namespace dear::studies {

double median_of(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double load_of_this_machine() {
  double load = 0;
  return ::getloadavg(&load, 1) == 1 ? load : 0;
}

std::string this_machine() {
  std::string name = "unknown processor";
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(": ");
    if (!line.starts_with("model name") || colon == std::string::npos) continue;
    name = line.substr(colon + 2);
    break;
  }
  return fmt::format("{}, {} cores", name, std::thread::hardware_concurrency());
}

}  // namespace dear::studies
