#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "dear/schedule/policies/compressed.h"
#include "dear/tools/cases/scenario.h"

namespace dear::cases {

// A user's words on compression to `dear simulate` and `dear plan`, or to dear.simulate() and dear.plan().
struct CompressionNames {
  std::vector<std::string> compressions{};  // see Compression::parse()
  std::string codec = "auto";               // see CodecChoice
  double union_density = 0.05;              // see Sparsity
};

// How fast codecs are taken to be: "roofline" by the memory of the device that a model is built for,
// "measured" here on one thread, "none" for no time at all; "auto" is the roofline where there is a device,
// and measured otherwise. Codecs share what the program computes with, unless ",beside" follows: then they
// have cores of their own.
class CodecChoice {
 public:
  static CodecChoice parse(std::string_view text);  // ConfigError with what there is

  struct Known {
    CodecTimes times;
    std::string origin;  // "by the roofline of a100"
  };
  // ConfigError for the roofline of a scenario without a device. `ranks` are those of a job.
  [[nodiscard]] Known resolve(const Compression& compression, const Sparsity& sparsity,
                              const Scenario& scenario, int ranks) const;

 private:
  enum class Kind : std::uint8_t { usual, roofline, measured, none };
  Kind kind_ = Kind::usual;
  bool beside_ = false;
};

// The compressions that are looked at, for any scenario.
class Compressions {
 public:
  Compressions() = default;  // none
  // ConfigError for what does not parse, and a union density that cannot be.
  explicit Compressions(const CompressionNames& names);

  struct Modelled {
    CompressionModel model;
    std::string codec;  // a sentence: how fast its codec is taken to be
  };
  // One for each compression. Measures a codec once.
  [[nodiscard]] std::vector<Modelled> in(const Scenario& scenario, int ranks);

 private:
  std::vector<Compression> compressions_;
  CodecChoice codec_;
  Sparsity sparsity_;
  // By text, device and ranks: measuring takes a while.
  std::map<std::tuple<std::string, std::string, int>, CodecChoice::Known> known_;
};

}  // namespace dear::cases
