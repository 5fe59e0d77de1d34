#pragma once

#include <filesystem>
#include <vector>

#include <kiln/request.hpp>

namespace kiln::key {

/// The folders with the headers of a language's toolkit, absolute and in the order in which they are searched;
/// empty if none is installed or the language has none.
///
/// For CUDA, these are `include` and `include/cccl` in `$CUDA_HOME`, `$CUDA_PATH`, /usr/local/cuda, or the
/// installation of the NVRTC that the dynamic loader finds, whichever is the first to have them. For HIP, `include`
/// in `$ROCM_PATH`, `$HIP_PATH`, /opt/rocm or /usr.
std::vector<std::filesystem::path> toolkit_folders(Language language);

}  // namespace kiln::key
