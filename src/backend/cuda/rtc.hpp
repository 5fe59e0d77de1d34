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

#include "backend/compile_workers.hpp"
#include "backend/cuda/driver.hpp"
#include "backend/cuda/image.hpp"
#include "backend/cuda/rtc_call.hpp"
#include "base/dynamic_library.hpp"

namespace kiln::cuda {

/// The functions of both compilers: Kiln's name, NVRTC's, hipRTC's (null if there is none), and the type. They
/// return 0 on success.
// clang-format off
#define KILN_RTC_FUNCTIONS(X) \
  X(version, "nvrtcVersion", "hiprtcVersion", int(int* major, int* minor)) \
  X(create, "nvrtcCreateProgram", "hiprtcCreateProgram", \
    int(Program* program, const char* source, const char* name, int headers, const char* const* texts, \
      const char* const* names)) \
  X(add_name, "nvrtcAddNameExpression", "hiprtcAddNameExpression", int(Program program, const char* expression)) \
  X(lowered_name, "nvrtcGetLoweredName", "hiprtcGetLoweredName", \
    int(Program program, const char* expression, const char** name)) \
  X(destroy, "nvrtcDestroyProgram", "hiprtcDestroyProgram", int(Program* program)) \
  X(compile, "nvrtcCompileProgram", "hiprtcCompileProgram", \
    int(Program program, int count, const char* const* options)) \
  X(log_size, "nvrtcGetProgramLogSize", "hiprtcGetProgramLogSize", int(Program program, std::size_t* bytes)) \
  X(log, "nvrtcGetProgramLog", "hiprtcGetProgramLog", int(Program program, char* text)) \
  X(code_size, "nvrtcGetCUBINSize", "hiprtcGetCodeSize", int(Program program, std::size_t* bytes)) \
  X(code, "nvrtcGetCUBIN", "hiprtcGetCode", int(Program program, char* bytes)) \
  X(error, "nvrtcGetErrorString", "hiprtcGetErrorString", const char*(int result)) \
  X(text_size, "nvrtcGetPTXSize", nullptr, int(Program program, std::size_t* bytes)) \
  X(text, "nvrtcGetPTX", nullptr, int(Program program, char* bytes)) \
  X(architecture_count, "nvrtcGetNumSupportedArchs", nullptr, int(int* count)) \
  X(architectures, "nvrtcGetSupportedArchs", nullptr, int(int* numbers))
// clang-format on

struct RtcFunctions {
  using Program = void*;
#define KILN_DECLARE(name, in_cuda, in_hip, ...) std::add_pointer_t<__VA_ARGS__> name = nullptr;
  KILN_RTC_FUNCTIONS(KILN_DECLARE)
#undef KILN_DECLARE

  template <class Lookup>
  void fill(SymbolSet symbols, Lookup& lookup) {
#define KILN_FILL(name, in_cuda, in_hip, ...) lookup(name, symbols == SymbolSet::cuda ? in_cuda : in_hip);
    KILN_RTC_FUNCTIONS(KILN_FILL)
#undef KILN_FILL
  }
};

/// The libraries and names of a run-time compiler.
struct RtcNames {
  std::string_view title;
  std::span<const char* const> libraries;
  /// What to install if no library is found.
  std::string_view provider;
  SymbolSet symbols;
};

/// A run-time compiler. Thread-safe. NVRTC runs in compile workers if several threads compile at once.
class Rtc {
 public:
  /// code: machine code for one architecture. text: PTX, which the driver compiles.
  enum class Output { code, text };

  /// Opens the first library that has all functions and passes `check`. Searches the paths of the dynamic loader,
  /// then `folders`. The error says what is missing and what provides it, or what is wrong with the first library
  /// found.
  static Result<std::shared_ptr<const Rtc>> open(
      const RtcNames& names, const std::vector<std::string>& folders,
      const std::function<Result<void>(const Rtc& rtc)>& check = [](const Rtc&) { return Result<void>(); });
  /// Uses the compiler in a library that is open already.
  static Result<std::shared_ptr<const Rtc>> within(const RtcNames& names, base::DynamicLibrary library);

  Rtc(const RtcNames& names, base::DynamicLibrary library, RtcFunctions functions);

  /// As in "NVRTC 13.0".
  const std::string& version() const noexcept { return version_; }
  int major_version() const noexcept { return major_version_; }
  /// The numbers of the supported architectures, as in 90, in ascending order; empty if the compiler does not list
  /// them.
  const std::vector<int>& architectures() const noexcept { return architectures_; }
  /// Compiles with `options`, followed by the request's options. The result has the entry points of the request;
  /// none if the request names none. If a kernel shares its name with other functions, the compiler cannot tell its
  /// symbol, which is empty then.
  Result<Image> compile(const Request& request, const std::vector<std::string>& options, Output output) const;
  /// Null if the compiler does not run in workers.
  const std::shared_ptr<backend::CompilePlaces>& places() const noexcept { return places_; }

  /// In a worker: compiles with the NVRTC in a file, always the same one.
  static RtcReply reply_to(const std::string& library, const RtcCall& call);

 private:
  struct Outcome;
  /// Compiles without asking for the symbols of the entry points in `unnamed`.
  Outcome compile_once(const Request& request, const std::vector<std::string>& options, Output output,
                       const std::vector<std::string>& unnamed) const;
  class Compilation;
  /// Compiles in this process.
  RtcReply run(const RtcCall& call) const;
  /// Compiles in this process or in a worker.
  Result<RtcReply> run_in_place(const Request& request, const RtcCall& call) const;

  base::DynamicLibrary library_;
  RtcFunctions functions_;
  std::string version_;
  int major_version_ = 0;
  /// Precedes the names of programs.
  std::string file_prefix_;
  /// Whether NVRTC's cache must be turned off.
  bool has_cache_ = false;
  std::vector<int> architectures_;
  std::shared_ptr<backend::CompilePlaces> places_;
};

}  // namespace kiln::cuda
