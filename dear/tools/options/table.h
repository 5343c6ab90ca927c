#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace dear::cli {

// Text in aligned columns under a header.
class Table {
 public:
  struct Options {
    std::size_t left_columns = 1;  // aligned left; the rest, numbers, right
  };
  Table(std::vector<std::string> header, Options options);

  void add(std::vector<std::string> row);  // as many cells as the header
  [[nodiscard]] std::string to_string() const;

 private:
  std::vector<std::vector<std::string>> rows_;
  Options options_;
};

}  // namespace dear::cli
