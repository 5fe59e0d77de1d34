#include "store/bundle_transfer.hpp"

#include <algorithm>
#include <cerrno>
#include <memory>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.hpp"
#include "base/sha256.hpp"
#include "base/try.hpp"
#include "store/bundle.hpp"
#include "store/part_file.hpp"
#include "store/remote_library.hpp"
#include "store/shared_store.hpp"
#include "store/transfer.hpp"

namespace kiln::store {
namespace {

/// Beyond the timeout of the store, a call gets the time that this slow a connection needs.
constexpr std::uint64_t least_bytes_per_second = 1 << 20;
constexpr std::size_t max_name_size = 200;

/// A file to push, as it was when it was opened.
struct OpenBundle {
  base::FileHandle handle;
  std::filesystem::path path;
  std::uint64_t size = 0;
};

/// Reads the whole bundle. Messages are reasons without a subject.
Result<void> check_bundle(const base::FileHandle& handle, const std::filesystem::path& path, std::uint64_t size,
                          int interrupted) {
  base::FileHandle copy(::fcntl(handle.get(), F_DUPFD_CLOEXEC, 3));
  if (!copy) return base::system_error("open", path);
  const auto bundle = BundleFile::open_part(std::move(copy), path.string(), 0, size);
  if (!bundle) {
    std::string_view why = bundle.error().message();
    const std::string subject = fmt::format("the bundle {} cannot be used: ", path.string());
    if (why.starts_with(subject)) why.remove_prefix(subject.size());
    return Error(bundle.error().code(), std::string(why));
  }
  if ((*bundle)->bytes() != size) return Error(ErrorCode::damaged, "it has other bytes behind its end");
  std::optional<Error> problem;
  (*bundle)->verify(
      [&](const std::string& what, const Error& why) {
        if (!problem) problem = Error(ErrorCode::damaged, fmt::format("{}: {}", what, why.message()));
      },
      [&] { return problem || is_interrupted(interrupted); });
  if (problem) return *problem;
  if (is_interrupted(interrupted))
    return Error(ErrorCode::cancelled, fmt::format("the check of {} was interrupted", path.string()));
  return {};
}

Result<OpenBundle> open_to_push(const std::filesystem::path& path, int interrupted) {
  OpenBundle file{base::FileHandle(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)), path};
  if (!file.handle) return base::system_error("open", path);
  struct stat status {};
  if (::fstat(file.handle.get(), &status) != 0) return base::system_error("examine", path);
  if (!S_ISREG(status.st_mode))
    return Error(ErrorCode::invalid_request, fmt::format("cannot push {}: it is not a file", path.string()));
  file.size = static_cast<std::uint64_t>(status.st_size);
  const auto sound = check_bundle(file.handle, path, file.size, interrupted);
  if (sound) return file;
  if (sound.error().code() == ErrorCode::cancelled) return sound.error();
  return Error(sound.error().code(),
               fmt::format("{} is no usable bundle: {}", path.string(), sound.error().message()));
}

Error was_truncated(const std::filesystem::path& path) {
  return Error(ErrorCode::damaged, fmt::format("{} was truncated while it was read", path.string()));
}

Result<TransferredBundle> push_to_registry(const OpenBundle& file, const RegistryUrl& url,
                                           const BundleTransfer& transfer) {
  const auto registry = KILN_TRY(open_registry(url));
  base::Sha256 hash;
  const std::uint64_t read = KILN_TRY(read_in_parts(file.handle, file.path, file.size, transfer.interrupted,
                                                    [&hash](auto bytes) { hash.add(bytes); }));
  if (read != file.size) return was_truncated(file.path);
  BundleToPush bundle{.digest = hash.finish(), .size = file.size, .title = file.path.filename().string()};
  bundle.read = [&file](std::uint64_t offset, std::span<std::byte> to) -> Result<std::size_t> {
    ssize_t got = -1;
    do got = ::pread(file.handle.get(), to.data(), to.size(), static_cast<off_t>(offset));
    while (got < 0 && errno == EINTR);
    if (got < 0) return base::system_error("read", file.path);
    if (got == 0) return was_truncated(file.path);
    return static_cast<std::size_t>(got);
  };
  const auto pushed = KILN_TRY(registry->push(bundle, transfer.interrupted, [&](std::uint64_t done) {
    if (transfer.progress) transfer.progress(done, file.size);
  }));
  return TransferredBundle{.digest = bundle.digest,
                           .size = file.size,
                           .manifest = pushed.manifest,
                           .transferred = pushed.was_sent ? file.size : 0};
}

CallLimit limit_of(const StoreUrl& url, std::uint64_t bytes, int interrupted) {
  const std::chrono::seconds time(bytes / least_bytes_per_second);
  return {.deadline = std::chrono::steady_clock::now() + url.timeout + time,
          .cancelled = interrupted,
          .idle = std::max(url.timeout, std::chrono::milliseconds(2000))};
}

Result<TransferredBundle> push_to_store(const OpenBundle& file, const BundlePlace& place, const StoreUrl& url,
                                        const BundleTransfer& transfer) {
  if (url.mode == StoreMode::read_only)
    return Error(ErrorCode::invalid_request, "the mode of the store URL permits no uploads");
  if (file.size > max_object_bytes)
    return Error(
        ErrorCode::unsupported,
        fmt::format("cannot push {}: it has {} bytes, and stores take objects of {} MiB at most; divide it with "
                    "`kiln bundle split`, or push it to a registry (oci://)",
                    file.path.string(), file.size, max_object_bytes >> 20));
  std::vector<std::byte> bytes;
  bytes.reserve(static_cast<std::size_t>(file.size));
  KILN_TRY(read_in_parts(file.handle, file.path, file.size, transfer.interrupted,
                         [&bytes](auto part) { bytes.insert(bytes.end(), part.begin(), part.end()); }));
  if (bytes.size() != file.size) return was_truncated(file.path);
  const auto opened = KILN_TRY(open_shared_store(url));
  KILN_TRY(with_retries(transfer.interrupted, [&] {
    return opened.objects->put(place.object_path(), bytes, limit_of(url, file.size, transfer.interrupted));
  }));
  return TransferredBundle{.digest = base::sha256(bytes), .size = file.size, .transferred = file.size};
}

Error no_bundle_at(const BundlePlace& place, const Error& why) {
  return Error(why.code(), fmt::format("{} has no usable bundle: {}", place.display(), why.message()));
}

/// Gives a complete file its name, or removes it if it is no bundle.
Result<void> finish(PartFile& part, const BundlePlace& place, int interrupted) {
  const auto sound = check_bundle(part.handle(), part.path(), part.received(), interrupted);
  if (sound) return part.rename();
  const bool is_cancelled = sound.error().code() == ErrorCode::cancelled;
  // The next pull from a registry goes on with it.
  if (!is_cancelled || !place.is_registry()) part.remove();
  return is_cancelled ? sound.error() : no_bundle_at(place, sound.error());
}

Result<TransferredBundle> pull_from_registry(const BundlePlace& place, const RegistryUrl& url, PartFile& part,
                                             const BundleTransfer& transfer) {
  const auto registry = KILN_TRY(open_registry(url));
  const RegistryBundle found = KILN_TRY(registry->find(transfer.interrupted));
  KILN_TRY(part.resume(found.size, transfer.interrupted));
  KILN_TRY(part.expect_bundle(found.size));
  part.on_write([&](std::uint64_t done) {
    if (transfer.progress) transfer.progress(done, found.size);
  });
  for (;;) {
    const std::uint64_t before = part.received();
    KILN_TRY(registry->download(found, part, transfer.interrupted));
    if (part.digest() == found.digest)
      return TransferredBundle{.digest = found.digest,
                               .size = found.size,
                               .manifest = found.manifest,
                               .transferred = found.size - before};
    KILN_TRY(part.restart());
    // What was there may be a part of another bundle.
    if (before > 0) continue;
    part.remove();
    return Error(
        ErrorCode::damaged,
        fmt::format("cannot pull {}: the registry sends other bytes than sha256:{}, which the manifest names",
                    place.display(), found.digest.hex()));
  }
}

Result<TransferredBundle> pull_from_store(const BundlePlace& place, const StoreUrl& url, PartFile& part,
                                          const BundleTransfer& transfer) {
  if (url.mode == StoreMode::write_only)
    return Error(ErrorCode::invalid_request, "the mode of the store URL permits no downloads");
  StoreUrl to_read = url;
  to_read.mode = StoreMode::read_only;
  const auto opened = KILN_TRY(open_shared_store(to_read));
  const auto absent = [&] {
    return Error(ErrorCode::unsupported,
                 fmt::format("there is no bundle {} in {}", place.object_path(), url.display()));
  };
  // A server that does not answer is noticed soon.
  const auto has = with_retries(transfer.interrupted, [&] {
    return opened.objects->has(place.object_path(), limit_of(url, 0, transfer.interrupted));
  });
  if (!KILN_TRY(std::move(has))) return absent();
  const auto object = KILN_TRY(with_retries(transfer.interrupted, [&] {
    return opened.objects->get(place.object_path(), limit_of(url, max_object_bytes, transfer.interrupted));
  }));
  if (!object) return absent();
  KILN_TRY(part.restart());
  KILN_TRY(part.expect_bundle(object->size()));
  KILN_TRY(part.write(*object));
  if (transfer.progress) transfer.progress(object->size(), object->size());
  return TransferredBundle{.digest = part.digest(), .size = object->size(), .transferred = object->size()};
}

}  // namespace

