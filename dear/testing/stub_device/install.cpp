#include <mutex>

#include <c10/core/DeviceType.h>

#include "dear/testing/stub_device/autocast.h"
#include "dear/testing/stub_device/guard.h"
#include "dear/testing/stub_device/operators.h"
#include "dear/testing/stub_device/stub_device.h"

namespace dear::stub_device {

void install() {
  static std::once_flag once;
  std::call_once(once, [] {
    c10::register_privateuse1_backend("stub");
    register_guard();
    register_operators();
    register_autocast();
  });
}

}  // namespace dear::stub_device
