#include "backend/cuda/rtc.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>

#include <fmt/format.h>

#include "backend/header_folders.hpp"
#include "backend/quirks/nvrtc_cache.hpp"
#include "backend/source_text.hpp"
#include "base/try.hpp"

namespace kiln::cuda {
namespace {

/// NVRTC searches the folder of the program's name, by default the working folder, for "quoted" files. There can be
/// no file below this one.
constexpr std::string_view nowhere = "/dev/null/";

/// RtcReply::result of a worker that finds another compiler than the one asked for, or that cannot go to the
/// application's working folder.
constexpr int not_the_same = -1;

/// The first line of the log that reports an error, and all after it. Lines of the source that the log quotes are
/// indented.
std::string_view first_error(std::string_view log) {
  while (!log.empty()) {
    const std::string_view line = log.substr(0, log.find('\n'));
    if (!line.starts_with(' ') && (line.find("): error") != std::string_view::npos ||
                                   line.find("): catastrophic error") != std::string_view::npos))
      return log;
    log.remove_prefix(std::min(line.size() + 1, log.size()));
  }
  return log;
}

/// An entry point that the compiler does not find, or of whose name it finds several functions.
struct UnclearEntry {
  std::string name;
  bool is_ambiguous = false;
};

/// The entry point if the first error in the log is about one. NVRTC looks them up in a file of its own, behind the
/// source.
std::optional<UnclearEntry> unclear_entry(const std::string& log) {
  constexpr std::string_view mark = "#pragma nv_mangled_name ";
  const std::string_view error = first_error(log);
  const std::size_t begin = error.find(mark);
  if (!error.starts_with("__nv_name_map(") || begin == std::string_view::npos) return std::nullopt;
  std::string_view entry = error.substr(begin + mark.size());
  entry = entry.substr(0, entry.find('\n'));
  return UnclearEntry{std::string(entry),
                      error.substr(0, error.find('\n')).find("overloaded function") != std::string_view::npos};
}

}  // namespace

/// Owns a program of the compiler, for one compilation.
class Rtc::Compilation {
 public:
  Compilation(const RtcFunctions& functions, const std::string& source, const std::string& name)
      : functions_(functions) {
    result_ = functions_.create(&native_, source.c_str(), name.c_str(), 0, nullptr, nullptr);
  }
  ~Compilation() {
    if (native_ != nullptr) functions_.destroy(&native_);
  }
  Compilation(const Compilation&) = delete;
  Compilation& operator=(const Compilation&) = delete;

  int result() const noexcept { return result_; }
  RtcFunctions::Program native() const noexcept { return native_; }

  std::string log() const {
    std::size_t size = 0;
    if (functions_.log_size(native_, &size) != 0) return {};
    std::string text(size, '\0');
    if (size == 0 || functions_.log(native_, text.data()) != 0) return {};
    text.resize(text.find_last_not_of('\0') + 1);
    return text;
  }

  std::vector<std::byte> take(Output output) const {
    const auto get_size = output == Output::code ? functions_.code_size : functions_.text_size;
    const auto get = output == Output::code ? functions_.code : functions_.text;
    std::size_t size = 0;
    if (get == nullptr || get_size(native_, &size) != 0) return {};
    std::vector<std::byte> bytes(size);
    if (size == 0 || get(native_, reinterpret_cast<char*>(bytes.data())) != 0) return {};
    return bytes;
  }

