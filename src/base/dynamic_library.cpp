#include "base/dynamic_library.hpp"

#include <dlfcn.h>
#include <link.h>

#include <cstddef>

#include "base/process.hpp"

namespace kiln::base {

Result<DynamicLibrary> DynamicLibrary::open(const std::string& name) {
  return open_with(name, RTLD_NOW | RTLD_LOCAL);
}

Result<DynamicLibrary> DynamicLibrary::open_for_good(const std::string& name) {
  return open_with(name, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
}

Result<DynamicLibrary> DynamicLibrary::open_with(const std::string& name, int flags) {
  void* handle = dlopen(name.c_str(), flags);
  if (handle == nullptr) {
    const char* reason = dlerror();
    return Error(ErrorCode::no_device,
                 "cannot load " + name + ": " + (reason != nullptr ? reason : "unknown reason"));
  }
  return DynamicLibrary(handle);
}

DynamicLibrary DynamicLibrary::loaded(const std::string& name) {
  return DynamicLibrary(dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD));
}

std::vector<std::filesystem::path> DynamicLibrary::search_path() {
  void* program = dlopen(nullptr, RTLD_LAZY);
  Dl_serinfo sizes{};
  if (program == nullptr || dlinfo(program, RTLD_DI_SERINFOSIZE, &sizes) != 0) return {};
  std::vector<std::byte> memory(sizes.dls_size);
  auto* list = reinterpret_cast<Dl_serinfo*>(memory.data());
  if (dlinfo(program, RTLD_DI_SERINFOSIZE, list) != 0 || dlinfo(program, RTLD_DI_SERINFO, list) != 0) return {};
  std::vector<std::filesystem::path> folders;
  for (unsigned int i = 0; i < list->dls_cnt; ++i) folders.emplace_back(list->dls_serpath[i].dls_name);
  return folders;
}

DynamicLibrary::~DynamicLibrary() {
  if (handle_ != nullptr && !process_ends()) dlclose(handle_);
}

std::filesystem::path DynamicLibrary::path() const {
  struct link_map* map = nullptr;
  if (handle_ == nullptr || dlinfo(handle_, RTLD_DI_LINKMAP, &map) != 0 || map == nullptr) return {};
  return map->l_name;
}

void* DynamicLibrary::symbol(const char* name) const { return handle_ != nullptr ? dlsym(handle_, name) : nullptr; }

}  // namespace kiln::base
