#include "fixtures.hpp"

#include <cstdlib>
#include <stdexcept>

#include <fmt/format.h>

#include "store/sealed_entry.hpp"

namespace kiln::bench {
namespace {

class EmptyModule final : public Module {
 public:
  std::size_t bytes() const noexcept override { return 1024; }
};

}  // namespace

TemporaryFolder::TemporaryFolder() {
  std::string path = (std::filesystem::temp_directory_path() / "kiln-bench-XXXXXX").string();
  if (mkdtemp(path.data()) == nullptr) throw std::runtime_error("cannot make a temporary folder like " + path);
  path_ = path;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

void use_driver_cache(const std::filesystem::path& folder) {
  std::filesystem::create_directories(folder);
  setenv("MESA_SHADER_CACHE_DIR", folder.c_str(), 1);
  setenv("__GL_SHADER_DISK_CACHE_PATH", folder.c_str(), 1);
}

EmptyBackend::EmptyBackend()
    : identity_{.api = "empty",
                .vendor = "Kiln",
                .device = "no device",
                .driver = "no driver",
                .compiler = "none",
                .formats = {1}} {}

Result<Compiled> EmptyBackend::compile(const Request&) {
  return Compiled{.module = std::make_unique<EmptyModule>(), .binary = Binary{.format = 1, .bytes = {}}};
}

Result<std::unique_ptr<Module>> EmptyBackend::load(const Binary&) {
  return std::unique_ptr<Module>(std::make_unique<EmptyModule>());
}

Binary stored_binary(Store& store, const Identity& identity, const Key& key) {
  const auto sealed = store.get({identity.digest(), key}).value().value();
  return *store::open_entry(sealed).value().entry.binary();
}

std::vector<Request> made_up_requests(std::size_t count) {
  std::vector<Request> requests;
  requests.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    requests.emplace_back(Request::Fields{
        .name = fmt::format("program_{}", i),
        .source = fmt::format("#version 430\nlayout(local_size_x = {}) in;\nvoid main() {{}}\n", i + 1)});
  }
  return requests;
}

}  // namespace kiln::bench
