#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "dear/base/vocabulary/dtype.h"
#include "dear/workload/zoo/architecture.h"

namespace dear::zoo {

// One iteration of training on one device, as published.
struct Measurement {
  std::string_view device;   // of find_device(), in fp32, with the model's own batch and size
  double seconds = 0;        // forward, backward and update
  double forward_share = 0;  // of these seconds
};

struct Model {
  std::string_view name;
  std::string_view summary;
  std::string_view source;
  Architecture (*make)(std::int64_t size);
  // The side of a square image, or the length of a sequence; of dlrm how many times as wide as published its
  // inner layers are.
  std::int64_t size = 0;
  std::int64_t batch = 0;  // samples on one rank
  // The type of parameters, gradients and activations, as the model is trained on devices other than that of
  // the measurement; see usual_dtype().
  DType dtype = DType::f32;
  std::optional<Measurement> measured;
};

// The five models of the study of DeAR (arXiv 2302.12445), as it had them: fp32, images with a side of 224
// (for Inception-v4 too, whose paper has 299), sequences of 64, on one RTX 2080 Ti. And others that people
// ask about, with samples of a usual size and a batch that trains in 16 GB, or of one where none does;
// language models in bf16, with master parameters in fp32 (predict/sim/memory.h).
const std::vector<Model>& models();
const Model& find_model(std::string_view name);  // ConfigError that lists them all

}  // namespace dear::zoo
