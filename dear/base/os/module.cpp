#include "dear/base/os/module.h"

#include <dlfcn.h>
#include <filesystem>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include "dear/base/vocabulary/error.h"

namespace dear::os {
namespace {

namespace fs = std::filesystem;

std::string file_of(const std::string& name) { return "lib" + name + ".so"; }

// Empty if there is none.
std::string find(const std::string& name) {
  for (const std::string& directory : Module::directories()) {
    const fs::path path = fs::path(directory) / file_of(name);
    std::error_code ignored;
    if (fs::exists(path, ignored)) return path.string();
  }
  return "";
}

// gcc says so by a macro, clang by a feature.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kWithSanitizer = true;
#elif defined(__has_feature)
constexpr bool kWithSanitizer = __has_feature(address_sanitizer) || __has_feature(thread_sanitizer);
#else
constexpr bool kWithSanitizer = false;
#endif

// The file of the program, or of the shared library that this code is a part of, as the package for Python.
fs::path own_file() {
  Dl_info info{};
  return dladdr(reinterpret_cast<const void*>(&file_of), &info) != 0 && info.dli_fname != nullptr
             ? fs::path(info.dli_fname)
             : fs::path();
}

bool lies_in(const fs::path& file, const fs::path& folder) {
  std::error_code error;
  const fs::path inside =
      fs::weakly_canonical(file, error).lexically_relative(fs::weakly_canonical(folder, error));
  return !inside.empty() && *inside.begin() != ".." && *inside.begin() != ".";
}

// Whether nobody but this user and root can have made the folder, or put something into it: what is loaded
// runs as this user, and a path that was compiled in may be anybody's on another machine.
bool belongs_to_us(const fs::path& folder) {
  std::error_code error;
  fs::path part = fs::canonical(folder, error);
  if (error) return false;
  for (bool first = true;; first = false, part = part.parent_path()) {
    struct stat about{};
    if (::stat(part.c_str(), &about) != 0) return false;
    if (about.st_uid != 0 && about.st_uid != ::geteuid()) return false;
    const bool sticky = (about.st_mode & S_ISVTX) != 0 && !first;
    if ((about.st_mode & S_IWOTH) != 0 && !sticky) return false;
    if (part == part.root_path()) return true;
  }
}

std::string last_error() {
  const char* text = dlerror();
  return text != nullptr ? text : "no reason given";
}

}  // namespace

std::vector<std::string> Module::directories() {
  std::vector<std::string> found;
  std::vector<std::string> beside;  // as a build folder has them
  if (const fs::path file = own_file(); file.extension() == ".so") {
    found.push_back((file.parent_path() / DEAR_MODULE_LIBDIR / "dear").string());
    beside.push_back((file.parent_path() / "modules").string());
  }
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  if (!error) {
    const fs::path prefix = program.parent_path().parent_path();
    found.push_back((prefix / DEAR_MODULE_LIBDIR / "dear").string());
    beside.push_back((program.parent_path() / "modules").string());
  }
  found.insert(found.end(), beside.begin(), beside.end());
  // What was installed never looks into the folder that it was built in.
  const fs::path build = fs::path(DEAR_MODULE_BUILD_DIRECTORY);
  if (lies_in(own_file(), build.parent_path()) || (!error && lies_in(program, build.parent_path())))
    found.push_back(build.string());
  if (belongs_to_us(DEAR_MODULE_INSTALL_DIRECTORY)) found.emplace_back(DEAR_MODULE_INSTALL_DIRECTORY);
  return found;
}

bool Module::exists(const std::string& name) { return !find(name).empty(); }

Module Module::open(const std::string& name) { return load(name, RTLD_NOW | RTLD_LOCAL); }

Module Module::open_apart(const std::string& name, const std::string& symbol) {
  if (kWithSanitizer && dlsym(RTLD_DEFAULT, symbol.c_str()) != nullptr) {
    throw ConfigError("a build with sanitizers cannot keep the module " + file_of(name) +
                      " apart from this program, which has symbols of the same names (libtorch has a copy of "
                      "Gloo): use a build without sanitizers, or another backend");
  }
  return load(name, RTLD_NOW | RTLD_LOCAL | (kWithSanitizer ? 0 : RTLD_DEEPBIND));
}

Module Module::load(const std::string& name, int flags) {
  std::string path = find(name);
  if (path.empty()) {
    std::string places;
    for (const std::string& directory : directories()) places += (places.empty() ? "" : ", ") + directory;
    throw ConfigError("there is no module " + file_of(name) + " in " + places +
                      ": build DeAR where the library that it needs is installed");
  }
  void* handle = dlopen(path.c_str(), flags);
  if (handle == nullptr) {
    throw ConfigError("cannot load the module " + path + ": " + last_error() +
                      " (install what is missing, or build DeAR anew on this machine)");
  }
  return {std::move(path), handle};
}

void* Module::symbol(const std::string& name) const {
  void* found = dlsym(handle_, name.c_str());
  if (found == nullptr) {
    throw ConfigError("the module " + path_ + " has no function " + name +
                      ": it belongs to another version of DeAR, build and install both together");
  }
  return found;
}

}  // namespace dear::os
