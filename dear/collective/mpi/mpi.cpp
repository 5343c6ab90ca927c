#include "dear/collective/mpi/mpi.h"

#include "dear/base/error.h"

namespace dear::collective {

std::unique_ptr<Backend> make_mpi(std::unique_ptr<transport::Mpi> /*mpi*/,
                                  const MpiBackendOptions& /*options*/) {
  throw ConfigError("the backend mpi is still to come: use another");
}

}  // namespace dear::collective