Result<BundlePlace> BundlePlace::parse(std::string_view url, const std::string& name) {
  BundlePlace place;
  if (is_registry_url(url)) {
    place.url = KILN_TRY(parse_registry_url(url));
    return place;
  }
  auto store = parse_store_url(url);
  if (!store && url.find("://") == std::string_view::npos)
    return Error(
        ErrorCode::invalid_request,
        "the URL of a bundle is that of a registry, as in oci://host/repository:tag, or of a shared store");
  if (!store) return store.error();
  place.url = *std::move(store);
  place.name = name;
  const auto is_word = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); };
  const bool is_valid = !name.empty() && name.size() <= max_name_size && is_word(name.front()) &&
                        std::ranges::all_of(name, [&](char c) { return is_word(c) || c == '.' || c == '-'; });
  if (!is_valid)
    return Error(
        ErrorCode::invalid_request,
        fmt::format("\"{}\" cannot be the name of a bundle in a shared store, which has lower-case letters, "
                    "digits, '.' and '-'; choose another one with --name",
                    name));
  return place;
}

std::string BundlePlace::display() const {
  if (const auto* registry = std::get_if<RegistryUrl>(&url)) return registry->display();
  return std::get<StoreUrl>(url).display() + "/" + object_path();
}

Result<TransferredBundle> push_bundle(const std::filesystem::path& file, const BundlePlace& place,
                                      const BundleTransfer& transfer) {
  const OpenBundle opened = KILN_TRY(open_to_push(file, transfer.interrupted));
  if (const auto* registry = std::get_if<RegistryUrl>(&place.url))
    return push_to_registry(opened, *registry, transfer);
  return push_to_store(opened, place, std::get<StoreUrl>(place.url), transfer);
}

Result<TransferredBundle> pull_bundle(const BundlePlace& place, const std::filesystem::path& file,
                                      const BundleTransfer& transfer) {
  std::error_code ignored;
  if (std::filesystem::is_directory(file, ignored) || !file.has_filename())
    return Error(ErrorCode::invalid_request, fmt::format("cannot pull to {}: it is a folder", file.string()));
  const auto part = KILN_TRY(PartFile::open(file));
  const auto* registry = std::get_if<RegistryUrl>(&place.url);
  const auto pulled = registry != nullptr ? pull_from_registry(place, *registry, *part, transfer)
                                          : pull_from_store(place, std::get<StoreUrl>(place.url), *part, transfer);
  if (part->refused()) {
    part->remove();
    return no_bundle_at(place, *part->refused());
  }
  if (!pulled) {
    part->remove_if_empty();
    return pulled;
  }
  KILN_TRY(finish(*part, place, transfer.interrupted));
  return pulled;
}

}  // namespace kiln::store
