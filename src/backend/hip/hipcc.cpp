#include <algorithm>
#include <cctype>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <optional>
#include <span>
#include <sstream>

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fmt/format.h>

#include <kiln/hip.hpp>

#include "backend/cuda/image.hpp"
#include "backend/header_folders.hpp"
#include "backend/hip/hip.hpp"
#include "backend/hip/hipcc.hpp"
#include "backend/sections.hpp"
#include "backend/source_text.hpp"
#include "base/file.hpp"
#include "base/process.hpp"
#include "base/try.hpp"

namespace kiln::hip {
namespace {

/// posix_spawn settings for a child that writes to a file and starts with no signal blocked.
class SpawnSettings {
 public:
  explicit SpawnSettings(const std::filesystem::path& output) {
    posix_spawn_file_actions_init(&files_);
    posix_spawn_file_actions_addopen(&files_, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&files_, STDOUT_FILENO, output.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    posix_spawn_file_actions_adddup2(&files_, STDOUT_FILENO, STDERR_FILENO);
    posix_spawnattr_init(&attributes_);
    sigset_t none;
    sigemptyset(&none);
    posix_spawnattr_setsigmask(&attributes_, &none);
    posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETSIGMASK);
  }
  ~SpawnSettings() {
    posix_spawnattr_destroy(&attributes_);
    posix_spawn_file_actions_destroy(&files_);
  }
  SpawnSettings(const SpawnSettings&) = delete;
  SpawnSettings& operator=(const SpawnSettings&) = delete;

  const posix_spawn_file_actions_t* files() const noexcept { return &files_; }
  const posix_spawnattr_t* attributes() const noexcept { return &attributes_; }

 private:
  posix_spawn_file_actions_t files_;
  posix_spawnattr_t attributes_;
};

std::vector<std::string> environment_with(const std::map<std::string, std::string>& changes) {
  std::vector<std::string> all;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string text = *variable;
    if (!changes.contains(text.substr(0, text.find('=')))) all.push_back(text);
  }
  for (const auto& [name, value] : changes) all.push_back(fmt::format("{}={}", name, value));
  return all;
}

std::vector<char*> pointers(const std::vector<std::string>& words) {
  std::vector<char*> all;
  // posix_spawn does not modify the strings, despite its signature.
  for (const std::string& word : words) all.push_back(const_cast<char*>(word.c_str()));
  all.push_back(nullptr);
  return all;
}

}  // namespace

