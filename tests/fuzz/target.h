#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>
#include <string_view>

#include "dear/base/vocabulary/error.h"

// A target is a function `void NAME(std::string_view bytes)` in targets/NAME.cpp that gives foreign bytes to
// one reader. It may throw a ConfigError whose text can be printed; it catches what else its reader
// documents.
namespace dear::fuzz {

// A reader broke a promise. No reader throws it.
class Broken : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

inline constexpr const char* kSource = "FILE";  // stands for the file in messages

// Runs a target. Broken for anything but a ConfigError whose text is short and can be printed.
void run(void (*target)(std::string_view), std::string_view bytes);

// Runs what reads a text of a user's own, which messages repeat as it is.
template <typename Parse>
void refusing(const Parse& parse) {
  try {
    static_cast<void>(parse());
  } catch (const ConfigError&) {
    return;
  }
}

// Checks that a value that was read can be written and read again, and is then written alike.
template <typename Read, typename Write>
void round_trip(std::string_view bytes, const Read& read, const Write& write) {
  const auto value = read(bytes);
  const std::string written = write(value);
  try {
    if (write(read(written)) != written)
      throw Broken("written and read, it is written otherwise: " + written);
  } catch (const ConfigError& error) {
    throw Broken("reads not what it wrote: " + std::string(error.what()) + ": " + written);
  }
}

// Takes parts off fuzzed bytes.
class Bytes {
 public:
  explicit Bytes(std::string_view bytes) : rest_(bytes) {}
  [[nodiscard]] bool empty() const { return rest_.empty(); }
  unsigned char byte() {
    const std::string_view taken = take(1);
    return taken.empty() ? 0 : static_cast<unsigned char>(taken[0]);
  }
  // As many bytes, or what there is.
  std::string_view take(std::size_t count) {
    const std::string_view taken = rest_.substr(0, count);
    rest_.remove_prefix(taken.size());
    return taken;
  }
  // Takes the text before the next end of a line.
  std::string_view line() {
    const std::string_view taken = take(rest_.find('\n'));
    take(1);
    return taken;
  }
  std::string_view rest() { return take(rest_.size()); }

 private:
  std::string_view rest_;
};

}  // namespace dear::fuzz
