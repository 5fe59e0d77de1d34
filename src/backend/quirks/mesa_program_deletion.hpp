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
/// (free_zombie_shaders() in st_context.c). That unbinds the program that such a context launched last, and Mesa
/// does not note it: the same program launched again is no program, and the process crashes.
///
/// Applies to Mesa's drivers whose shaders belong to one context (PIPE_CAP_SHAREABLE_SHADERS is false): llvmpipe,
/// softpipe and SVGA3D. Since Mesa 19.1, which introduced those lists (commit 41c4c49463); no release fixes it yet.
/// GPU drivers such as radeonsi and iris share shaders and are not affected. There is no upstream report.
///
/// Work-around: launches and deletions exclude each other. After a deletion, a context is flushed and launches
/// other programs before it launches its last one again. A program is deleted when no context has launched it last.
/// Kiln does not know what an application launches in its own contexts; a deletion is harmless in the context in
/// which it is made, so none is made while an application has another one.
class MesaProgramDeletion {
 public:
  /// Whether a driver has the bug, by its GL_VERSION and GL_RENDERER.
  static bool affects(std::string_view version, std::string_view renderer);
  /// The same for the driver of the context that is current.
  static bool affects_current();

  /// The contexts of a share group, as far as deletions concern them. Functions may be called from any thread.
  class Contexts {
   public:
    /// The context that is current on this thread.
    virtual void* current() const noexcept = 0;
    /// Whether an application may launch programs in a context other than `here`.
    virtual bool application_has_other(void* here) const = 0;
    /// Whether no thread has the context.
    virtual bool is_idle(void* context) const = 0;
    /// Calls `work` in each of these contexts that is idle, while no thread can get it.
    virtual void in_each_idle(const std::vector<void*>& contexts, const std::function<void(void*)>& work) = 0;

   protected:
    ~Contexts() = default;
  };

  /// `contexts` outlives this object.
  explicit MesaProgramDeletion(Contexts& contexts) : contexts_(contexts) {}

  /// A launch in the context that is current, from its preparation until the driver has it.
  class Launch {
   public:
    /// Makes the context ready to launch `program`; 0 if an application is about to launch programs itself.
    Launch(MesaProgramDeletion& quirk, GLuint program);
    ~Launch();
    Launch(const Launch&) = delete;
    Launch& operator=(const Launch&) = delete;

   private:
    MesaProgramDeletion& quirk_;
  };

  /// Deletes programs in the context that is current. Returns those that can be deleted only later.
  std::vector<GLuint> delete_programs(std::vector<GLuint> programs);
  /// Deletes the programs that do nothing; with a context of the group current.
  void delete_idle_programs();

 private:
  /// Whether a context other than `here` that a thread has launched the program last.
  bool busy_elsewhere(GLuint program, void* here) const KILN_REQUIRES(mutex_);
  /// Waits for launches to end, and keeps others away; or gives up after 100 ms, because a driver on the CPU
  /// returns from a launch when the program has ended, which may be never. Returns whether it succeeded.
  bool begin_deletion() KILN_EXCLUDES(gate_mutex_);
  void end_deletion(bool began) KILN_EXCLUDES(gate_mutex_);
  /// Flushes the current context and launches programs that do nothing, if programs were deleted since its last
  /// launch.
  void recover() KILN_REQUIRES(mutex_);
  /// Makes the current context hold on to none of the programs that can be deleted.
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
  /// Programs that do nothing, made when first needed. Two, because one of them may itself have been unbound.
  std::array<GLuint, 2> idle_programs_ KILN_GUARDED_BY(mutex_) = {};
};

}  // namespace kiln::backend::quirks
