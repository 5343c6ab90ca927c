#include "tests/fuzz/target.h"
#include "tests/fuzz/targets/memory_file.h"

#include "dear/base/archive/pickle.h"
#include "dear/base/archive/zip_reader.h"

namespace dear::fuzz {

// A file of torch.save() or of a ZipWriter.
void archive_file(std::string_view bytes) {
  const archive::ZipReader reader(memory_file(bytes));
  refusing([&] { return reader.extent_of("data/0").size; });
  refusing([&] { return archive::unpickle(reader.read_text("data.pkl"), kSource); });
  reader.verify();
}

}  // namespace dear::fuzz
