#pragma once

#include <string>
#include <utility>
#include <vector>

namespace dear {

// A part of DeAR that is loaded at run time, because it needs a library that is not everywhere (MPI, Gloo):
// the file lib<name>.so, which the CMake function dear_module() builds and installs. A handle; what was
// loaded stays until the process ends, since objects and errors made by it may live as long.
//
// Both sides are built together and from the same headers, so C++ objects and errors may cross. Functions
// looked up by name are extern "C".
class Module {
 public:
  // Loads it, or finds it loaded. ConfigError that says where it was looked for, or why it cannot be loaded.
  static Module open(const std::string& name);

  // Loads it so that it, and the libraries that come with it, find symbols among themselves before they look
  // at the program (RTLD_DEEPBIND): for a module over a library of which the program may have another copy in
  // it. `symbol` is one of that library. Sanitizers do not work with such loading: a build with one loads it
  // as open() does, and refuses with a ConfigError where the program already has the symbol.
  static Module open_apart(const std::string& name, const std::string& symbol);
  // False in a build with a sanitizer.
  static bool can_keep_apart();

  // Whether a file of it is there: it may still lack the library it needs.
  static bool exists(const std::string& name);

  // Where modules are looked for, in this order: ../lib/dear as seen from the program (an installed command),
  // the build tree, the place of installation.
  static std::vector<std::string> directories();

  // The function of this name. ConfigError where the module has none.
  template <typename Function>
  [[nodiscard]] Function* function(const std::string& name) const {
    return reinterpret_cast<Function*>(symbol(name));
  }
  [[nodiscard]] void* symbol(const std::string& name) const;

  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  static Module load(const std::string& name, int flags);
  Module(std::string path, void* handle) : path_(std::move(path)), handle_(handle) {}

  std::string path_;
  void* handle_;
};

}  // namespace dear