Result<int> run_process(const std::vector<std::string>& words,
                        const std::map<std::string, std::string>& environment,
                        const std::filesystem::path& output) {
  const SpawnSettings settings(output);
  const auto variables = environment_with(environment);
  pid_t process = 0;
  const int failed = posix_spawnp(&process, words.front().c_str(), settings.files(), settings.attributes(),
                                  pointers(words).data(), pointers(variables).data());
  if (failed != 0)
    return Error(failed == ENOENT ? ErrorCode::unsupported : ErrorCode::io,
                 fmt::format("cannot run {}: {}", words.front(), std::strerror(failed)));
  int status = 0;
  while (waitpid(process, &status, 0) < 0) {
    if (errno == EINTR) continue;
    // The application ignores SIGCHLD, so the exit status is lost. The caller checks the child's output instead.
    return 0;
  }
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

namespace {

/// Checks that this program may run hipcc.
Result<void> check_rights() {
  if (base::has_more_rights_than_its_caller())
    return Error(ErrorCode::unsupported,
                 "a set-uid program cannot run hipcc: hipcc depends on PATH and TMPDIR, which are not trusted");
  return {};
}

/// A name such as "gfx906" or "gfx90a:sramecc+:xnack-", with its features in the order of their names, as compilers
/// write them.
Result<std::string> normalised(std::string_view text) {
  const bool fits = text.starts_with("gfx") && std::all_of(text.begin(), text.end(), [](unsigned char c) {
                      return std::isalnum(c) != 0 || c == ':' || c == '+' || c == '-';
                    });
  if (!fits)
    return Error(ErrorCode::invalid_request,
                 fmt::format("\"{}\" is not an AMD architecture; examples are gfx906 and gfx90a:xnack-", text));
  std::vector<std::string_view> features;
  const std::size_t end = std::min(text.find(':'), text.size());
  for (std::string_view rest = text.substr(end); !rest.empty();) {
    rest.remove_prefix(1);
    features.push_back(rest.substr(0, rest.find(':')));
    rest.remove_prefix(features.back().size());
  }
  std::ranges::sort(features);
  std::string name(text.substr(0, end));
  for (const std::string_view feature : features) name += fmt::format(":{}", feature);
  return name;
}

/// Options that keep temporary paths and the working folder out of the code object, so that equal requests give
/// equal bytes. The request's own options come after them.
std::vector<std::string> stable_names(const Request& request, const std::filesystem::path& scratch,
                                      const backend::HeaderFolders& headers) {
  std::vector<std::string> options = {"-fdebug-compilation-dir=.",
                                      // By default, hipcc hashes the path of the source.
                                      fmt::format("-cuid={}", request.key().digest.hex(16)),
                                      fmt::format("-ffile-prefix-map={}/=", scratch.string())};
  for (const auto& [path, shown] : headers.temporary())
    options.push_back(fmt::format("-ffile-prefix-map={}/={}", path, shown));
  return options;
}

std::string contents(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

std::string reference_name(std::size_t entry) { return fmt::format("kiln_entry_{}", entry); }

/// Lines behind the source that refer to the entry points: hipcc instantiates the templates, and a relocation in
/// the code object leads to the symbol of each.
std::string references_to(const Request& request) {
  std::string text;
  for (std::size_t i = 0; i < request.entries().size(); ++i)
    text += fmt::format(
        "\n#line {}\nextern \"C\" __attribute__((used)) __device__ const void* const {} = (const void*)({});\n",
        backend::generated_lines, reference_name(i), request.entries()[i]);
  return text;
}

/// The error if the first error of the log is in a line that refers to an entry point.
std::optional<Error> missing_entry(const Request& request, const std::string& log) {
  const std::size_t error = log.find(fmt::format(":{}:", backend::generated_lines));
  if (error == std::string::npos || log.find(" error: ") < error) return std::nullopt;
  const bool is_ambiguous = log.find("overloaded function", error) != std::string::npos &&
                            log.find("note: candidate function\n", error) != std::string::npos;
  for (std::size_t i = 0; i < request.entries().size(); ++i)
    if (log.find(reference_name(i) + ' ', error) != std::string::npos)
      return is_ambiguous ? backend::ambiguous_kernel(request, request.entries()[i], log)
                          : backend::missing_kernel(request, request.entries()[i], log);
  return std::nullopt;
}

Result<std::vector<cuda::EntryPoint>> referenced_entries(const Request& request, std::span<const std::byte> image) {
  std::vector<cuda::EntryPoint> entries;
  for (const std::string& entry : request.entries()) {
    auto symbol = cuda::referenced_symbol(image, reference_name(entries.size()));
    if (!symbol) return backend::missing_kernel(request, entry, {});
    entries.push_back({entry, std::move(*symbol)});
  }
  return entries;
}

/// Runs hipcc from PATH, or from the folder of ROCm's packages.
Result<int> run_hipcc(std::vector<std::string> words, const std::map<std::string, std::string>& environment,
                      const std::filesystem::path& output) {
  for (const char* compiler : {"hipcc", "/opt/rocm/bin/hipcc"}) {
    words.front() = compiler;
    auto status = run_process(words, environment, output);
    if (status || status.error().code() != ErrorCode::unsupported) return status;
  }
  return Error(ErrorCode::unsupported,
               "hipcc is missing: install ROCm or Debian's hipcc to compile for AMD GPUs of other machines");
}

}  // namespace

namespace {

/// The lines of hipcc's output that contain `text`. Scripts that hipcc runs may print to standard error.
std::string lines_with(std::string_view output, std::string_view text) {
  std::string lines;
  while (!output.empty()) {
    const std::string_view line = output.substr(0, output.find('\n'));
    output.remove_prefix(std::min(line.size() + 1, output.size()));
    if (line.find(text) != std::string_view::npos) lines += std::string(line) + '\n';
  }
  return lines;
}

/// Whether something else killed hipcc or a process of it, perhaps for another process's need of memory.
bool was_killed(int status, std::string_view output) {
  if (status == 128 + SIGKILL) return true;
  // The words of the script hipcc, and of clang.
  const auto has = [output](std::string_view text) { return output.find(text) != std::string_view::npos; };
  return status != 0 && (has("child died with signal 9,") || has("error: unable to execute command: Killed"));
}

/// The processors that hipcc lists, as in "gfx906", in its order; empty if it does not list them.
std::vector<std::string> known_processors() {
  std::vector<std::string> known;
  const auto folder = base::ScratchFolder::create();
  if (!folder) return known;
  const auto output = folder->path() / "log";
  if (!run_hipcc({"hipcc", "--target=amdgcn-amd-amdhsa", "-nogpulib", "--print-supported-cpus"},
                 {{"HIP_PLATFORM", "amd"}}, output))
    return known;
  std::istringstream words(contents(output));
  for (std::string word; words >> word;)
    if (word.starts_with("gfx")) known.push_back(word);
  return known;
}

/// Fails with unsupported if hipcc does not know the architecture. Compiles nothing: hipcc only prints the commands
/// that it would run.
Result<void> check_known(std::string_view architecture, const std::string& compiler) {
  const auto folder = KILN_TRY(base::ScratchFolder::create());
  const auto output = folder.path() / "log";
  const auto status =
      KILN_TRY(run_hipcc({"hipcc", "--genco", fmt::format("--offload-arch={}", architecture), "-###", "-x", "hip",
                          "/dev/null", "-o", (folder.path() / "object").string()},
                         {{"HIP_PLATFORM", "amd"}}, output));
  if (status == 0) return {};
  std::string log = contents(output);
  std::string why = lines_with(log, "error: ");
  why = why.substr(0, why.find('\n'));
  const std::vector<std::string> known = known_processors();
  const std::string_view processor = architecture.substr(0, architecture.find(':'));
  if (std::ranges::find(known, processor) == known.end() && !known.empty())
    return Error(
        ErrorCode::unsupported,
        fmt::format("{} does not compile for {}; it knows {}", compiler, architecture, fmt::join(known, ", ")),
        std::move(log));
  return Error(ErrorCode::unsupported, fmt::format("{} does not compile for {}: {}", compiler, architecture, why),
               std::move(log));
}

}  // namespace

Result<std::string> find_hipcc() {
  KILN_TRY(check_rights());
  const auto folder = KILN_TRY(base::ScratchFolder::create());
  const auto output = folder.path() / "log";
  const auto status = KILN_TRY(run_hipcc({"hipcc", "--version"}, {{"HIP_PLATFORM", "amd"}}, output));
  std::string version = lines_with(contents(output), "HIP version");
  version = version.substr(0, version.find('\n'));
  if (status != 0 || version.empty())
    return Error(ErrorCode::unsupported, "hipcc --version does not print a version; reinstall hipcc");
  return fmt::format("hipcc, {}", version);
}

Result<Identity> identity_for(std::string_view architecture) {
  std::string device = KILN_TRY(normalised(architecture));
  std::string compiler = KILN_TRY(find_hipcc());
  KILN_TRY(check_known(device, compiler));
  return Identity{.api = "hip",
                  .vendor = "AMD",
                  .device = std::move(device),
                  .compiler = std::move(compiler),
                  .formats = {static_cast<std::uint32_t>(cuda::ImageKind::code_object)}};
}

bool selects_only(const Request& request, std::string_view architecture) {
  const auto wanted = normalised(architecture);
  if (!wanted) return false;
  for (const std::string& option : request.options())
    for (const std::string_view name : {"--offload-arch=", "--gpu-architecture="})
      if (option.starts_with(name)) {
        const auto selected = normalised(std::string_view(option).substr(name.size()));
        if (!selected || *selected != *wanted) return false;
      }
  return true;
}

Result<Binary> compile_for(const Request& request, std::string_view architecture, const Log& log) {
  KILN_TRY(backend::check_language(request, {Language::hip}));
  const std::string target = KILN_TRY(normalised(architecture));
  KILN_TRY(check_rights());
  const auto folder = KILN_TRY(base::ScratchFolder::create());
  const auto source = folder.path() / "program.hip";
  const auto object = folder.path() / "program.hsaco";
  const auto output = folder.path() / "log";
  KILN_TRY(base::write_file(source, backend::with_defines(request) + references_to(request)));
  const auto headers = KILN_TRY(backend::HeaderFolders::create(request));

  // hipRTC includes this header itself, and the same source must compile with both.
  std::vector<std::string> words = {"hipcc", "--genco", fmt::format("--offload-arch={}", target), "-include",
                                    "hip/hip_runtime.h"};
  const auto stable = stable_names(request, folder.path(), headers);
  words.insert(words.end(), stable.begin(), stable.end());
  // hipcc searches /usr/include itself, behind the folders of the C++ library, which must precede it.
  for (const std::string& path : headers.paths())
    if (path != "/usr/include") words.push_back("-I" + path);
  words.insert(words.end(), request.options().begin(), request.options().end());
  words.insert(words.end(), {"-o", object.string(), source.string()});
  log.debug(fmt::format("compiling {} for {}: {}", request.name(), target, fmt::join(words, " ")));
  // TMPDIR makes sure that temporary files of a killed compiler are removed with the folder.
  const auto status =
      KILN_TRY(run_hipcc(std::move(words), {{"TMPDIR", folder.path().string()}, {"HIP_PLATFORM", "amd"}}, output));
  const std::string image = contents(object);
  if (status != 0 || image.empty()) {
    std::string text = contents(output);
    if (text.empty()) text = fmt::format("error: hipcc exited with status {} and printed nothing", status);
    text = headers.with_names(std::move(text));
    if (auto error = missing_entry(request, text)) return std::move(*error);
    if (was_killed(status, text))
      return Error(ErrorCode::device_failed,
                   fmt::format("hipcc was killed while it compiled {}; the machine may have too little memory",
                               request.name()),
                   std::move(text));
    return backend::refusal(request, std::move(text));
  }
  const auto bytes = backend::as_section(image);
  if (!cuda::is_whole(bytes, cuda::ImageKind::code_object))
    return Error(
        ErrorCode::compile_failed,
        fmt::format("hipcc produced no code object for {}; remove options that select another kind of output",
                    request.name()),
        contents(output));
  cuda::Image compiled{{bytes.begin(), bytes.end()}, cuda::entry_points(bytes, cuda::ImageKind::code_object)};
  if (!request.entries().empty()) compiled.entries = KILN_TRY(referenced_entries(request, bytes));
  if (compiled.entries.empty())
    return Error(
        ErrorCode::compile_failed,
        fmt::format("{} has no kernel: declare one as __global__, and name templates in Request::Fields::entries",
                    request.name()));
  return cuda::to_binary(cuda::ImageKind::code_object, compiled, request.name());
}

}  // namespace kiln::hip
