#include "dear/base/archive/record.h"

#include "dear/base/vocabulary/digest.h"

namespace dear::archive {

std::string seal_of(const std::vector<Record>& records) {
  Digest digest;
  for (const Record& record : records) digest.add(record.name).add(record.bytes).add(record.crc);
  return "dear 1 " + digest.hex() + "\n";
}

}  // namespace dear::archive
