#include "tests/fuzz/target.h"

#include "dear/schedule/fusion/grouping.h"
#include "dear/schedule/policies/fusion_choice.h"

namespace dear::fuzz {

void fusion(std::string_view bytes) {
  refusing([&] {
    if (Fusion::parse(bytes).text() != bytes) throw Broken("a fusion has another text than it was read from");
  });
  const auto again = [](const FusionChoice& choice, auto parse) {
    if (parse(choice.text()).kind != choice.kind) throw Broken("reads not what it wrote: " + choice.text());
  };
  refusing([&] { again(FusionChoice::of_training(bytes), FusionChoice::of_training); });
  refusing([&] { again(FusionChoice::of_simulation(bytes), FusionChoice::of_simulation); });
}

}  // namespace dear::fuzz
