#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <string_view>
#include <vector>

#include <epoxy/egl.h>
#include <epoxy/gl.h>

#include "base/mutex.hpp"

namespace kiln::backend::quirks {

/// If a program is deleted in one context, Mesa deletes its variants for other contexts when those are next flushed
/// (free_zombie_shaders() in st_context.c). Before 24.1.2 it unbinds the program that such a context launched last
/// and does not note it: if the same program is launched again, nothing is bound, and the process crashes.
///
/// Reported as https://gitlab.freedesktop.org/mesa/mesa/-/issues/11122. From 20.1 on (commit 4822cc97007), fixed in
/// 24.1.2 (commit 95828d8901e). Applies to drivers whose shaders belong to one context (PIPE_CAP_SHAREABLE_SHADERS
/// is false): llvmpipe, softpipe, virgl, SVGA3D, r600 and others. radeonsi, iris, zink and nouveau are not
/// affected.
///
/// Work-around: launches and deletions exclude each other. After a deletion, a context is flushed and launches
/// other programs before it launches its last one again. A program is deleted when no context has launched it last.
/// Kiln does not know which programs an application launches in its own contexts. A deletion is harmless in the
/// context in which it is made, so none is made while an application has another one.
class MesaProgramDeletion {
 public:
  /// Whether a driver has the bug, by its GL_VERSION and GL_RENDERER.
  static bool affects(std::string_view version, std::string_view renderer);
  /// Whether the driver of the current context has the bug.
  static bool affects_current();

  /// Interface to the contexts of a share group. Its functions may be called from any thread.
  class Contexts {
   public:
    /// The current context of this thread.
    virtual void* current() const noexcept = 0;
    /// Whether an application may launch programs in a context other than `here`.
    virtual bool application_has_other(void* here) const = 0;
    /// Whether no thread has borrowed the context.
    virtual bool is_idle(void* context) const = 0;
    /// Calls `work` for each idle context in `contexts`, with that context current. No thread can borrow it
    /// meanwhile.
    virtual void in_each_idle(const std::vector<void*>& contexts, const std::function<void(void*)>& work) = 0;

   protected:
    ~Contexts() = default;
  };

  /// `contexts` must outlive this object.
  explicit MesaProgramDeletion(Contexts& contexts) : contexts_(contexts) {}

  /// Held during a launch in the current context, from its preparation until the driver has accepted it.
  class Launch {
   public:
    /// Prepares the context for a launch of `program`; 0 if the application is about to launch programs itself.
    Launch(MesaProgramDeletion& quirk, GLuint program);
    ~Launch();
    Launch(const Launch&) = delete;
    Launch& operator=(const Launch&) = delete;

   private:
    MesaProgramDeletion& quirk_;
  };

  /// Deletes programs in the current context. Returns the programs that cannot be deleted yet.
  std::vector<GLuint> delete_programs(std::vector<GLuint> programs);
  /// Deletes the no-op programs. A context of the group must be current.
  void delete_idle_programs();

 private:
  /// Whether another context than `here`, which a thread has borrowed, launched the program last.
  bool busy_elsewhere(GLuint program, void* here) const KILN_REQUIRES(mutex_);
  /// Waits until no launch is in progress, and blocks new ones. Gives up after 100 ms: a CPU driver returns from a
  /// launch only when the program has ended, which may be never. Returns whether it succeeded.
  bool begin_deletion() KILN_EXCLUDES(gate_mutex_);
  void end_deletion(bool began) KILN_EXCLUDES(gate_mutex_);
  /// If programs were deleted since the last launch in the current context, flushes the context and launches the
  /// no-op programs.
  void recover() KILN_REQUIRES(mutex_);
  /// Launches the no-op programs in the current context, so that none of the deletable programs is its last launch.
  void let_go(void* context) KILN_REQUIRES(mutex_);
  void launch_idle_programs() KILN_REQUIRES(mutex_);

  Contexts& contexts_;

  base::Mutex gate_mutex_;
  base::Condition gate_changed_;
  std::size_t launching_ KILN_GUARDED_BY(gate_mutex_) = 0;
  std::size_t deletions_waiting_ KILN_GUARDED_BY(gate_mutex_) = 0;
  bool deleting_ KILN_GUARDED_BY(gate_mutex_) = false;

  /// The program that a context launched last, and the number of deletions before that launch.
  struct LastLaunch {
    GLuint program = 0;
    std::uint64_t deletions = 0;
  };
  base::Mutex mutex_;
  std::map<void*, LastLaunch> last_launches_ KILN_GUARDED_BY(mutex_);
  std::uint64_t deletions_ KILN_GUARDED_BY(mutex_) = 0;
  /// No-op programs, made at their first use. There are two because one of them may itself have been unbound.
  std::array<GLuint, 2> idle_programs_ KILN_GUARDED_BY(mutex_) = {};
};

}  // namespace kiln::backend::quirks
