#include <algorithm>
#include <cctype>
#include <fstream>
#include <iterator>

#include <fmt/format.h>

#include <kiln/hip.hpp>

#include "backend/cuda/image.hpp"
#include "backend/hip/child_process.hpp"
#include "backend/sections.hpp"
#include "backend/source_text.hpp"
#include "base/environment.hpp"
#include "base/file.hpp"
#include "base/try.hpp"

namespace kiln::hip {
namespace {

/// "gfx906", "gfx90a:xnack-".
bool names_architecture(std::string_view text) {
  return text.starts_with("gfx") && std::all_of(text.begin(), text.end(), [](unsigned char c) {
           return std::isalnum(c) != 0 || c == ':' || c == '+' || c == '-';
         });
}

std::string contents(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

/// hipcc by PATH, or where ROCm's own packages put it.
Result<int> run_hipcc(std::vector<std::string> words, const std::map<std::string, std::string>& environment,
                      const std::filesystem::path& output) {
  for (const char* compiler : {"hipcc", "/opt/rocm/bin/hipcc"}) {
    words.front() = compiler;
    auto status = run_process(words, environment, output);
    if (status || status.error().code() != ErrorCode::unsupported) return status;
  }
  return Error(ErrorCode::unsupported,
               "hipcc is missing: install Debian's hipcc, or ROCm, to compile for AMD GPUs that are not here");
}

}  // namespace

Result<Binary> compile_for(const Request& request, std::string_view architecture, const Log& log) {
  if (request.error()) return *request.error();
  KILN_TRY(backend::check_language(request, Language::hip));
  if (!names_architecture(architecture))
    return Error(ErrorCode::invalid_request,
                 fmt::format("\"{}\" is no AMD architecture; write it as gfx906", architecture));
  if (base::has_more_rights_than_its_caller())
    return Error(ErrorCode::unsupported,
                 "hipcc is found by PATH, and works in TMPDIR; a set-uid program trusts neither");
  const auto folder = KILN_TRY(ScratchFolder::create());
  const auto source = folder.path() / "program.hip";
  const auto object = folder.path() / "program.hsaco";
  const auto output = folder.path() / "log";
  KILN_TRY(base::write_file(source, backend::with_defines(request)));

  // hipRTC includes the runtime's header by itself, and the same source must do for both.
  std::vector<std::string> words = {"hipcc", "--genco", fmt::format("--offload-arch={}", architecture), "-include",
                                    "hip/hip_runtime.h"};
  words.insert(words.end(), request.options().begin(), request.options().end());
  words.insert(words.end(), {"-o", object.string(), source.string()});
  log.debug(fmt::format("compiling {} for {}: {}", request.name(), architecture, fmt::join(words, " ")));
  // What the compiler leaves behind when it dies goes with the folder.
  const auto status =
      KILN_TRY(run_hipcc(std::move(words), {{"TMPDIR", folder.path().string()}, {"HIP_PLATFORM", "amd"}}, output));
  const std::string image = contents(object);
  if (status != 0 || image.empty()) {
    std::string text = contents(output);
    if (text.empty()) text = fmt::format("error: hipcc ended with {} and said nothing", status);
    return backend::refusal(request, std::move(text));
  }
  const auto bytes = backend::as_section(image);
  if (!cuda::is_whole(bytes, cuda::ImageKind::code_object))
    return Error(ErrorCode::compile_failed,
                 fmt::format("hipcc made no code object of {}; do its options ask for another kind of output?",
                             request.name()),
                 contents(output));
  if (!cuda::argument_sizes(bytes, cuda::ImageKind::code_object, request.entry()))
    return Error(ErrorCode::compile_failed,
                 fmt::format("{} has no kernel called {}; is it declared extern \"C\" __global__?", request.name(),
                             request.entry()));
  return cuda::to_binary(cuda::ImageKind::code_object, bytes, request);
}

}  // namespace kiln::hip
