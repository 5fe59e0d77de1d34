#pragma once

#include <optional>
#include <vector>

#include <kiln/request.hpp>
#include <kiln/result.hpp>

#include "backend/cuda/context.hpp"
#include "backend/cuda/image.hpp"

/// Programs that are compiled already: PTX, cubins, fatbins and code objects.
namespace kiln::cuda {

/// The kind of image that a language stands for; nullopt for source languages and SPIR-V.
std::optional<ImageKind> image_kind(Language language) noexcept;

/// An image and its kind.
struct GivenImage {
  ImageKind kind;
  Image image;
};

/// Checks the image of a request, and finds its entry points: those that the request names, by name or symbol, or
/// all. Kiln cannot list the kernels of a fatbin: the result has no entry points, and the caller gets them from
/// fatbin_entries(). Fails with compile_failed if the image is damaged or lacks an entry point.
Result<GivenImage> given_image(const Request& request);

/// Compiles the PTX of the program `name` to a cubin for the context's device. Fails with compile_failed and the
/// driver's log if the driver refuses it. Nothing if the driver has no functions for it.
Result<std::optional<std::vector<std::byte>>> link_ptx(const Context& context, const std::string& name,
                                                       std::span<const std::byte> ptx);

/// The kernels of a loaded module, as the driver lists them; empty if it does not.
std::vector<EntryPoint> listed_entries(const Context& context, Handle module);

/// The entry points that a request for a fatbin names, by name or symbol, or all that the driver lists. If it lists
/// none, names must be symbols. Fails with compile_failed if the list lacks an entry point, and with unsupported if
/// neither the request nor the driver names one.
Result<std::vector<EntryPoint>> fatbin_entries(const Request& request, std::vector<EntryPoint> listed);

}  // namespace kiln::cuda
