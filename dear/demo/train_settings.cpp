#include "dear/demo/train_settings.h"

namespace dear::demo {

std::string TrainSettings::fusion_text() const {
  if (buckets == Buckets::planned) return "planned";
  if (buckets == Buckets::given) return fusion.text();
  const bool usual = fusion.text() == Fusion().text();
  return usual ? "auto" : "auto=" + fusion.text();
}

}  // namespace dear::demo
