#include "tests/readers/mutator.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

namespace dear::readers_test {
namespace {

using Json = nlohmann::ordered_json;

// What stands in a file instead of a value: numbers that overflow, of the wrong sign or kind, texts that a
// terminal obeys, values within values.
const std::vector<std::string>& evil_values() {
  static const std::vector<std::string> kValues = [] {
    std::vector<std::string> values{"1e300",
                                    "-1e300",
                                    "1e-300",
                                    "1e400",
                                    "-0.0",
                                    "-1",
                                    "0",
                                    "0.5",
                                    "1e15",
                                    "2147483648",
                                    "4294967296",
                                    "9007199254740993",
                                    "9223372036854775807",
                                    "9223372036854775808",
                                    "18446744073709551616",
                                    "NaN",
                                    "Infinity",
                                    "null",
                                    "true",
                                    "[]",
                                    "{}",
                                    "\"\"",
                                    "\"x\"",
                                    "\"\\u0000\"",
                                    "\"\\u001b[31mred\"",
                                    "\"\\u009b31m\"",
                                    "\"a\\nb\"",
                                    "\"\\ud800\"",
                                    "\"\xff\"",
                                    "\"../../etc\"",
                                    "[[[[[[[[[[0]]]]]]]]]]",
                                    "{\"a\": 1, \"a\": 2}",
                                    "1" + std::string(400, '0'),
                                    "0." + std::string(400, '0') + "1"};
    values.push_back(std::string(60'000, '[') + std::string(60'000, ']'));
    values.push_back("\"" + std::string(20'000, 'n') + "\"");
    std::string many = "[0";
    for (int i = 1; i < 5'000; ++i) many += ", " + std::to_string(i);
    values.push_back(many + "]");
    return values;
  }();
  return kValues;
}

void collect(Json& value, std::vector<Json*>& all) {
  all.push_back(&value);
  if (value.is_structured())
    for (Json& item : value) collect(item, all);
}

constexpr std::string_view kPlace = "\"@place of an evil value@\"";

}  // namespace

std::string Mutator::with_other_bytes(std::string text) {
  if (text.empty()) return "{";
  const std::size_t at = below(text.size());
  const std::size_t length = 1 + below(std::min<std::size_t>(64, text.size() - at));
  switch (below(6)) {
    case 0:
      text[at] = static_cast<char>(text[at] ^ (1U << below(8)));
      break;
    case 1:
      text[at] = static_cast<char>(below(256));
      break;
    case 2:
      text.erase(at, length);
      break;
    case 3:
      text.insert(below(text.size()), text.substr(at, length));
      break;
    case 4:
      text.resize(at);
      break;
    default: {
      static constexpr std::array<std::string_view, 10> kWords = {"\xff\xff\xff\xff",
                                                                  std::string_view("\0\0\0\0", 4),
                                                                  "\x7f",
                                                                  "\x1b[2J",
                                                                  "{",
                                                                  "]",
                                                                  "\"",
                                                                  "e99",
                                                                  "-",
                                                                  ","};
      text.insert(at, kWords[below(kWords.size())]);
    }
  }
  return text;
}

std::string Mutator::with_other_value(const std::string& text) {
  const bool deep =
      text.find(std::string(100, '[')) != std::string::npos;  // this parser's, too, has no limit
  Json document = deep ? Json(Json::value_t::discarded) : Json::parse(text, nullptr, false);
  if (document.is_discarded()) return with_other_bytes(text);
  std::vector<Json*> all;
  collect(document, all);
  Json& chosen = *all[below(all.size())];
  const std::string place = std::string(kPlace).substr(1, kPlace.size() - 2);
  std::string evil = evil_values()[below(evil_values().size())];
  const auto member = [&] {
    auto item = chosen.begin();
    std::advance(item, static_cast<std::ptrdiff_t>(below(chosen.size())));
    return item;
  };
  switch (chosen.empty() || !chosen.is_structured() ? 0 : below(4)) {
    case 0:
      chosen = place;
      break;
    case 1:
      chosen.erase(member());
      break;
    case 2: {
      const Json copy = *member();
      for (std::uint64_t more = chosen.is_array() ? 1 + below(300) : 0; more > 0; --more)
        chosen.push_back(copy);
      if (chosen.is_object()) chosen["another name"] = copy;
      break;
    }
    default:
      if (chosen.is_object()) {
        chosen[place] = 0;  // a name that is no text, or that stands there twice
        evil = "\"" + member().key() + "\"";
      } else {
        chosen.push_back(place);
      }
  }
  std::string mutant = document.dump(1, ' ', false, Json::error_handler_t::replace);
  const std::size_t at = mutant.find(kPlace);
  return at == std::string::npos ? mutant : mutant.replace(at, kPlace.size(), evil);
}

std::string Mutator::mutant_of(const std::string& good, bool json) {
  std::string mutant = good;
  for (std::uint64_t mistakes = 1 + below(3); mistakes > 0; --mistakes)
    mutant = json && below(3) > 0 ? with_other_value(mutant) : with_other_bytes(std::move(mutant));
  return mutant;
}

}  // namespace dear::readers_test