 private:
  const RtcFunctions& functions_;
  RtcFunctions::Program native_ = nullptr;
  int result_ = 0;
};

Result<std::shared_ptr<const Rtc>> Rtc::open(const RtcNames& names, const std::vector<std::string>& folders,
                                             const std::function<Result<void>(const Rtc& rtc)>& check) {
  std::vector<std::string> paths(names.libraries.begin(), names.libraries.end());
  for (const std::string& folder : folders)
    for (const char* name : names.libraries) paths.push_back((std::filesystem::path(folder) / name).string());
  std::optional<Error> problem;
  for (const std::string& path : paths) {
    auto library = base::DynamicLibrary::open_for_good(path);
    if (!library) continue;
    auto rtc = within(names, std::move(*library));
    auto checked = rtc ? check(**rtc) : Result<void>(std::move(rtc).error());
    if (checked) return rtc;
    if (!problem) problem = std::move(checked).error();
  }
  if (problem) return std::move(*problem);
  return Error(ErrorCode::unsupported, fmt::format("{} is missing: install {}", names.title, names.provider));
}

Result<std::shared_ptr<const Rtc>> Rtc::within(const RtcNames& names, base::DynamicLibrary library) {
  RtcFunctions functions;
  backend::SymbolLookup lookup(library);
  functions.fill(names.symbols, lookup);
  if (lookup.missing() != nullptr)
    return Error(ErrorCode::unsupported, fmt::format("{} is too old: it has no {}; install {}", names.title,
                                                     lookup.missing(), names.provider));
  return std::make_shared<const Rtc>(names, std::move(library), functions);
}

Rtc::Rtc(const RtcNames& names, base::DynamicLibrary library, RtcFunctions functions)
    : library_(std::move(library)), functions_(functions) {
  int minor = 0;
  functions_.version(&major_version_, &minor);
  version_ = fmt::format("{} {}.{}", names.title, major_version_, minor);
  has_cache_ = names.symbols == SymbolSet::cuda && backend::quirks::NvrtcCache::affects(major_version_, minor);
  if (names.symbols == SymbolSet::cuda) file_prefix_ = nowhere;
  // Measured: NVRTC compiles little faster with several threads than with one. hipRTC was never measured.
  if (names.symbols == SymbolSet::cuda) places_ = backend::CompilePlaces::of_process();
  int count = 0;
  if (functions_.architectures == nullptr || functions_.architecture_count(&count) != 0 || count <= 0) return;
  architectures_.resize(static_cast<std::size_t>(count));
  if (functions_.architectures(architectures_.data()) != 0) architectures_.clear();
  std::sort(architectures_.begin(), architectures_.end());
}

/// The result of a compilation. If it failed because the name of an entry point is not unique, `ambiguous` is that
/// name.
struct Rtc::Outcome {
  Result<Image> image;
  std::string ambiguous = {};
};

Result<Image> Rtc::compile(const Request& request, const std::vector<std::string>& options, Output output) const {
  std::vector<std::string> unnamed;
  while (true) {
    Outcome outcome = compile_once(request, options, output, unnamed);
    if (outcome.ambiguous.empty() || unnamed.size() == request.entries().size()) return std::move(outcome.image);
    unnamed.push_back(std::move(outcome.ambiguous));
  }
}

RtcReply Rtc::run(const RtcCall& call) const {
  const Compilation compilation(functions_, call.source, call.name);
  std::vector<const char*> words;
  for (const std::string& option : call.options) words.push_back(option.c_str());
  RtcReply reply{.result = compilation.result()};
  for (const std::string& entry : call.entries)
    if (reply.result == 0) reply.result = functions_.add_name(compilation.native(), entry.c_str());
  if (reply.result == 0)
    reply.result = functions_.compile(compilation.native(), static_cast<int>(words.size()), words.data());
  if (compilation.native() != nullptr) reply.log = compilation.log();
  if (reply.result != 0) return reply;
  reply.image = compilation.take(call.text ? Output::text : Output::code);
  for (const std::string& entry : call.entries) {
    const char* symbol = nullptr;
    const bool found =
        functions_.lowered_name(compilation.native(), entry.c_str(), &symbol) == 0 && symbol != nullptr;
    reply.symbols.push_back(found ? std::optional<std::string>(symbol) : std::nullopt);
  }
  return reply;
}

Result<RtcReply> Rtc::run_in_place(const Request& request, const RtcCall& call) const {
  if (places_ == nullptr) return run(call);
  std::optional<RtcReply> reply;
  const auto answer = KILN_TRY(places_->run({.compiler = "nvrtc",
                                             .title = version_,
                                             .library = library_.path().string(),
                                             .program = request.name(),
                                             .call = [&call] { return call.to_bytes(); },
                                             .here = [&] { reply = run(call); }}));
  if (answer) reply = RtcReply::from_bytes(*answer);
  if (reply && reply->result != not_the_same) return std::move(*reply);
  // For example, the library on disk was replaced after it was loaded here.
  return run(call);
}

Rtc::Outcome Rtc::compile_once(const Request& request, const std::vector<std::string>& options, Output output,
                               const std::vector<std::string>& unnamed) const {
  const auto made = backend::HeaderFolders::create(request);
  if (!made) return {made.error()};
  const backend::HeaderFolders& folders = *made;
  std::error_code error;
  RtcCall call{.compiler = version_,
               .folder = std::filesystem::current_path(error).string(),
               .name = file_prefix_ + request.name(),
               .source = backend::with_defines(request),
               .text = output == Output::text};
  for (const std::string& folder : folders.paths()) call.options.push_back("-I" + folder);
  if (has_cache_) call.options.emplace_back(backend::quirks::NvrtcCache::option_off);
  call.options.insert(call.options.end(), options.begin(), options.end());
  call.options.insert(call.options.end(), request.options().begin(), request.options().end());
  for (const std::string& entry : request.entries())
    if (std::ranges::find(unnamed, entry) == unnamed.end()) call.entries.push_back(entry);
  auto ran = run_in_place(request, call);
  if (!ran) return {std::move(ran).error()};
  RtcReply& reply = *ran;
  if (reply.result != 0) {
    std::string log = folders.with_names(std::move(reply.log));
    for (std::size_t at = log.find(nowhere); at != std::string::npos; at = log.find(nowhere))
      log.erase(at, nowhere.size());
    // There is no log for a refused option.
    if (log.empty()) log = fmt::format("error: {}", functions_.error(reply.result));
    const auto unclear = unclear_entry(log);
    if (!unclear) return {backend::refusal(request, std::move(log))};
    if (!unclear->is_ambiguous) return {backend::missing_kernel(request, unclear->name, std::move(log))};
    return {backend::ambiguous_kernel(request, unclear->name, std::move(log)), unclear->name};
  }
  Image image{std::move(reply.image), {}};
  if (image.bytes.empty())
    return {Error(ErrorCode::compile_failed,
                  fmt::format("{} produced no output for {}; remove options that select another kind of output",
                              version_, request.name()),
                  std::move(reply.log))};
  folders.replace_random_names(image.bytes);
  auto symbol = reply.symbols.begin();
  for (const std::string& entry : request.entries()) {
    const bool is_named = std::ranges::find(unnamed, entry) == unnamed.end();
    if (is_named && (symbol == reply.symbols.end() || !*symbol))
      return {backend::missing_kernel(request, entry, std::move(reply.log))};
    image.entries.push_back({entry, is_named ? *std::move(*symbol++) : std::string()});
  }
  return {std::move(image)};
}

RtcReply Rtc::reply_to(const std::string& library, const RtcCall& call) {
  static constexpr std::array<const char*, 0> none = {};
  const RtcNames names{.title = "NVRTC", .libraries = none, .provider = "", .symbols = SymbolSet::cuda};
  static const auto rtc = [&]() -> std::shared_ptr<const Rtc> {
    auto opened = base::DynamicLibrary::open_for_good(library);
    auto within = opened ? Rtc::within(names, std::move(*opened)) : Result<std::shared_ptr<const Rtc>>(nullptr);
    return within ? std::move(*within) : nullptr;
  }();
  std::error_code error;
  if (rtc != nullptr) std::filesystem::current_path(call.folder, error);
  if (rtc == nullptr || error || rtc->version() != call.compiler) return {.result = not_the_same};
  return rtc->run(call);
}

}  // namespace kiln::cuda
