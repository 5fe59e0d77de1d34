#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <kiln/request.hpp>
#include <kiln/result.hpp>

#include "base/dynamic_library.hpp"

namespace kiln::cuda {

/// The functions of NVRTC and hipRTC, whose results are 0 where all went well.
struct RtcFunctions {
  using Program = void*;
  int (*version)(int* major, int* minor) = nullptr;
  int (*create)(Program* program, const char* source, const char* name, int headers, const char* const* texts,
                const char* const* names) = nullptr;
  int (*destroy)(Program* program) = nullptr;
  int (*compile)(Program program, int count, const char* const* options) = nullptr;
  int (*log_size)(Program program, std::size_t* bytes) = nullptr;
  int (*log)(Program program, char* text) = nullptr;
  int (*code_size)(Program program, std::size_t* bytes) = nullptr;
  int (*code)(Program program, char* bytes) = nullptr;
  const char* (*error)(int result) = nullptr;
  /// Null in hipRTC, which has one kind of output and does not tell what it knows.
  int (*text_size)(Program program, std::size_t* bytes) = nullptr;
  int (*text)(Program program, char* bytes) = nullptr;
  int (*architecture_count)(int* count) = nullptr;
  int (*architectures)(int* numbers) = nullptr;
};

/// What a library calls each of the RtcFunctions; null where it has none.
struct RtcSymbols {
  const char* version;
  const char* create;
  const char* destroy;
  const char* compile;
  const char* log_size;
  const char* log;
  const char* code_size;
  const char* code;
  const char* error;
  const char* text_size;
  const char* text;
  const char* architecture_count;
  const char* architectures;
};

/// Where a run-time compiler is found, and what its parts are called.
struct RtcNames {
  std::string_view title;
  std::span<const char* const> libraries;
  /// What to install where there is none.
  std::string_view provider;
  /// An option, and the version that has it (1209 for 12.9): without it the compiler answers from a cache of its
  /// own.
  const char* uncached = nullptr;
  int uncached_since = 0;
  RtcSymbols symbols;
};

/// A run-time compiler. Any number of threads may compile at once.
class Rtc {
 public:
  /// What to give out: code for one architecture, or text that the driver compiles.
  enum class Output { code, text };

  /// The first that has all functions and passes `check`. Looks in `folders` where the loader finds none. The error
  /// says what is missing and what provides it, or what is wrong with the first that was found.
  static Result<std::shared_ptr<const Rtc>> open(
      const RtcNames& names, const std::vector<std::string>& folders,
      const std::function<Result<void>(const Rtc& rtc)>& check = [](const Rtc&) { return Result<void>(); });
  /// The compiler within a library that has been opened anyway.
  static Result<std::shared_ptr<const Rtc>> within(const RtcNames& names, base::DynamicLibrary library);

  Rtc(const RtcNames& names, base::DynamicLibrary library, RtcFunctions functions);

  /// "NVRTC 13.0".
  const std::string& version() const noexcept { return version_; }
  /// 13.
  int major_version() const noexcept { return major_version_; }
  /// The numbers of the architectures it knows, as in 90, in rising order.
  const std::vector<int>& architectures() const noexcept { return architectures_; }
  /// Compiles with the request's own options behind `options`.
  Result<std::vector<std::byte>> compile(const Request& request, const std::vector<std::string>& options,
                                         Output output) const;

 private:
  class Compilation;

  base::DynamicLibrary library_;
  RtcFunctions functions_;
  std::string version_;
  int major_version_ = 0;
  const char* uncached_ = nullptr;
  std::vector<int> architectures_;
};

}  // namespace kiln::cuda
