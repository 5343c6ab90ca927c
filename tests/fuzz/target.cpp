#include "tests/fuzz/target.h"

#include "dear/base/vocabulary/printable.h"

namespace dear::fuzz {
namespace {

constexpr std::size_t kMostCharacters = 10'000;  // of a sentence

}  // namespace

void run(void (*target)(std::string_view), std::string_view bytes) {
  try {
    target(bytes);
  } catch (const ConfigError& error) {
    const std::string said = error.what();
    if (said.empty() || said.size() > kMostCharacters)
      throw Broken("says " + std::to_string(said.size()) + " characters");
    if (!is_printable(said)) throw Broken("says what a terminal obeys: " + printable(said));
  } catch (const Broken&) {
    throw;
  } catch (const std::exception& error) {
    throw Broken(std::string("ends otherwise: ") + error.what());
  }
}

}  // namespace dear::fuzz
