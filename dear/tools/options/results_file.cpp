#include "dear/tools/options/results_file.h"

#include <nlohmann/json.hpp>

#include "dear/base/os/atomic_file.h"

namespace dear::cli {

Modelled of_replay(const Group& group) {
  return {.computation = true, .communication = !group.modelled_network().empty()};
}

std::string with_origin(const std::string& json, Modelled modelled) {
  nlohmann::ordered_json words = nlohmann::ordered_json::array();
  if (modelled.computation) words.push_back("computation");
  if (modelled.communication) words.push_back("communication");
  const auto mark = [&](nlohmann::ordered_json& result) {
    nlohmann::ordered_json marked{{"dear_version", DEAR_VERSION}, {"modelled", words}};
    marked.update(result);
    result = std::move(marked);
  };
  nlohmann::ordered_json document = nlohmann::ordered_json::parse(json);
  if (document.is_array()) {
    for (nlohmann::ordered_json& result : document) mark(result);
  } else {
    mark(document);
  }
  return document.dump(2) + "\n";
}

void write_results(const std::string& path, const std::string& json, Modelled modelled) {
  os::write_file_atomically(path, with_origin(json, modelled));
}

}  // namespace dear::cli
