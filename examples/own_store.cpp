// A store of one's own: a folder of files, as on a network file system, through which machines share compiled
// programs. Two caches with separate directories stand in for two machines: the second one compiles nothing.
#include <filesystem>
#include <fstream>
#include <iostream>
#include <random>

#include <kiln/cache.hpp>
#include <kiln/kernel.hpp>
#include <kiln/store.hpp>

namespace fs = std::filesystem;

// Keeps each entry in a file of its own. Nothing in it changes, so any number of threads may call it at once.
class FolderStore final : public kiln::Store {
 public:
  explicit FolderStore(fs::path folder) : folder_(std::move(folder)) {}

  kiln::Result<std::optional<std::vector<std::byte>>> get(const kiln::EntryAddress& address) override {
    using Found = std::optional<std::vector<std::byte>>;
    const fs::path path = path_of(address);
    std::ifstream file(path, std::ios::binary | std::ios::ate);
    std::error_code error;
    if (!file && !fs::exists(path, error) && !error) return Found();  // A miss, which is no error.
    if (!file) return failure("cannot open", path);
    std::vector<std::byte> bytes(static_cast<std::size_t>(file.tellg()));
    file.seekg(0);
    file.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    if (!file) return failure("cannot read", path);
    return Found(std::move(bytes));  // The cache checks the bytes: no need to do so here.
  }

  kiln::Result<void> put(const kiln::EntryAddress& address, std::span<const std::byte> sealed) override {
    const fs::path path = path_of(address);
    std::error_code error;
    fs::create_directories(path.parent_path(), error);
    if (error) return failure("cannot create the folder of", path);
    // Written under another name, then renamed: readers see a whole entry or none, and writers share no file.
    fs::path temporary = path;
    temporary += ".tmp";
    temporary += std::to_string(std::random_device()());
    std::ofstream file(temporary, std::ios::binary);
    file.write(reinterpret_cast<const char*>(sealed.data()), static_cast<std::streamsize>(sealed.size()));
    file.close();
    if (file) fs::rename(temporary, path, error);
    if (file && !error) return {};
    fs::remove(temporary, error);
    return failure("cannot write", path);
  }

 private:
  // Digests are safe as file names. A key's name may be anything, "../../etc/passwd" too.
  fs::path path_of(const kiln::EntryAddress& address) const {
    return folder_ / address.identity.hex() / address.key.digest.hex();
  }
  static kiln::Error failure(const std::string& what, const fs::path& path) {
    return kiln::Error(kiln::ErrorCode::io, what + " " + path.string());
  }

  const fs::path folder_;
};

// A folder for this run, removed at its end.
struct ScratchFolder {
  const fs::path path = fs::temp_directory_path() / ("kiln-own-store-" + std::to_string(std::random_device()()));
  ~ScratchFolder() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
};

int main() try {
  const kiln::Kernel twice = {.name = "twice",
                              .buffers = {{"data", kiln::Type::f32, kiln::Access::read_write}},
                              .source = "KERNEL { data[global_id_x] *= 2.0f; }"};
  const auto gpu = kiln::open_device().value();
  const kiln::Request request = twice.request(*gpu).value();
  const ScratchFolder scratch;
  const auto store = std::make_shared<FolderStore>(scratch.path / "shared");

  kiln::Program program;
  for (const char* machine : {"machine_1", "machine_2"}) {
    kiln::Cache cache(gpu, {.directory = scratch.path / machine, .stores = std::vector<kiln::SharedStore>{store}});
    program = cache.get(request).value();
    cache.flush();  // Uploads run in the background. This waits for them, at most CacheOptions::upload_limit.
    std::cout << machine << " has " << program.name() << " from: " << kiln::to_string(program.origin()) << "; "
              << cache.stats().store_failures << " calls on stores failed\n";
  }
  return program.origin() == kiln::Origin::shared ? 0 : 1;
} catch (const kiln::Failure& failure) {
  std::cerr << failure.what() << '\n';
  return 1;
}
