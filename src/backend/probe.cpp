#include "backend/probe.hpp"

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace kiln::backend {
namespace {

using Json = nlohmann::json;

// GPU drivers take a second or two to start on a busy machine.
constexpr std::chrono::seconds patience{20};

Json to_json(const DeviceTraits& traits) {
  return {{"vendor", traits.vendor},
          {"architecture", traits.architecture},
          {"subgroup_width", traits.subgroup_width},
          {"compute_units", traits.compute_units},
          {"fp16", traits.fp16},
          {"matrix_units", traits.matrix_units}};
}

DeviceTraits traits_of(const Json& json) {
  return {.vendor = json.at("vendor"),
          .architecture = json.at("architecture"),
          .subgroup_width = json.at("subgroup_width"),
          .compute_units = json.at("compute_units"),
          .fp16 = json.at("fp16"),
          .matrix_units = json.at("matrix_units")};
}

Json to_json(const DeviceInfo& info) {
  const Identity& identity = info.identity;
  return {{"name", info.name},
          {"label", info.label},
          {"api", identity.api},
          {"vendor", identity.vendor},
          {"device", identity.device},
          {"driver", identity.driver},
          {"compiler", identity.compiler},
          {"formats", identity.formats},
          {"language", static_cast<int>(info.language)},
          {"max_groups", info.limits.max_groups},
          {"max_group_size", info.limits.max_group_size},
          {"max_group_items", info.limits.max_group_items},
          {"shared_bytes", info.limits.shared_bytes},
          {"traits", to_json(info.traits)},
          {"software", info.software},
          {"lanes", info.lanes},
          {"problem", info.problem}};
}

DeviceInfo from_json(const Json& json) {
  return {.name = json.at("name"),
          .identity = {json.at("api"), json.at("vendor"), json.at("device"), json.at("driver"), json.at("compiler"),
                       json.at("formats").get<std::vector<std::uint32_t>>()},
          .label = json.at("label"),
          .language = static_cast<Language>(json.at("language").get<int>()),
          .limits = {.max_groups = json.at("max_groups"),
                     .max_group_size = json.at("max_group_size"),
                     .max_group_items = json.at("max_group_items"),
                     .shared_bytes = json.at("shared_bytes")},
          .traits = traits_of(json.at("traits")),
          .software = json.at("software"),
          .lanes = json.at("lanes"),
          .problem = json.at("problem")};
}

/// Writes what the listing says to the pipe; false where the pipe takes no more.
bool send(int descriptor, Probe::List list) {
  Json answer = Json::array();
  for (const DeviceInfo& info : list({})) answer.push_back(to_json(info));
  const std::string text = answer.dump(-1, ' ', false, Json::error_handler_t::replace);
  for (std::string_view left = text; !left.empty();) {
    const ssize_t written = write(descriptor, left.data(), left.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    left.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

/// A crash of the driver's ends the child there and then, without what the application does about crashes of its
/// own.
void crash_silently() noexcept {
  for (const int signal : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGTRAP, SIGSYS}) std::signal(signal, SIG_DFL);
}

/// The child's part. Never returns, and runs nothing of the parent's at its end.
[[noreturn]] void answer(int descriptor, Probe::List list) noexcept {
  crash_silently();
  try {
    _exit(send(descriptor, list) ? 0 : 1);
  } catch (...) {
    // Above this frame is the caller's program, which must not go on twice.
    _exit(1);
  }
}

/// All that comes out of the pipe until its other end is closed; nothing where that takes too long.
std::optional<std::string> read_all(int descriptor) {
  std::string text;
  const auto deadline = std::chrono::steady_clock::now() + patience;
  for (;;) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    pollfd waiting{descriptor, POLLIN, 0};
    const int ready = poll(&waiting, 1, static_cast<int>(std::max<std::int64_t>(left.count(), 0)));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return std::nullopt;
    std::array<char, 4096> part{};
    const ssize_t got = read(descriptor, part.data(), part.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return text;
    text.append(part.data(), static_cast<std::size_t>(got));
  }
}

}  // namespace

Probe::Probe(std::string_view api, List list) : api_(api), list_(list) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return;
  reading_ = base::FileHandle(ends[0]);
  // Closed here before the next child is made, which would keep this pipe open.
  const base::FileHandle writing(ends[1]);
  child_ = fork();
  if (child_ == 0) backend::answer(writing.get(), list);
}

Probe::Probe(Probe&& other) noexcept
    : api_(other.api_),
      list_(other.list_),
      reading_(std::move(other.reading_)),
      child_(std::exchange(other.child_, -1)) {}

Probe::~Probe() {
  if (child_ < 0) return;
  kill(child_, SIGKILL);
  wait();
}

int Probe::wait() {
  int status = 0;
  while (waitpid(child_, &status, 0) < 0 && errno == EINTR) {
  }
  child_ = -1;
  return status;
}

std::vector<DeviceInfo> Probe::answer() {
  if (child_ < 0) return list_({});
  const auto text = read_all(reading_.get());
  if (!text) kill(child_, SIGKILL);
  const int status = wait();
  const auto failed = [this](std::string problem) {
    return std::vector<DeviceInfo>{
        {.name = std::string(api_), .identity = {.api = std::string(api_)}, .problem = std::move(problem)}};
  };
  if (!text)
    return failed(fmt::format("its driver did not answer within {} s; remove or repair it", patience.count()));
  if (WIFSIGNALED(status))
    return failed(fmt::format("its driver crashed when it was loaded ({}); remove or repair it",
                              strsignal(WTERMSIG(status))));
  try {
    std::vector<DeviceInfo> infos;
    for (const Json& json : Json::parse(*text)) infos.push_back(from_json(json));
    return infos;
  } catch (const Json::exception&) {
    return failed("its driver ended the process that asked for its devices; remove or repair it");
  }
}

}  // namespace kiln::backend
