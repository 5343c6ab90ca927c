#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "dear/measure/contents.h"
#include "dear/measure/engine.h"
#include "dear/measure/protocol.h"

namespace dear::measure {

// One rank of a contestant: carries out what is asked of its engine, and says what came of it.
class Responder {
 public:
  struct Place {
    int rank = 0;
    int size = 1;
    bool only_copies = false;    // see Contestant
    std::function<void()> meet;  // a barrier of all ranks; repetitions begin behind it
  };
  // The engine outlives this.
  Responder(Engine& engine, Place place);

  // Collective, once, before the first answer: of the largest vector and output there will be.
  void prepare(std::int64_t bytes, std::int64_t output_bytes);
  // Of a command to measure or to verify. Throws what the engine throws.
  Reply answer(const Command& command);

 private:
  [[nodiscard]] std::int64_t count_of(const Command& command) const;
  Reply measure(const Command& command, const Work& work);
  void run_touching(const Work& work, int batch);
  Reply measure_while_computing(const Command& command, const Work& work);
  Reply measure_waiting(const Command& command, const Work& work);
  Reply verify(const Work& work);
  [[nodiscard]] std::optional<std::string> first_difference(const Contents& contents, const Work& work) const;

  Engine& engine_;
  Place place_;
};

}  // namespace dear::measure
