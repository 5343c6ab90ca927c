#pragma once

#include <functional>
#include <string_view>
#include <thread>

namespace dear::os {

// A thread that runs `body` and takes no signals. TransportError that names `what` ("of a group") and the
// remedy when the system starts no more threads.
std::thread start_thread(std::string_view what, std::function<void()> body);

}  // namespace dear::os
