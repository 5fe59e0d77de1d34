#include "backend/cuda/driver.hpp"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "base/try.hpp"

namespace kiln::cuda {
namespace {

Functions stubs(SymbolSet symbols) {
  Functions functions;
  const backend::StubLookup<status::deinitialized> lookup;
  functions.fill(symbols, lookup);
  return functions;
}

Result<base::DynamicLibrary> open_library(const DriverNames& names) {
  for (const char* name : names.libraries)
    if (auto library = base::DynamicLibrary::open_for_good(name)) return library;
  return Error(ErrorCode::no_device, fmt::format("{} needs {}, which cannot be loaded: install {}", names.title,
                                                 fmt::join(names.libraries, " or "), names.provider));
}

Error no_device_at_all(const DriverNames& names) {
  return Error(ErrorCode::no_device,
               fmt::format("{} is installed, but there is no {} device", names.provider, names.maker));
}

}  // namespace

Driver::Driver(const DriverNames& names, base::DynamicLibrary library, const Functions& functions, int version)
    : names_(&names),
      library_(std::move(library)),
      functions_(functions, stubs(names.symbols)),
      version_(version) {}

Result<std::shared_ptr<const Driver>> Driver::open(const DriverNames& names) {
  auto library = KILN_TRY(open_library(names));
  Functions functions;
  backend::SymbolLookup lookup(library);
  functions.fill(names.symbols, lookup);
  functions.fill_optional(names.symbols, lookup);
  if (names.symbols == SymbolSet::cuda) functions.fill_newer(lookup);
  int version = 0;
  if (functions.driver_version != nullptr) functions.driver_version(&version);
  if (lookup.missing() != nullptr)
    return Error(ErrorCode::unsupported, fmt::format("{} is too old: version {} has no {}; install a newer one",
                                                     names.provider, version, lookup.missing()));
  const Status started = functions.init(0);
  // HIP returns invalid_device if there is no device.
  if (started == status::no_device || started == status::invalid_device) return no_device_at_all(names);
  auto driver = std::make_shared<const Driver>(names, std::move(library), functions, version);
  if (started != status::success)
    return Error(ErrorCode::no_device,
                 fmt::format("{} failed to start: {}; check that it matches the kernel module", names.provider,
                             driver->error_name(started)));
  const auto count = KILN_TRY(driver->device_count());
  if (count == 0) return no_device_at_all(names);
  return driver;
}

Result<std::size_t> Driver::device_count() const {
  int count = 0;
  const Status status = functions_->device_count(&count);
  if (status == status::no_device) return std::size_t{0};
  if (status != status::success) return error(status, "counting devices");
  return static_cast<std::size_t>(std::max(count, 0));
}

Result<int> Driver::device(std::size_t number) const {
  const auto count = KILN_TRY(device_count());
  if (number >= count)
    return Error(ErrorCode::no_device, fmt::format("{} has {} device{} here, counted from 0", names_->title, count,
                                                   count == 1 ? "" : "s"));
  int device = 0;
  if (const Status status = functions_->device_get(&device, static_cast<int>(number)); status != status::success)
    return error(status, "opening a device");
  return device;
}

int Driver::attribute(int device, int attribute) const {
  int value = 0;
  return functions_->device_attribute(&value, attribute, device) == status::success ? value : 0;
}

std::string Driver::error_name(Status status) const {
  const char* name = nullptr;
  if (functions_->error_name_of != nullptr) {
    name = functions_->error_name_of(status);
  } else if (functions_->error_name(status, &name) != status::success) {
    name = nullptr;
  }
  return name != nullptr ? name : fmt::format("{} error {}", names_->title, status);
}

Error Driver::error(Status status, std::string_view doing) const {
  if (status == status::out_of_memory)
    return Error(ErrorCode::out_of_memory, fmt::format("the device ran out of memory while {}", doing));
  if (is_lasting(status))
    return Error(ErrorCode::device_failed,
                 fmt::format("the device was lost while {}: {}; only a new process can use it again", doing,
                             error_name(status)));
  if (status == status::out_of_resources)
    return Error(ErrorCode::invalid_request, fmt::format("{} while {}: the kernel needs more registers or shared "
                                                         "memory than the device has for a group of this size",
                                                         error_name(status), doing));
  return Error(ErrorCode::device_failed, fmt::format("{} while {}", error_name(status), doing));
}

bool is_lasting(Status status) noexcept {
  // ECC error, illegal address, timeout, destroyed context, assert, stack error, illegal instruction, misaligned
  // address, invalid address space, invalid program counter, launch failure.
  static constexpr std::array lasting = {214, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719};
  return std::find(lasting.begin(), lasting.end(), status) != lasting.end();
}

}  // namespace kiln::cuda
