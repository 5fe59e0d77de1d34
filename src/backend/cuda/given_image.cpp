#include "backend/cuda/given_image.hpp"

#include <algorithm>
#include <array>
#include <cstdint>

#include <fmt/format.h>

#include "base/try.hpp"

namespace kiln::cuda {
namespace {

/// The entry points that the request names, by name or symbol, or all.
Result<std::vector<EntryPoint>> chosen(const Request& request, std::vector<EntryPoint> entries) {
  if (request.entries().empty()) return entries;
  std::vector<EntryPoint> named;
  for (const std::string& name : request.entries()) {
    const auto found = std::ranges::find_if(
        entries, [&](const EntryPoint& entry) { return entry.name == name || entry.symbol == name; });
    if (found == entries.end())
      return Error(ErrorCode::compile_failed, fmt::format("{} has no kernel called {}", request.name(), name));
    named.push_back({name, found->symbol});
  }
  return named;
}

}  // namespace

std::optional<ImageKind> image_kind(Language language) noexcept {
  switch (language) {
    case Language::ptx: return ImageKind::ptx;
    case Language::cubin: return ImageKind::cubin;
    case Language::fatbin: return ImageKind::fatbin;
    case Language::code_object: return ImageKind::code_object;
    default: return std::nullopt;
  }
}

Result<GivenImage> given_image(const Request& request) {
  const ImageKind kind = *image_kind(request.language());
  const auto bytes = std::as_bytes(std::span(request.source()));
  GivenImage given{kind, {{bytes.begin(), bytes.end()}, {}}};
  // Drivers read PTX up to a NUL.
  if (kind == ImageKind::ptx && (bytes.empty() || bytes.back() != std::byte{0}))
    given.image.bytes.push_back(std::byte{0});
  if (!is_whole(given.image.bytes, kind))
    return Error(ErrorCode::compile_failed,
                 fmt::format("{} is not a complete {}", request.name(), to_string(request.language())));
  // Only the driver can look into a fatbin.
  if (kind == ImageKind::fatbin) return given;
  given.image.entries = KILN_TRY(chosen(request, entry_points(given.image.bytes, kind)));
  if (given.image.entries.empty())
    return Error(ErrorCode::compile_failed, fmt::format("{} has no kernel", request.name()));
  return given;
}

Result<std::optional<std::vector<std::byte>>> link_ptx(const Context& context, const std::string& name,
                                                       std::span<const std::byte> ptx) {
  const Driver& driver = context.driver();
  if (driver->link_create == nullptr || driver->link_add == nullptr || driver->link_complete == nullptr ||
      driver->link_destroy == nullptr)
    return std::optional<std::vector<std::byte>>{};
  const Context::ScopedCurrent scope(context);
  if (scope.status() != status::success) return driver.error(scope.status(), "compiling " + name);
  // CU_JIT_ERROR_LOG_BUFFER and CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES.
  std::array<int, 2> options = {5, 6};
  std::string log(16384, '\0');
  std::array<void*, 2> values = {log.data(), reinterpret_cast<void*>(std::uintptr_t{log.size()})};
  Handle link = nullptr;
  Status status = driver->link_create(2, options.data(), values.data(), &link);
  if (status != status::success) return driver.error(status, "compiling " + name);
  constexpr int is_ptx = 1;  // CU_JIT_INPUT_PTX
  status = driver->link_add(link, is_ptx, ptx.data(), ptx.size(), name.c_str(), 0, nullptr, nullptr);
  void* image = nullptr;
  std::size_t bytes = 0;
  if (status == status::success) status = driver->link_complete(link, &image, &bytes);
  std::optional<std::vector<std::byte>> cubin;
  if (status == status::success) {
    const auto* begin = static_cast<const std::byte*>(image);
    cubin.emplace(begin, begin + bytes);
  }
  driver->link_destroy(link);
  if (cubin && is_whole(*cubin, ImageKind::cubin)) return cubin;
  if (is_lasting(status) || status == status::out_of_memory) return driver.error(status, "compiling " + name);
  log.resize(std::min(log.find('\0'), log.size()));
  return Error(ErrorCode::compile_failed,
               fmt::format("the driver does not compile the PTX of {}: {}", name,
                           cubin ? "the result is incomplete" : driver.error_name(status)),
               std::move(log));
}

std::vector<EntryPoint> listed_entries(const Context& context, Handle module) {
  const Driver& driver = context.driver();
  if (driver->function_count == nullptr || driver->list_functions == nullptr || driver->function_name == nullptr)
    return {};
  const Context::ScopedCurrent scope(context);
  unsigned count = 0;
  if (scope.status() != status::success || driver->function_count(&count, module) != status::success) return {};
  std::vector<Handle> functions(count);
  if (driver->list_functions(functions.data(), count, module) != status::success) return {};
  std::vector<std::string> symbols;
  for (const Handle function : functions) {
    const char* name = nullptr;
    if (driver->function_name(&name, function) == status::success && name != nullptr) symbols.emplace_back(name);
  }
  return named(std::move(symbols));
}

Result<std::vector<EntryPoint>> fatbin_entries(const Request& request, std::vector<EntryPoint> listed) {
  if (!listed.empty()) return chosen(request, std::move(listed));
  if (request.entries().empty())
    return Error(ErrorCode::unsupported,
                 fmt::format("the driver does not list the kernels of {}; name them in Request::Fields::entries",
                             request.name()));
  std::vector<EntryPoint> symbols;
  for (const std::string& name : request.entries()) symbols.push_back({name, name});
  return symbols;
}

}  // namespace kiln::cuda
