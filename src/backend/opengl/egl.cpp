#include "backend/opengl/egl.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "base/dynamic_library.hpp"
#include "base/try.hpp"

namespace kiln::opengl {

GLenum take_error() {
  GLenum worst = GL_NO_ERROR;
  for (GLenum error = glGetError(); error != GL_NO_ERROR; error = glGetError()) {
    // A lost context may return this error endlessly.
    if (error == GL_CONTEXT_LOST) return error;
    if (worst == GL_NO_ERROR || error == GL_OUT_OF_MEMORY) worst = error;
  }
  return worst;
}

Error gl_error(GLenum error, std::string_view doing, std::string log) {
  switch (error) {
    case GL_OUT_OF_MEMORY:
      return Error(ErrorCode::out_of_memory, fmt::format("the device ran out of memory while {}", doing),
                   std::move(log));
    case GL_CONTEXT_LOST:
      return Error(ErrorCode::device_failed, fmt::format("the device was lost while {}; open it again", doing),
                   std::move(log));
    default:
      return Error(ErrorCode::device_failed, fmt::format("OpenGL error {:#x} while {}", error, doing),
                   std::move(log));
  }
}

Result<void> check_gl(std::string_view doing) {
  const GLenum error = take_error();
  if (error == GL_NO_ERROR) return {};
  return gl_error(error, doing);
}

Error process_ending() {
  return Error(ErrorCode::device_failed, "the process is exiting; drivers can no longer be called");
}

namespace {

Display initialise(EGLDisplay egl, bool software) {
  Display display{egl, software, {}};
  EGLint major = 0;
  EGLint minor = 0;
  if (egl == EGL_NO_DISPLAY) {
    display.problem = "EGL has no display for this device";
  } else if (eglInitialize(egl, &major, &minor) != EGL_TRUE) {
    display.problem = fmt::format("its driver failed to start ({}); check that its device node is readable",
                                  egl_error_name(eglGetError()));
  } else if (!epoxy_has_egl_extension(egl, "EGL_KHR_surfaceless_context")) {
    display.problem = "its driver cannot create a context without a window";
  }
  return display;
}

bool client_has(const char* extension) { return epoxy_has_egl_extension(EGL_NO_DISPLAY, extension); }

std::vector<EGLDeviceEXT> egl_devices() {
  if (!client_has("EGL_EXT_platform_device") ||
      (!client_has("EGL_EXT_device_enumeration") && !client_has("EGL_EXT_device_base")))
    return {};
  EGLint count = 0;
  if (eglQueryDevicesEXT(0, nullptr, &count) != EGL_TRUE || count <= 0) return {};
  std::vector<EGLDeviceEXT> devices(static_cast<std::size_t>(count));
  if (eglQueryDevicesEXT(count, devices.data(), &count) != EGL_TRUE) return {};
  devices.resize(static_cast<std::size_t>(count));
  return devices;
}

bool is_software(EGLDeviceEXT device) {
  const char* extensions = eglQueryDeviceStringEXT(device, EGL_EXTENSIONS);
  return extensions != nullptr &&
         std::string_view(extensions).find("EGL_MESA_device_software") != std::string_view::npos;
}

}  // namespace

Result<void> find_libraries() {
  if (auto egl = base::DynamicLibrary::open("libEGL.so.1"); !egl)
    return Error(ErrorCode::no_device,
                 egl.error().message() + "; install the GPU's driver, or libegl1 and libgl1-mesa-dri for the CPU");
  if (!base::DynamicLibrary::open("libOpenGL.so.0") && !base::DynamicLibrary::open("libGL.so.1"))
    return Error(ErrorCode::no_device, "cannot load libOpenGL.so.0 or libGL.so.1; install libopengl0 or libgl1");
  return {};
}

Result<std::vector<Display>> list_displays() {
  KILN_TRY(find_libraries());
  std::vector<Display> displays;
  for (EGLDeviceEXT device : egl_devices())
    displays.push_back(
        initialise(eglGetPlatformDisplayEXT(EGL_PLATFORM_DEVICE_EXT, device, nullptr), is_software(device)));
  const bool usable =
      std::any_of(displays.begin(), displays.end(), [](const Display& display) { return display.problem.empty(); });
  if (!usable && client_has("EGL_MESA_platform_surfaceless"))
    displays.push_back(initialise(eglGetPlatformDisplayEXT(EGL_PLATFORM_SURFACELESS_MESA, nullptr, nullptr), true));
  std::stable_sort(displays.begin(), displays.end(),
                   [](const Display& a, const Display& b) { return !a.software && b.software; });
  if (displays.empty())
    return Error(ErrorCode::no_device,
                 "EGL lists no device; install the GPU's driver, or libgl1-mesa-dri for the CPU");
  return displays;
}

std::string egl_error_name(EGLint error) {
  switch (error) {
    case EGL_SUCCESS: return "EGL_SUCCESS";
    case EGL_NOT_INITIALIZED: return "EGL_NOT_INITIALIZED";
    case EGL_BAD_ACCESS: return "EGL_BAD_ACCESS";
    case EGL_BAD_ALLOC: return "EGL_BAD_ALLOC";
    case EGL_BAD_ATTRIBUTE: return "EGL_BAD_ATTRIBUTE";
    case EGL_BAD_CONFIG: return "EGL_BAD_CONFIG";
    case EGL_BAD_CONTEXT: return "EGL_BAD_CONTEXT";
    case EGL_BAD_CURRENT_SURFACE: return "EGL_BAD_CURRENT_SURFACE";
    case EGL_BAD_DISPLAY: return "EGL_BAD_DISPLAY";
    case EGL_BAD_MATCH: return "EGL_BAD_MATCH";
    case EGL_BAD_PARAMETER: return "EGL_BAD_PARAMETER";
    case EGL_BAD_SURFACE: return "EGL_BAD_SURFACE";
    case EGL_CONTEXT_LOST: return "EGL_CONTEXT_LOST";
    default: return fmt::format("EGL error {:#x}", error);
  }
}

}  // namespace kiln::opengl
