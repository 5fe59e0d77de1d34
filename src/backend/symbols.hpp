#pragma once

#include <functional>
#include <type_traits>
#include <utility>

#include "base/dynamic_library.hpp"
#include "base/process.hpp"

/// Functions of libraries that are opened at run time.
///
/// The functions of a library are a struct of pointers. A macro lists them, one row each, and is expanded twice: to
/// the members of the struct and to a loop over them. So each function is named once; opencl/library.hpp is the
/// simplest example. The loop calls a SymbolLookup to find the functions, or a StubLookup to get stubs.
namespace kiln::backend {

/// Finds functions by name and records the first missing one.
class SymbolLookup {
 public:
  explicit SymbolLookup(std::function<void*(const char*)> find) : find_(std::move(find)) {}
  explicit SymbolLookup(const base::DynamicLibrary& library)
      : find_([&library](const char* name) { return library.symbol(name); }) {}

  /// A null name is skipped: this library does not have the function.
  template <class Function>
  void operator()(Function*& function, const char* name) {
    optional(function, name);
    if (name != nullptr && function == nullptr && missing_ == nullptr) missing_ = name;
  }
  /// As operator(), but a missing function is null and not recorded.
  template <class Function>
  void optional(Function*& function, const char* name) {
    if (name != nullptr) function = reinterpret_cast<Function*>(find_(name));
  }
  const char* missing() const noexcept { return missing_; }

 private:
  std::function<void*(const char*)> find_;
  const char* missing_ = nullptr;
};

/// Converts to a function of any type that does nothing and returns `failure`, or a default value if the function
/// returns another type.
template <auto failure>
struct Stub {
  template <class Result, class... Arguments>
  using Function = Result (*)(Arguments...);

  template <class Result, class... Arguments>
  constexpr operator Function<Result, Arguments...>() const noexcept {
    return [](Arguments...) -> Result {
      if constexpr (std::is_same_v<Result, std::remove_const_t<decltype(failure)>>) {
        return failure;
      } else {
        return Result();
      }
    };
  }
};

/// Takes the place of a SymbolLookup to fill a struct with stubs.
template <auto failure>
struct StubLookup {
  template <class Function>
  void operator()(Function*& function, const char* name) const noexcept {
    if (name != nullptr) function = Stub<failure>();
  }
};

/// The functions of a driver. Once exit() begins, calls go to stubs, because objects in static variables may be
/// destroyed after the driver has shut down.
template <class Functions>
class Calls {
 public:
  Calls(const Functions& functions, const Functions& stubs) noexcept : functions_(functions), stubs_(stubs) {}

  const Functions* operator->() const noexcept { return base::process_ends() ? &stubs_ : &functions_; }

 private:
  Functions functions_;
  Functions stubs_;
};

}  // namespace kiln::backend
